"""Probabilities or logits, told from what a model computes, in Keras and in a .tflite file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.model.endings import kind_of, kind_of_values
from shrink.model.endings.computations import ranges_of_file, ranges_of_model
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.names import signature_names

L = keras.layers
STEPS, WIDTH = 5, 6


def softmax(x: Any, units: int = 4) -> Any:
    return L.Dense(units, activation="softmax")(x)


def sigmoid(x: Any, units: int = 4) -> Any:
    return L.Dense(units, activation="sigmoid")(x)


def nested(x: Any) -> Any:
    inputs = keras.Input(x.shape[1:])
    inner = keras.Model(inputs, L.Reshape((1, STEPS, 2))(softmax(inputs, 2)))
    return L.Permute((2, 1, 3))(inner(x))


def by_hand(x: Any) -> Any:
    exponentials = tf.exp(L.Dense(4)(x))
    return exponentials / tf.reduce_sum(exponentials, axis=-1, keepdims=True)


ENDINGS: dict[str, tuple[str | None, Callable[[Any], Any]]] = {
    "layer's activation": ("softmax", softmax),
    "function of tensorflow": ("softmax", lambda x: L.Dense(4, activation=tf.nn.softmax)(x)),
    "operation": ("softmax", lambda x: tf.nn.softmax(L.Dense(4)(x))),
    "softmax layer": ("softmax", lambda x: L.Softmax()(L.Dense(4)(x))),
    "activation layer": ("softmax", lambda x: L.Activation("softmax")(L.Dense(4)(x))),
    "nested": ("softmax", nested),
    "flattened": ("softmax", lambda x: L.Flatten()(softmax(L.Reshape((1, 30))(x)))),
    "time distributed": ("softmax", lambda x: L.TimeDistributed(L.Dense(4, "softmax"))(x)),
    "dropout": ("softmax", lambda x: L.Dropout(0.5)(softmax(x))),
    "ensemble": ("softmax", lambda x: L.Average()([softmax(x), softmax(x), softmax(x)])),
    "weighted": ("softmax", lambda x: 0.25 * softmax(x) + 0.75 * softmax(x)),
    "pooled": ("softmax", lambda x: L.GlobalAveragePooling1D()(softmax(x))),
    "divided by the sum": ("softmax", by_hand),
    "side by side": ("sigmoid", lambda x: L.Concatenate()([softmax(x, 2), softmax(x, 2)])),
    "another axis": ("sigmoid", lambda x: L.Softmax(axis=1)(L.Dense(4)(x))),
    "sigmoid operation": ("sigmoid", lambda x: tf.sigmoid(L.Dense(1)(x))),
    "sigmoid reshaped": ("sigmoid", lambda x: L.Reshape((STEPS,))(sigmoid(x, 1))),
    "hard sigmoid": ("sigmoid", lambda x: L.Dense(1, activation="hard_sigmoid")(x)),
    "shifted tanh": ("sigmoid", lambda x: (L.Dense(1, activation="tanh")(x) + 1) / 2),
    "product": ("sigmoid", lambda x: L.Multiply()([sigmoid(x), sigmoid(x)])),
    "largest": ("sigmoid", lambda x: L.Maximum()([sigmoid(x), sigmoid(x)])),
    "both": ("sigmoid", lambda x: L.Concatenate()([1 - (p := sigmoid(x, 1)), p])),
    "slice": ("sigmoid", lambda x: sigmoid(x)[:, 1:]),
    "largest of steps": ("sigmoid", lambda x: L.MaxPooling1D(2)(softmax(x))),
    "padded": ("sigmoid", lambda x: L.ZeroPadding1D(1)(sigmoid(x))),
    "clipped": ("sigmoid", lambda x: tf.clip_by_value(L.Dense(2)(x), 0.0, 1.0)),
    "linear": ("logits", lambda x: L.Dense(4)(x)),
    "relu": ("logits", lambda x: L.Dense(4, activation="relu")(x)),
    "residual": ("logits", lambda x: L.Add()([x, L.Dense(WIDTH)(softmax(x))])),
    "normalised": ("logits", lambda x: L.BatchNormalization()(L.Dense(4)(x))),
    "log of a softmax": ("logits", lambda x: tf.nn.log_softmax(L.Dense(4)(x))),
    "attention": ("logits", lambda x: L.MultiHeadAttention(2, 3)(x, x)),
    "tanh": (None, lambda x: L.Dense(4, activation="tanh")(x)),
    "lstm": (None, lambda x: L.LSTM(3)(x)),
    "gelu": (None, lambda x: L.Dense(4, activation="gelu")(x)),
    "exponential of a difference": (
        None,
        lambda x: tf.exp((z := L.Dense(4)(x)) - tf.reduce_logsumexp(z, -1, keepdims=True)),
    ),
}
"""What each ending is by its mathematics; None where bounds cannot tell, and values have to."""

IN_FILES = (
    *("operation", "nested", "ensemble", "side by side", "sigmoid reshaped", "hard sigmoid"),
    *("product", "both", "padded", "linear", "relu", "normalised"),
)

IN_LOOPS = (
    L.SimpleRNN(3, activation="softmax"),
    L.SimpleRNN(3, activation="sigmoid", return_sequences=True),
    L.Bidirectional(L.SimpleRNN(3, activation="sigmoid"), merge_mode="ave"),
    L.LSTM(3, activation="sigmoid"),
)


def model_of(*makers: Callable[[Any], Any]) -> keras.Model:
    """One output for each maker; weights are large enough for values to come near the bounds."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((STEPS, WIDTH))
    model = keras.Model(inputs, [make(inputs) for make in makers])
    model.set_weights([3 * weights for weights in model.get_weights()])
    return model


