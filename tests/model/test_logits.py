"""Logits, whatever a classifier ends in."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.errors import ModelError
from shrink.model.logits import logits_of


def classifier(ending: str) -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,))
    x = keras.layers.Dense(5, activation="relu")(inputs)
    if ending == "layer":
        return keras.Model(inputs, keras.layers.Softmax()(keras.layers.Dense(4)(x)))
    if ending == "activation":
        return keras.Model(inputs, keras.layers.Activation("softmax")(keras.layers.Dense(4)(x)))
    return keras.Model(inputs, keras.layers.Dense(4, activation=ending)(x))


@pytest.mark.parametrize("ending", ["linear", "softmax", "layer", "activation"])
def test_logits_of_gives_what_the_softmax_is_of(ending: str) -> None:
    model = classifier(ending)
    x = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    outputs = model(x).numpy()
    kernel, bias = [v.numpy() for v in model.trainable_variables[-2:]]
    hidden = np.maximum(x @ model.trainable_variables[0].numpy(), 0)
    with logits_of(model) as logits:
        np.testing.assert_allclose(logits(x).numpy(), hidden @ kernel + bias, rtol=1e-5, atol=1e-5)
        assert {v.ref() for v in logits.variables} == {v.ref() for v in model.variables}
    np.testing.assert_array_equal(model(x).numpy(), outputs)


def test_logits_of_refuses_other_activations() -> None:
    with pytest.raises(ModelError, match="tanh"), logits_of(classifier("tanh")):
        pass
