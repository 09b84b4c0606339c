"""Indices that a model takes as floats reach its table unchanged, whatever the scheme."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.run import truncated_inputs, with_exact_inputs
from shrink.stages.quantize.schemes import SCHEMES, mixed_artifact
from shrink.tflite.interpreter import load
from shrink.tflite.structure import read
from tests.unlabelled import UnlabelledExamples

L = keras.layers
ROWS = 600


def embedded(dtype: str) -> FloatModel:
    keras.utils.set_random_seed(0)
    inputs = L.Input((6,), dtype=dtype, name="words")
    x = L.Flatten()(L.Embedding(ROWS, 8)(inputs))
    return FloatModel(keras.Model(inputs, L.Dense(3)(x)))


def artifact(source: FloatModel, config: QuantizeConfig, x: np.ndarray) -> bytes:
    calibration = CalibrationExamples(UnlabelledExamples(x), 100, 0)  # type: ignore[arg-type]
    if config.scheme != "mixed":
        return SCHEMES[config.scheme](source, calibration, config).content
    context: Any = SimpleNamespace(phase=lambda name: None)
    return mixed_artifact(source, calibration, config, context)[0].content


@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [
        ("static_wi8_ai8", "float32"),
        pytest.param("static_wi8_ai8", "int32", marks=pytest.mark.slow),
        pytest.param("static_wi8_ai16", "int32", marks=pytest.mark.slow),
        pytest.param("mixed", "float32", marks=pytest.mark.slow),
        pytest.param("mixed", "int32", marks=pytest.mark.slow),
    ],
)
def test_an_integer_embedding_looks_up_the_rows_that_it_is_asked_for(
    scheme: Any, dtype: str
) -> None:
    source = embedded(dtype)
    x = np.random.default_rng(0).integers(0, ROWS, (100, 6)).astype(dtype)
    budget = 1_000_000 if scheme == "mixed" else None
    config, notes = with_exact_inputs(QuantizeConfig(scheme=scheme, file_bytes=budget), source)
    runner = load(artifact(source, config, x))
    # Another row has nothing in common with the right one: the table is random.
    table, kernel, bias = source.model.get_weights()  # type: ignore[union-attr]
    wanted = table[x.astype(int)].reshape(100, -1) @ kernel + bias
    difference = runner.predict(x.astype("float32"))[0] - wanted
    assert np.abs(difference).max() < 0.05 * np.abs(wanted).max()
    assert [detail.dtype for detail in runner.input_details] == [dtype]
    assert config.output_type is None
    assert [note for note in notes if "float32: words holds" in note] or dtype == "int32"


@pytest.mark.slow
def test_an_embedding_of_floats_has_no_form_with_16_bit_activations() -> None:
    source = embedded("float32")
    x = np.zeros((4, 6), np.float32)
    config, _ = with_exact_inputs(QuantizeConfig(scheme="static_wi8_ai16"), source)
    with pytest.raises(StageError, match="CAST has no version with 16-bit activations"):
        artifact(source, config, x)


def test_a_type_that_changes_indices_is_refused() -> None:
    with pytest.raises(StageError, match="would change the whole numbers"):
        with_exact_inputs(QuantizeConfig(input_type="int8"), embedded("float32"))


def test_inputs_that_are_integers_or_are_not_looked_up_with_keep_their_type() -> None:
    inputs = L.Input((6,))
    dense = FloatModel(keras.Model(inputs, L.Dense(3)(inputs)))
    for source in (embedded("int32"), dense):
        config = QuantizeConfig()
        assert with_exact_inputs(config, source) == (config, ())
        assert truncated_inputs(read(source.float32.content)[0]) == []
