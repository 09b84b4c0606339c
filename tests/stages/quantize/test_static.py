from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shrink.stages.quantize import static
from shrink.stages.quantize.calibration import Batches, CalibrationExamples
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.ranges import Ranges, extreme_ranges
from shrink.stages.quantize.source import FloatModel
from shrink.tflite.interpreter import load
from tests.stages.quantize.test_aware_model import residual
from tests.stages.quantize.toys import pictures
from tests.unlabelled import UnlabelledExamples


def quantized(source: FloatModel) -> bytes:
    rows: Any = UnlabelledExamples(pictures(60))
    return static.static_int8(source, CalibrationExamples(rows, 60, 0), QuantizeConfig()).content


def assert_near(content: bytes, source: FloatModel) -> None:
    x = pictures(20, seed=2)
    wanted = load(source.float32.content).predict(x)[0]
    difference = load(content).predict(x)[0] - wanted
    assert np.abs(difference).max() < 0.06 * np.abs(wanted).max()


def test_static_int8_takes_the_converter_where_the_quantizer_gives_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def far_too_narrow(content: bytes, batches: Batches) -> Ranges:
        return {n: (a / 50, b / 50) for n, (a, b) in extreme_ranges(content, batches).items()}

    monkeypatch.setattr(static, "least_squares_ranges", far_too_narrow)
    source = FloatModel(residual(prelu=False))
    assert_near(quantized(source), source)
