"""Probabilities or logits, told from what a model computes, in Keras and in a .tflite file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.model.output_kind import kind_of_values, output_kinds, output_kinds_of_file
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
"""What each ending is by its mathematics; None for numbers that no operator bounds."""

ASKED = {"hard sigmoid", "shifted tanh", "product", "largest", "clipped"}
"""Probabilities that neither the last operator nor values between 0 and 1 prove."""
OTHER_PROBABILITIES = {"both": "softmax"}
"""[1 - p, p] adds up to 1, too."""


def model_of(*makers: Callable[[Any], Any]) -> keras.Model:
    """One output for each maker; weights are large enough for values to come near the bounds."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((STEPS, WIDTH))
    model = keras.Model(inputs, [make(inputs) for make in makers])
    model.set_weights([3 * weights for weights in model.get_weights()])
    return model


EXAMPLES = np.random.default_rng(1).normal(size=(40, STEPS, WIDTH)).astype(np.float32)


def check_kinds(found: Mapping[str, str | None], values: Mapping[str, np.ndarray]) -> None:
    """Check kinds by operators and values: probabilities and logits are never confused."""
    for name, kind in found.items():
        truth = ENDINGS[name][0] or ("softmax" if "difference" in name else "logits")
        resolved = kind or kind_of_values(values[name])
        if name in ASKED:
            assert resolved is None, name
        else:
            assert resolved == OTHER_PROBABILITIES.get(name, truth), name


def test_output_kinds_and_values_tell_probabilities_from_logits() -> None:
    model = model_of(*(make for _, make in ENDINGS.values()))
    values = [output.numpy() for output in model(EXAMPLES)]
    names = list(ENDINGS)
    found = dict(zip(names, output_kinds(model), strict=True))
    assert sum(kind is not None for kind in found.values()) >= 19
    check_kinds(found, dict(zip(names, values, strict=True)))


def test_output_kinds_of_a_file_and_its_values_tell_them_too() -> None:
    names = [name for name in ENDINGS if name not in ("attention", "lstm", "another axis")]
    content = convert(model_of(*(ENDINGS[name][1] for name in names)), "float32").content
    runner = load(content)
    kinds = output_kinds_of_file(content)
    values = runner.predict({runner.input_names[0]: EXAMPLES})
    found = [kinds[detail.index] for detail in runner.output_details]
    check_kinds(
        dict(zip(names, found, strict=True)),
        {name: np.asarray(value) for name, value in zip(names, values, strict=True)},
    )


def test_output_kinds_look_into_calls() -> None:
    @tf.function
    def ending(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(x)

    class Called(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return ending(x)

    inputs = keras.Input((4,))
    assert output_kinds(keras.Model(inputs, Called()(L.Dense(3)(inputs)))) == ["softmax"]


def test_output_kinds_of_an_application() -> None:
    for activation, kind in (("softmax", "softmax"), (None, "logits")):
        model = keras.applications.MobileNetV2(
            weights=None, input_shape=(32, 32, 3), classes=10, classifier_activation=activation
        )
        assert output_kinds(model) == [kind]


def test_output_kinds_see_int8_probabilities_of_many_classes() -> None:
    """Rounded to steps of 1/256 nearly all of 300 probabilities are 0: their sums say nothing."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([L.Input((8,)), L.Dense(300, activation="softmax")])
    rows = np.random.default_rng(0).normal(size=(9, 1, 8)).astype(np.float32)
    examples = [{signature_names(model.input_names)[0]: row} for row in rows]
    content = convert(model, "static_int8", examples, "int8", "int8").content
    assert list(output_kinds_of_file(content).values()) == ["softmax"]


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
