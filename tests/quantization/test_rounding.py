from __future__ import annotations

import numpy as np
import tf_keras as keras

from shrink.quantization import edge_quantizer
from shrink.quantization.operators import weighted_operators
from shrink.quantization.rounding import rounded_model
from shrink.tflite.flatbuffer import values
from shrink.tflite.interpreter import load
from shrink.tflite.structure import read
from tests.stages.quantize.toys import batches, cnn, float_cnn, pictures

FOUR = ("CONV_2D", "FULLY_CONNECTED")


def four_bits() -> dict[str, int]:
    return {o.name: 4 for o in weighted_operators(float_cnn()) if o.kind in FOUR}


def test_weighted_operators_have_rows_that_give_kerass_outputs() -> None:
    x = pictures(3)
    first = weighted_operators(float_cnn())[0]
    rows = first.rows(x, np.random.default_rng(0))
    outputs = np.maximum(rows @ first.matrix.T + first.bias, 0).reshape(3, 8, 8, 16)
    model = cnn()
    np.testing.assert_allclose(
        outputs, keras.Model(model.input, model.get_layer("first").output)(x), atol=1e-5
    )


def test_rounded_model_is_stored_as_the_same_numbers_of_4_bits() -> None:
    bits = four_bits()
    rounded = rounded_model(float_cnn(), bits, batches())
    stored = edge_quantizer.quantize(rounded, "dynamic", bits)
    wanted = {o.name: o for o in weighted_operators(rounded)}
    graph = read(stored)[0]
    seen = 0
    for operator in graph.operators:
        name = graph.tensors[operator.outputs[0]].name
        if name in bits:
            weights = graph.tensors[operator.inputs[1]]
            assert weights.dtype == "INT4"
            codes = values(weights)
            assert codes is not None
            real = codes.reshape(len(weights.scales), -1) * np.array(weights.scales)[:, None]
            np.testing.assert_allclose(real, wanted[name].matrix, rtol=1e-5, atol=1e-7)
            seen += 1
    assert seen == len(bits)


def test_rounded_model_halves_the_error_of_rounding_to_nearest() -> None:
    bits, x = four_bits(), pictures(200, seed=1)
    truth = load(float_cnn()).predict(x)[0]
    plain = edge_quantizer.quantize(float_cnn(), "weight_only", bits)
    ours = edge_quantizer.quantize(rounded_model(float_cnn(), bits, batches()), "weight_only", bits)
    errors = [float(np.mean((load(c).predict(x)[0] - truth) ** 2)) for c in (ours, plain)]
    assert errors[0] < 0.5 * errors[1]


def test_rounded_model_leaves_a_model_alone_when_nothing_gets_4_bits() -> None:
    assert rounded_model(float_cnn(), {}, batches()) is float_cnn()
