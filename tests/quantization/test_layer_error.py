from __future__ import annotations

import numpy as np
import pytest

from shrink.quantization import edge_quantizer
from shrink.quantization.bias_correction import layer_errors
from shrink.quantization.ranges import extreme_ranges
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.flatbuffer import read, values
from shrink.tflite.interpreter import load
from tests.stages.quantize.toys import float_cnn, pictures


def quantized() -> bytes:
    ranges = extreme_ranges(float_cnn(), [{"picture": pictures(30)}])
    return edge_quantizer.quantize(float_cnn(), "static", ranges=ranges)


def test_layer_errors_are_those_of_the_exposed_tensors() -> None:
    content, x = quantized(), pictures(20)
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
    errors = layer_errors(shifted, float_cnn(), {"picture": pictures(8)})
    assert errors[convolutions[0]][0] is None
    assert errors[convolutions[0]][1] == pytest.approx(1.0)
    snr = errors[convolutions[1]][0]
    assert snr is not None
    assert snr < 20
