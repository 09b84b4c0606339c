"""Models of models/ with random weights, and random examples for them."""

from __future__ import annotations

import importlib
from typing import Any


def random_model(module: str, random: Any) -> Any:
    """Return a model of models/ with no two weights alike, biases and batch norm's among them."""
    import tf_keras as keras

    keras.utils.set_random_seed(0)
    model = importlib.import_module(f"models.{module}").build()
    weights = [w * random.uniform(0.5, 1.5, w.shape) for w in model.get_weights()]
    model.set_weights([w + 0.01 * random.random(w.shape) for w in weights])
    return model


def examples(x: Any) -> Any:
    """Return random examples as a calibration sample."""
    from shrink.quantization.calibration import CalibrationExamples
    from tests.unlabelled import UnlabelledExamples

    rows: Any = UnlabelledExamples(x)
    return CalibrationExamples(rows, len(x), 0)
