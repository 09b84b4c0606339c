"""Layers that branch on a tensor in Python, which Keras lets AutoGraph convert."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load


class Doubled(keras.layers.Layer):
    """Doubles its inputs where they sum to something positive."""

    def call(self, inputs: Any) -> Any:
        if tf.reduce_sum(inputs) > 0:
            return 2.0 * inputs
        return inputs


def test_convert_keeps_both_branches() -> None:
    inputs = keras.layers.Input((3,), name="x")
    model = keras.Model(inputs, Doubled()(inputs))
    runner = load(convert(model, "float32").content)
    for sign in (1, -1):
        x = sign * np.ones((1, 3), np.float32)
        (found,) = runner.predict({"x": x})
        np.testing.assert_array_equal(found, np.maximum(2 * x, x))
