from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.quantization import edge_quantizer
from shrink.quantization.bias_correction import layer_errors, with_corrected_biases
from shrink.quantization.calibration import extreme_ranges
from shrink.tflite.convert import convert
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.interpreter import load
from shrink.tflite.model import read, values
from tests.stages.quantize.toys import batches, float_cnn, images


def quantized() -> bytes:
    ranges = extreme_ranges(float_cnn(), batches())
    return edge_quantizer.quantize(float_cnn(), "static", ranges=ranges)


def means(content: bytes, operator: int) -> np.ndarray:
    place = read(content)[0].operators[operator].outputs[0]
    (output,) = load(exposing(content, [place])).predict(images(100))
    return np.asarray(output.reshape(-1, output.shape[-1]).mean(axis=0))


def shifted(content: bytes, operator: int, codes: float) -> bytes:
    """Move every output of an operator by as many codes."""
    graph = read(content)[0]
    tensor = graph.tensors[graph.operators[operator].inputs[2]]
    bias = values(tensor)
    assert bias is not None
    step = graph.tensors[graph.operators[operator].outputs[0]].scales[0]
    moved = np.rint(bias + codes * step / np.asarray(tensor.scales))
    return with_constants(content, {(operator, 2): moved})


def test_with_corrected_biases_takes_back_a_shift() -> None:
    original = quantized()
    operators = [o.name for o in read(original)[0].operators]
    dense = operators.index("FULLY_CONNECTED")
    spoiled = shifted(original, dense, 8)
    graph = read(original)[0]
    output = graph.tensors[graph.operators[dense].outputs[0]]
    wanted = means(float_cnn(), dense)
    before = np.abs(means(spoiled, dense) - wanted).max()
    after = np.abs(means(with_corrected_biases(spoiled, float_cnn(), batches()), dense) - wanted)
    assert before > output.scales[0]
    assert after.max() < 0.5 * output.scales[0]


def test_with_corrected_biases_leaves_a_float_model_alone() -> None:
    assert with_corrected_biases(float_cnn(), float_cnn(), batches()) == float_cnn()


def test_with_corrected_biases_works_on_files_with_values_behind_the_flatbuffer() -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.layers.Input((8, 8, 3))
    x = keras.layers.Dense(1400, activation="relu", bias_initializer="uniform")(
        keras.layers.Flatten()(inputs)
    )
    content = convert(keras.Model(inputs, keras.layers.Dense(4)(x)), "float32").content
    ranges = extreme_ranges(content, batches())
    original = edge_quantizer.quantize(content, "static", ranges=ranges)
    assert len(original) > 256 * 1024
    dense = next(i for i, o in enumerate(read(original)[0].operators) if "FULLY" in o.name)
    spoiled = shifted(original, dense, 8)
    x = images(50, seed=1)
    wanted = load(content).predict(x)[0]
    errors = [
        float(np.mean((load(c).predict(x)[0] - wanted) ** 2))
        for c in (spoiled, with_corrected_biases(spoiled, content, batches()))
    ]
    assert errors[1] < 0.5 * errors[0]


def test_layer_errors_are_those_of_the_exposed_tensors() -> None:
    content, x = quantized(), images(20)
    errors = layer_errors(content, float_cnn(), {"picture": x})
    graph, original = read(content)[0], read(float_cnn())[0]
    number = next(i for i, o in enumerate(graph.operators) if o.name == "DEPTHWISE_CONV_2D")
    place = graph.operators[number].outputs[0]
    name = graph.tensors[place].name
    other = next(i for i, tensor in enumerate(original.tensors) if tensor.name == name)
    signal = load(exposing(float_cnn(), [other])).predict(x)[0].astype(np.float64)
    changed = load(exposing(content, [place])).predict(x)[0].astype(np.float64)
    snr = 10 * np.log10(np.sum(signal**2) / np.sum((signal - changed) ** 2))
    assert errors[number][0] == pytest.approx(snr, rel=1e-6)
    cosine = np.sum(signal * changed) / np.linalg.norm(signal) / np.linalg.norm(changed)
    assert errors[number][1] == pytest.approx(cosine)


def test_layer_errors_begin_where_a_model_was_changed() -> None:
    graph = read(float_cnn())[0]
    convolutions = [i for i, o in enumerate(graph.operators) if o.name == "CONV_2D"]
    bias = graph.tensors[graph.operators[convolutions[1]].inputs[2]]
    stored = values(bias)
    assert stored is not None
    shifted = with_constants(float_cnn(), {(convolutions[1], 2): stored + 1.0})
    errors = layer_errors(shifted, float_cnn(), {"picture": images(8)})
    assert errors[convolutions[0]][0] is None
    assert errors[convolutions[0]][1] == pytest.approx(1.0)
    snr = errors[convolutions[1]][0]
    assert snr is not None
    assert snr < 20
