"""Rewrites that integers need, by whoever quantizes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.mixed import mixed_artifact
from shrink.stages.quantize.schemes import static_int8
from shrink.tflite.interpreter import load
from tests.quantization.test_attention_masks import (
    CAUSAL,
    added_by_keras,
    calibrated_on,
    encoder,
    in_their_place,
    model_of,
    padded_texts,
    scores_of,
)


@pytest.mark.parametrize("masked", [added_by_keras, in_their_place])
def test_the_tflite_converter_bounds_masks_too(masked: Any) -> None:
    # ai-edge-quantizer knows no uint8, so that the converter has to do it.
    model, x = model_of(masked), scores_of()
    config = QuantizeConfig(scheme="static_wi8_ai8", input_type="uint8", output_type="uint8")
    made = static_int8(FloatModel(model), calibrated_on(x), config)
    (found,) = load(made.content).predict({"scores": x})
    difference = found - model.predict(x, verbose=0)
    assert np.abs(difference).max() < 0.12
    assert np.sqrt(np.mean(difference**2)) < 0.02
    assert found[:, ~CAUSAL].max() <= 1 / 255
    assert any("mask" in note for note in made.notes)


def test_mixed_precision_bounds_masks_too() -> None:
    model, x = encoder(), padded_texts()
    expected = model.predict(x, verbose=0)
    config = QuantizeConfig(
        scheme="mixed", activations="int8", input_type="float32", file_bytes=1_000_000
    )
    context: Any = SimpleNamespace(phase=lambda name: None)
    made, _ = mixed_artifact(FloatModel(model), calibrated_on(x), config, context)
    (found,) = load(made.content).predict({"ids": x})
    noise = np.sum((found - expected) ** 2) / np.sum(expected**2)
    assert 10 * np.log10(1 / noise) > 25
    assert any("mask" in note for note in made.notes)