EXAMPLES = np.random.default_rng(1).normal(size=(40, STEPS, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def every_ending() -> keras.Model:
    return model_of(*(make for _, make in ENDINGS.values()))


def test_kind_of_tells_probabilities_from_logits(every_ending: keras.Model) -> None:
    found = dict(zip(ENDINGS, ranges_of_model(every_ending), strict=True))
    assert {name: kind_of(each) for name, each in found.items()} == {
        name: expected for name, (expected, _) in ENDINGS.items()
    }
    for (name, each), output in zip(found.items(), every_ending(EXAMPLES), strict=True):
        values = output.numpy()
        assert each.low - 1e-6 <= values.min() <= values.max() <= each.high + 1e-6, name
        if kind_of(each) == "softmax":
            np.testing.assert_allclose(values.sum(-1), 1.0, rtol=1e-5, err_msg=name)
        if kind_of(each) is None:
            own = "softmax" if "difference" in name else "logits"
            assert kind_of_values(values) == own, name


def test_kind_of_is_the_same_in_a_file() -> None:
    chosen = {name: ENDINGS[name] for name in IN_FILES}
    content = convert(model_of(*(make for _, make in chosen.values())), "float32").content
    ranges = ranges_of_file(content)
    found = [kind_of(ranges[detail.index]) for detail in load(content).output_details]
    assert found == [expected for expected, _ in chosen.values()]


def test_kind_of_follows_a_loop() -> None:
    model = model_of(*IN_LOOPS)
    for found, values in zip(ranges_of_model(model), model(EXAMPLES), strict=True):
        assert kind_of(found) == "sigmoid"
        assert found.low <= values.numpy().min() <= values.numpy().max() <= found.high


def test_kind_of_sees_int8_probabilities_of_many_classes() -> None:
    """Rounded to steps of 1/256 nearly all of 300 probabilities are 0: their sums say nothing."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([L.Input((8,)), L.Dense(300, activation="softmax")])
    rows = np.random.default_rng(0).normal(size=(9, 1, 8)).astype(np.float32)
    examples = [{signature_names(model.input_names)[0]: row} for row in rows]
    content = convert(model, "static_int8", examples, "int8", "int8").content
    (found,) = ranges_of_file(content).values()
    assert kind_of(found) == "softmax"


@pytest.mark.parametrize(
    ("values", "scale", "expected"),
    [
        ([[0.25, 0.75], [0.5, 0.5]], 0.0, "softmax"),
        ([[0.25, 0.7], [0.5, 0.5]], 0.0, None),
        ([[0.25, 0.74], [0.5, 0.5]], 1 / 64, "softmax"),
        ([[0.0] * 300], 1 / 256, None),
        ([[0.25], [1.0]], 0.0, None),
        ([[0.25], [1.1]], 0.0, "logits"),
        ([[-0.01, 1.01]], 0.0, "logits"),
        ([[-0.01, 1.0]], 0.02, "softmax"),
    ],
)
def test_kind_of_values_takes_what_is_proven(
    values: list[list[float]], scale: float, expected: str | None
) -> None:
    assert kind_of_values(np.array(values), scale) == expected
