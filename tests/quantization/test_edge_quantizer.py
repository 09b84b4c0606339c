from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.quantization import edge_quantizer
from shrink.quantization.calibration import extreme_ranges
from shrink.tflite.arena import predict_in_micro
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from shrink.tflite.weights import float_operators
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


@pytest.mark.parametrize("read_twice", [False, True])
def test_quantize_static_makes_prelu_int8(read_twice: bool) -> None:
    """ai-edge-quantizer has no PRELU; the error stays that of 8 bits."""
    given = keras.Input((8, 8, 3), name="picture")
    x = keras.layers.Conv2D(6, 3)(given)
    slopes = keras.initializers.RandomUniform(-0.5, 0.5, seed=1)
    x = keras.layers.PReLU(slopes, shared_axes=[1, 2])(x)
    y = keras.layers.Conv2D(4, 3)(x)
    model = keras.Model(given, [y, x] if read_twice else y)
    content = convert(model, "float32").content
    pictures = np.random.default_rng(0).normal(size=(40, 8, 8, 3)).astype(np.float32)
    ranges = extreme_ranges(content, [{"picture": pictures}])
    found = edge_quantizer.quantize(content, "static", ranges=ranges)
    assert float_operators(found) == []
    (prelu,) = [o for o in read(found)[0].operators if o.name == "PRELU"]
    assert {read(found)[0].tensors[i].dtype for i in (*prelu.inputs, *prelu.outputs)} == {"INT8"}
    for exact, near in zip(
        load(content).predict(pictures), load(found).predict(pictures), strict=True
    ):
        assert np.sum((exact - near) ** 2) < 10**-3 * np.sum(exact**2)  # 30 dB
    micro = predict_in_micro(found, pictures[:3])
    steps = [detail.scale for detail in load(found).output_details]
    for one, other, step in zip(load(found).predict(pictures[:3]), micro, steps, strict=True):
        np.testing.assert_allclose(one, other, atol=2.01 * step)
