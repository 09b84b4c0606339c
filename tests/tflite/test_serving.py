"""Layers that branch on a tensor in Python, which Keras lets AutoGraph convert."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.tflite.arena import predict_in_micro
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from shrink.tflite.serving import for_conversion, is_loop, names_of

L = keras.layers


def pooled(shape: tuple[int, int, int], **options: object) -> keras.Model:
    inputs = L.Input(shape)
    x = L.Conv2D(3, 3, padding="same", name="conv")(inputs)
    x = L.AveragePooling2D(name="pool", **options)(x)
    return keras.Model(inputs, L.Dense(2, name="dense")(L.Flatten()(x)))


@pytest.mark.parametrize("size", [2, 3])
def test_for_conversion_writes_upsampling_of_steps_as_a_resize(size: int) -> None:
    inputs = L.Input((12, 3), name="signal")
    model = keras.Model(inputs, L.Conv1D(2, 3)(L.UpSampling1D(size, name="up")(inputs)))
    rewritten, (note,) = for_conversion(model)
    assert note.startswith("up: ")
    x = np.random.default_rng(0).normal(size=(4, 12, 3)).astype(np.float32)
    repeated = model.layers[-1](np.repeat(x, size, axis=1))
    np.testing.assert_allclose(rewritten(x), repeated, rtol=1e-5, atol=1e-6)
    content = convert(model, "float32").content
    assert "CONCATENATION" not in {operator.name for operator in read(content)[0].operators}
    np.testing.assert_allclose(predict_in_micro(content, x)[0], repeated, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((8, 8, 2), {"pool_size": 8}),
        ((4, 6, 2), {"pool_size": (4, 6)}),
        ((5, 5, 2), {"pool_size": 8, "padding": "same"}),
        ((6, 6, 2), {"pool_size": 6, "strides": 1}),
    ],
)
def test_for_conversion_writes_global_pools_as_means(
    shape: tuple[int, int, int], options: dict[str, object]
) -> None:
    model = pooled(shape, **options)
    rewritten, notes = for_conversion(model)
    x = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    assert [note.split(":")[0] for note in notes] == ["pool"]
    assert isinstance(rewritten.get_layer("pool"), L.GlobalAveragePooling2D)
    assert isinstance(model.get_layer("pool"), L.AveragePooling2D)
    np.testing.assert_allclose(rewritten(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((8, 8, 2), {"pool_size": 4}),
        ((6, 6, 2), {"pool_size": 4, "strides": 4}),
        ((8, 8, 2), {"pool_size": 8, "strides": 2, "padding": "same"}),
    ],
)
def test_for_conversion_returns_model_itself_when_no_pool_covers_its_input(
    shape: tuple[int, int, int], options: dict[str, object]
) -> None:
    model = pooled(shape, **options)
    rewritten, notes = for_conversion(model)
    assert rewritten is model
    assert notes == ()


def test_for_conversion_reaches_into_nested_models() -> None:
    inner = pooled((4, 4, 1), pool_size=4)
    left, right = L.Input((4, 4, 1)), L.Input((4, 4, 1))
    model = keras.Model([left, right], L.Add()([inner(left), inner(right)]))
    rewritten, notes = for_conversion(model)
    x = [np.random.default_rng(i).normal(size=(2, 4, 4, 1)).astype(np.float32) for i in range(2)]
    assert [note.split(":")[0] for note in notes] == [f"{inner.name}/pool"]
    np.testing.assert_allclose(rewritten(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_for_conversion_computes_in_float32_with_the_weights_of_a_mixed_model(policy: str) -> None:
    inputs = L.Input((6, 4))
    x = L.Bidirectional(L.GRU(3, dtype=policy), dtype=policy)(inputs)
    model = keras.Model(inputs, L.Dense(2, dtype="float32")(L.Dense(5, dtype=policy)(x)))
    rewritten, notes = for_conversion(model)
    x = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)
    assert ["float32" in note for note in notes] == [True]
    assert {layer.compute_dtype for layer in rewritten.layers} == {"float32"}
    for weight, expected in zip(rewritten.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)
    np.testing.assert_allclose(rewritten(x), model(x), atol=0.05)


def test_for_conversion_keeps_a_model_whose_layers_cannot_be_cloned() -> None:
    class Apply(keras.layers.Layer):
        def __init__(self, function: Callable[[tf.Tensor], tf.Tensor]) -> None:
            super().__init__()
            self.function = function

        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            return self.function(inputs)

    inputs = L.Input((4, 4, 1))
    model = keras.Model(inputs, L.AveragePooling2D(4)(Apply(tf.abs)(inputs)))
    rewritten, notes = for_conversion(model)
    assert rewritten is model
    assert ["cannot be cloned" in note for note in notes] == [True]


def test_for_conversion_takes_a_model_loaded_from_a_file(tmp_path: Path) -> None:
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(inputs))
    x = keras.layers.Flatten()(keras.layers.AveragePooling2D(6)(x))
    model = keras.Model(inputs, keras.layers.Dense(2)(x))
    model.save(tmp_path / "model.keras")
    # A loaded layer keeps its lists in TensorFlow's own wrappers.
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    rewritten, notes = for_conversion(loaded)
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 3)).astype(np.float32)
    np.testing.assert_allclose(rewritten(x), model(x), rtol=1e-5, atol=1e-6)
    assert len(notes) == 1


def sequences(layer: Any, *, masked: bool = False) -> keras.Model:
    inputs = L.Input((5, 3))
    x = L.Masking()(inputs) if masked else inputs
    return keras.Model(inputs, L.Dense(2)(layer(x)))


@pytest.mark.parametrize(
    ("layer", "masked"),
    [
        (L.GRU(4, name="loop"), False),
        (L.SimpleRNN(4, name="loop"), False),
        (L.LSTM(4, activation="relu", name="loop"), False),
        (L.LSTM(4, name="loop"), True),
        (L.Bidirectional(L.GRU(4), name="loop"), False),
    ],
)
def test_for_conversion_unrolls_loops_that_become_integers(layer: Any, masked: bool) -> None:
    model = sequences(layer, masked=masked)
    rewritten, notes = for_conversion(model, to_integers=True)
    x = np.random.default_rng(0).normal(size=(3, 5, 3)).astype(np.float32)
    assert [note.split(":")[0] for note in notes] == ["loop"]
    assert [names_of(each, is_loop) for each in (model, rewritten)] == [["loop"], []]
    np.testing.assert_allclose(rewritten(x), model(x), rtol=1e-5, atol=1e-6)


def test_for_conversion_leaves_lstm_which_is_one_operator() -> None:
    model = sequences(L.LSTM(4))
    assert for_conversion(model, to_integers=True) == (model, ())
    assert names_of(model, is_loop) == []


def test_for_conversion_leaves_convolutional_loops() -> None:
    inputs = L.Input((3, 4, 4, 2))
    model = keras.Model(inputs, L.Flatten()(L.ConvLSTM2D(2, 3, name="loop")(inputs)))
    assert for_conversion(model, to_integers=True) == (model, ())
    assert names_of(model, is_loop) == ["loop"]


def test_for_conversion_unrolls_lstms_with_states_that_are_given_or_returned() -> None:
    inputs = L.Input((5, 3))
    _, *states = L.LSTM(4, return_state=True, name="returns")(inputs)
    outputs = L.Dense(2)(L.LSTM(4, name="is_given")(inputs, initial_state=states))
    model = keras.Model(inputs, outputs)
    rewritten, _ = for_conversion(model, to_integers=True)
    x = np.random.default_rng(0).normal(size=(3, 5, 3)).astype(np.float32)
    assert names_of(model, is_loop) == ["returns", "is_given"]
    assert names_of(rewritten, is_loop) == []
    np.testing.assert_allclose(rewritten(x), model(x), rtol=1e-5, atol=1e-6)


def test_for_conversion_leaves_out_what_added_metrics_count() -> None:
    """A call would write their variables, and TFLite would store and run that."""
    model = pooled((4, 4, 2))
    plain = {operator.name for operator in read(convert(model, "float32").content)[0].operators}
    model.add_metric(model.output, name="mean", aggregation="mean")
    content = convert(model, "float32").content
    assert {operator.name for operator in read(content)[0].operators} == plain
    x = np.random.default_rng(0).normal(size=(3, 4, 4, 2)).astype(np.float32)
    assert np.allclose(load(content).predict(x)[0], model.predict(x, verbose=0), atol=1e-6)


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
