"""Ranges in front of softmax and sigmoid: what the probabilities lose with and without them."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.quantization.probabilities import saturated_logits
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import static_int8
from shrink.tflite.interpreter import load
from tests.quantization.test_attention_masks import calibrated_on

L = keras.layers
INT8 = QuantizeConfig(scheme="static_wi8_ai8")


def wide_logits(activation: str, reshaped: bool) -> keras.Model:
    """Return a model whose logits reach from about -110 to 10, the largest two of a row alike."""
    keras.utils.set_random_seed(0)
    inputs, logits = L.Input((6,), name="x"), L.Dense(8)
    h = logits(inputs)
    if reshaped:
        h = L.Flatten()(L.Reshape((2, 4))(h))
    kernel = np.random.default_rng(2).normal(size=(6, 8))
    kernel[:, 4:] *= 20
    logits.set_weights([kernel, np.where(np.arange(8) < 4, 0.0, -60.0)])
    return keras.Model(inputs, L.Activation(activation)(h))


def examples(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 6)).astype(np.float32)


@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_probabilities_of_wide_logits_keep_their_steps(activation: str, reshaped: bool) -> None:
    model, x, other = wide_logits(activation, reshaped), examples(200, 0), examples(300, 1)
    wanted = model.predict(other, verbose=0)
    source = FloatModel(model)

    def error() -> float:
        content = static_int8(source, calibrated_on(x), INT8).content
        return float(np.sqrt(np.mean((load(content).predict({"x": other})[0] - wanted) ** 2)))

    before = error()
    (found,) = saturated_logits(source.float32.content, [{"x": x}])
    assert found.extremes[0] < -90
    assert -40 < found.low < -3
    source.bounds = dict.fromkeys(found.names, (found.low, found.high))
    assert error() < 0.5 * before


def test_narrow_logits_keep_their_range() -> None:
    keras.utils.set_random_seed(0)
    inputs = L.Input((6,), name="x")
    model = keras.Model(inputs, L.Dense(8, activation="softmax")(inputs))
    assert saturated_logits(FloatModel(model).float32.content, [{"x": examples(100, 0)}]) == []


def test_logits_that_something_else_reads_keep_their_range() -> None:
    model = wide_logits("sigmoid", reshaped=False)
    logits = model.layers[1].output
    both = keras.Model(model.input, [model.output, logits])
    gated = keras.Model(model.input, L.Multiply()([model.output, logits]))
    for read_twice in (both, gated):
        content = FloatModel(read_twice).float32.content
        assert saturated_logits(content, [{"x": examples(100, 0)}]) == []
