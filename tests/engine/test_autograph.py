"""What AutoGraph converts: a user's layers, and nothing of shrink."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from tensorflow.python.autograph.pyct.transpiler import PyToPy

from shrink.engine.config import TrainingConfig
from tests.engine._scenarios import dataset
from tests.engine._toys import trained


class Doubled(keras.layers.Layer):
    """Doubles its inputs where they sum to something positive."""

    def call(self, inputs: Any) -> Any:
        if tf.reduce_sum(inputs) > 0:
            return 2.0 * inputs
        return inputs


@pytest.mark.parametrize("pools", [False, True])
def test_train_converts_a_layer_that_branches_on_a_tensor_and_nothing_of_shrink(
    pools: bool,
    monkeypatch: Any,
) -> None:
    converted: list[str] = []
    transform = PyToPy.transform_function

    def noted(self: Any, fn: Any, context: Any) -> Any:
        converted.append(f"{fn.__module__}.{fn.__qualname__}")
        return transform(self, fn, context)

    monkeypatch.setattr(PyToPy, "transform_function", noted)
    inputs = keras.layers.Input((6, 6, 2))
    hidden = keras.layers.MaxPooling2D()(inputs) if pools else inputs
    hidden = Doubled()(keras.layers.Flatten()(hidden))
    model = keras.Model(inputs, keras.layers.Dense(5)(hidden))
    config = TrainingConfig(global_batch_size=24, micro_batch_size=10)
    metrics = ("accuracy",)
    record = trained(model, dataset(), config, epochs=1, monitor="accuracy", metrics=metrics)
    assert np.isfinite(record.history["loss"]).all()
    assert f"{__name__}.Doubled.call" in converted
    # What is given to `tf.function` itself is converted whatever the rules say.
    held = [name for name in converted if name.startswith("shrink.") and "<locals>" not in name]
    assert held == []
