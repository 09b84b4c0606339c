"""Indices that a model takes as floats reach its table unchanged, whatever the scheme."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.errors import StageError
from shrink.stages.quantize.calibration import CalibrationExamples
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.stages.quantize.source import FloatModel
from shrink.stages.quantize.whole_numbers import truncated_inputs, with_exact_inputs
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


def test_an_int8_embedding_looks_up_the_rows_that_it_is_asked_for() -> None:
    source = embedded("float32")
    x = np.random.default_rng(0).integers(0, ROWS, (100, 6)).astype("float32")
    config, notes = with_exact_inputs(QuantizeConfig(), source)
    examples: Any = UnlabelledExamples(x)
    content = SCHEMES["static_wi8_ai8"](source, CalibrationExamples(examples, 100, 0), config)
    # Another row has nothing in common with the right one: the table is random.
    table, kernel, bias = source.model.get_weights()  # type: ignore[union-attr]
    wanted = table[x.astype(int)].reshape(100, -1) @ kernel + bias
    difference = load(content.content).predict(x)[0] - wanted
    assert np.abs(difference).max() < 0.05 * np.abs(wanted).max()
    assert "float32: words holds" in notes[0]
    assert config.output_type is None


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
