"""What `shrink init` learns of a model and data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.contract.job import FirstLookJob
from shrink.data.config import DataConfig
from shrink.tools.inspect import first_look
from tests.jobs import quiet, source


def test_a_first_look_counts_weights_examples_and_bytes(tmp_path: Path) -> None:
    layers = keras.layers
    stack = [layers.Dense(8, activation="relu"), layers.Dense(4, activation="softmax")]
    keras.Sequential([layers.Input((5,)), *stack]).save(tmp_path / "model.keras")
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(40) % 4)
    data = DataConfig.model_validate({"source": "npz", "path": str(tmp_path / "d.npz")})
    found = first_look(
        FirstLookJob(
            name="model.keras",
            work=tmp_path,
            model=source(tmp_path / "model.keras"),
            data=data.model_dump(mode="json"),
            task={},
        ),
        quiet,
    )
    assert found.parameters == (5 + 1) * 8 + (8 + 1) * 4
    assert found.train + found.validation + found.test == 40
    assert (found.classes, found.loss) == (4, "sparse_categorical_crossentropy")
    assert found.metric == "accuracy"
    assert found.quantized_bytes == (tmp_path / "quantized.tflite").stat().st_size
    assert found.float_bytes > 4 * found.parameters
    assert found.quantized_arena_bytes
    assert found.clip_seconds == 0
