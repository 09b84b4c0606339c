from __future__ import annotations

import numpy as np
import pytest

from shrink.quantization import edge_quantizer
from shrink.quantization.calibration import extreme_ranges
from shrink.tflite.flatbuffer import float_operators
from shrink.tflite.interpreter import load
from tests.stages.quantize.toys import float_cnn, images


def examples(count: int = 30) -> list[dict[str, np.ndarray]]:
    return [{"picture": images(count)}]


@pytest.mark.parametrize(("bits", "tolerance"), [(8, 0.03), (16, 0.01)])
def test_quantize_static_stays_near_the_float_outputs(bits: int, tolerance: float) -> None:
    ranges = extreme_ranges(float_cnn(), examples())
    content = edge_quantizer.quantize(
        float_cnn(),
        "static",
        ranges=ranges,
        activation_bits=bits,  # type: ignore[arg-type]
    )
    x = images(20)
    np.testing.assert_allclose(
        load(content).predict(x)[0], load(float_cnn()).predict(x)[0], atol=tolerance
    )
    assert float_operators(content) == []


def test_quantize_static_has_float_borders_when_asked() -> None:
    ranges = extreme_ranges(float_cnn(), examples())
    content = edge_quantizer.quantize(
        float_cnn(), "static", ranges=ranges, float_borders=(True, False)
    )
    runner = load(content)
    assert runner.input_details[0].dtype == np.float32
    assert runner.output_details[0].dtype == np.int8


def test_to_float16_keeps_outputs_to_half_precision() -> None:
    content, x = edge_quantizer.to_float16(float_cnn()), images(5)
    assert len(content) < len(float_cnn())
    np.testing.assert_allclose(
        load(content).predict(x)[0], load(float_cnn()).predict(x)[0], atol=2e-3
    )
