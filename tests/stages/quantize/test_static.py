from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shrink.quantization.aware_model import aware_model
from shrink.quantization.calibration import Batches, CalibrationExamples
from shrink.quantization.ranges import Ranges, extreme_ranges
from shrink.quantization.source import FloatModel
from shrink.stages.quantize import schemes as static
from shrink.stages.quantize.config import QuantizeConfig
from shrink.tflite.interpreter import load
from tests.quantization.test_aware_model import residual
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


def test_static_int8_after_aware_training_computes_what_was_trained() -> None:
    """The simulated forward pass is the reference: codes of the outputs, one by one."""
    network = residual(prelu=False)
    random = np.random.default_rng(0)
    for weight in network.trainable_weights:
        if len(weight.shape) > 1:  # outliers, so that rounding moves means
            values = weight.numpy()
            values.reshape(-1)[random.integers(0, values.size, values.shape[-1])] *= 8
            weight.assign(values)
    rows: Any = UnlabelledExamples(pictures(100))
    calibration = CalibrationExamples(rows, 100, 0)
    model = aware_model(network, calibration.batches())
    x = pictures(100, seed=3)
    simulated = model.aware(x).numpy()

    def share_of_equal_codes(**keys: Any) -> float:
        config = QuantizeConfig(**keys)
        content = static.static_int8(FloatModel(model.trained()), calibration, config).content
        runner = load(content)
        scale = runner.output_details[0].scale
        codes = np.rint(runner.predict(x)[0] / scale)
        return float(np.mean(codes == np.rint(simulated / scale)))

    assert share_of_equal_codes(aware=True, epochs=1) > 0.95
    assert share_of_equal_codes() < 0.9  # else the test would show nothing
