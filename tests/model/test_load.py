"""What loading keeps of a model, and models that are refused once they are loaded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, StageError
from shrink.model.load import build_model, check_micro, check_stateless, load_model
from shrink.tflite.arena import arena_of
from tests.tflite.toys import to_float32

L = keras.layers


def recurrent(layer: keras.layers.Layer) -> keras.Model:
    inputs = L.Input(batch_shape=(1, 5, 3))
    inner = keras.Model(inputs, layer(inputs), name="inner")
    again = L.Input(batch_shape=(1, 5, 3))
    return keras.Model(again, L.Dense(2)(inner(again)))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: L.LSTM(4, stateful=True, name="memory"),
        lambda: L.GRU(4, stateful=True, unroll=True, name="memory"),
        lambda: L.Bidirectional(L.SimpleRNN(4, stateful=True), name="memory"),
    ],
)
def test_layers_that_keep_state_between_examples_are_refused_by_name(layer: object) -> None:
    assert callable(layer)
    with pytest.raises(ModelError, match=r"memory|simple_rnn") as caught:
        check_stateless(recurrent(layer()), Path("model.keras"))
    assert "stateful=False" in str(caught.value.hint)


def test_layers_that_start_anew_are_not_refused() -> None:
    check_stateless(recurrent(L.LSTM(4)), Path("model.keras"))


@pytest.mark.parametrize(
    ("shape", "layer"),
    [
        ((4,), lambda: L.Dense(3, activation="gelu", name="wide")),
        ((4,), lambda: L.Activation("gelu", name="wide")),
        ((4, 4, 4, 1), lambda: L.Conv3D(2, 2, name="wide")),
        ((4, 4, 4, 1), lambda: L.Conv3DTranspose(2, 2, name="wide")),
        ((4,), lambda: L.Dense(3, activation="swish", name="wide")),
    ],
)
def test_layers_that_tflite_micro_has_no_kernel_for_are_refused_by_name(
    shape: tuple[int, ...], layer: Callable[[], Any]
) -> None:
    inputs = L.Input(shape)
    model = keras.Model(inputs, L.Flatten()(layer()(inputs)))
    found = re.search(r"builtin opcode '(\w+)'", arena_of(to_float32(model)).reason)
    if found is None:
        return check_micro(model, "quantize")
    with pytest.raises(
        StageError, match=f"wide: .*no kernel for {found[1]}, and quantize"
    ) as caught:
        check_micro(model, "quantize")
    assert f"replace the layer of {found[1]}" in str(caught.value.hint)


NUMBERS = np.random.default_rng(0).normal(5, 3, (40, 3)).astype("float32")
WHOLE = np.array([[4], [7], [9], [4]])
WORDS = np.array([["red car"], ["blue car"], ["red"]])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("layer", "values"),
    [
        (lambda: L.Discretization(num_bins=4), NUMBERS),
        (lambda: L.Discretization(num_bins=4, output_mode="multi_hot"), NUMBERS),
        (lambda: L.Discretization(bin_boundaries=[1.0, 4.0]), NUMBERS),
        (lambda: L.Normalization(), NUMBERS),
        (lambda: L.IntegerLookup(), WHOLE),
        (lambda: L.IntegerLookup(output_mode="tf_idf"), WHOLE),
        (lambda: L.StringLookup(), WORDS),
        (lambda: L.TextVectorization(output_sequence_length=3), WORDS),
        (lambda: L.TextVectorization(output_mode="tf_idf"), WORDS),
        (lambda: L.Hashing(5), WHOLE),
    ],
)
def test_a_loaded_model_keeps_what_its_layers_were_adapted_to(
    layer: Callable[[], keras.layers.Layer], values: np.ndarray, nested: bool, tmp_path: Path
) -> None:
    made = layer()
    if getattr(made, "input_bin_boundaries", None) is None and hasattr(made, "adapt"):
        made.adapt(values)
    dtype = tf.as_dtype(values.dtype if values.dtype.kind != "U" else "string")
    inputs = L.Input(values.shape[1:], dtype=dtype)
    model = keras.Model(inputs, made(inputs))
    if nested:
        again = L.Input(values.shape[1:], dtype=dtype)
        model = keras.Model(again, model(again))
    expected = np.asarray(model(tf.constant(values)))
    assert len(np.unique(expected)) > 1
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(np.asarray(loaded(tf.constant(values))), expected)


def test_build_model_names_the_line_of_a_builder_that_raises(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def build():\n    return 1 / 0\n")
    with pytest.raises(
        ModelError, match=r"build\(\) raised ZeroDivisionError: division by zero \(line 2\)"
    ):
        build_model(tmp_path / "m.py", "build", {})
