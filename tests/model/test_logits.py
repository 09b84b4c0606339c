"""Logits, whatever a classifier ends in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.model.logits import logits_of, takes_logarithm

L = keras.layers
RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 6)).astype(np.float32)


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


ENDINGS = {
    "function": lambda x: L.Dense(4, activation=tf.nn.softmax)(x),
    "operation": lambda x: tf.nn.softmax(L.Dense(4)(x)),
    "reshape": lambda x: L.Reshape((4,))(L.Dense(4, activation="softmax")(x)),
    "operation reshaped": lambda x: tf.reshape(tf.nn.softmax(L.Dense(4)(x)), (-1, 1, 4)),
    "time distributed": lambda x: L.TimeDistributed(L.Dense(4, "softmax"))(L.Reshape((1, 5))(x)),
    "nested": lambda x: L.Reshape((1, 4))(inner_softmax(L.Dense(4)(x))),
    "another axis": lambda x: L.Permute((2, 1))(
        L.Softmax(axis=1)(L.Reshape((4, 1))(L.Dense(4)(x)))
    ),
}


def inner_softmax(x: Any) -> Any:
    inputs = keras.Input(x.shape[1:])
    return keras.Model(inputs, L.Softmax()(inputs))(x)


@pytest.mark.parametrize("ending", ENDINGS)
def test_logits_of_leaves_out_a_last_softmax_and_takes_the_logarithm_of_others(ending: str) -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,))
    model = keras.Model(inputs, ENDINGS[ending](L.Dense(5, activation="relu")(inputs)))
    # A softmax of such logits is 0 and 1 to the last bit: nothing could be told from it.
    model.set_weights([40 * weights for weights in model.get_weights()])
    first, _, kernel, _ = model.get_weights()
    before = model(X).numpy()
    expected = np.maximum(X @ first, 0) @ kernel
    with logits_of(model, from_logits=(False,)) as logits:
        found = logits(X).numpy()
        assert takes_logarithm(logits) == (ending not in ("function", "operation"))
        if not takes_logarithm(logits):
            np.testing.assert_allclose(found.reshape(7, 4), expected, rtol=1e-4, atol=1e-3)
    assert found.shape == before.shape
    np.testing.assert_allclose(tf.nn.softmax(found), before, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(model(X).numpy(), before)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_logits_of_takes_the_logarithm_of_an_average(kind: str) -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,))
    heads = [L.Dense(4, activation=kind)(inputs) for _ in range(2)]
    model = keras.Model(inputs, L.Average()(heads))
    p = model(X).numpy().astype(np.float64)
    expected = np.log(p) if kind == "softmax" else np.log(p) - np.log(1 - p)
    with logits_of(model, (kind,), from_logits=(False,)) as logits:
        np.testing.assert_allclose(logits(X).numpy(), expected, rtol=1e-4, atol=1e-5)
        assert takes_logarithm(logits)
        assert {v.ref() for v in logits.variables} == {v.ref() for v in model.variables}
    with pytest.raises(ModelError), logits_of(model, (kind,), exact=True):
        pass


def test_logits_of_changes_no_other_output() -> None:
    """The second output is computed from the probabilities: the softmax has to stay."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,))
    probabilities = L.Dense(4, activation="softmax")(inputs)
    model = keras.Model(inputs, [probabilities, L.Dense(1)(probabilities)])
    p, second = (each.numpy() for each in model(X))
    with logits_of(model, ("softmax",), ()) as logits:
        found, same = logits(X)
    np.testing.assert_allclose(tf.nn.softmax(found), p, rtol=1e-5)
    np.testing.assert_array_equal(same.numpy(), second)


def test_logits_of_leaves_a_cell_of_sigmoids_alone() -> None:
    """The activation of an LSTM is not what its outputs come out of."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3, 2))
    model = keras.Model(inputs, L.LSTM(2, activation="sigmoid")(inputs))
    x = RNG.normal(size=(5, 3, 2)).astype(np.float32)
    p = model(x).numpy().astype(np.float64)
    with logits_of(model, ("sigmoid",), from_logits=(False,)) as logits:
        found = logits(x).numpy()
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), p, rtol=1e-5)


def test_logits_of_refuses_dropout_of_probabilities() -> None:
    inputs = keras.Input((6,))
    model = keras.Model(inputs, L.Dropout(0.5)(L.Dense(4, activation="softmax")(inputs)))
    with pytest.raises(ModelError, match="Dropout after its softmax"), logits_of(model):
        pass


def test_logits_of_refuses_other_activations() -> None:
    with pytest.raises(ModelError, match="tanh"), logits_of(classifier("tanh")):
        pass
