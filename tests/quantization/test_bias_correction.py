from __future__ import annotations

import numpy as np
import tf_keras as keras

from shrink.quantization import edge_quantizer
from shrink.quantization.bias_correction import with_corrected_biases
from shrink.quantization.ranges import extreme_ranges
from shrink.tflite.convert import convert
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.flatbuffer import read, values
from shrink.tflite.interpreter import load
from tests.stages.quantize.toys import batches, float_cnn, pictures


def quantized() -> bytes:
    ranges = extreme_ranges(float_cnn(), batches())
    return edge_quantizer.quantize(float_cnn(), "static", ranges=ranges)


def means(content: bytes, operator: int) -> np.ndarray:
    place = read(content)[0].operators[operator].outputs[0]
    (output,) = load(exposing(content, [place])).predict(pictures(100))
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


def test_with_corrected_biases_brings_outputs_nearer_to_the_float_ones() -> None:
    x = pictures(200, seed=1)
    place = read(float_cnn())[0].operators[-2].outputs[0]  # before the softmax
    wanted = load(exposing(float_cnn(), [place])).predict(x)[0]
    spoiled = shifted(quantized(), 1, 8)
    errors = [
        float(np.mean((load(exposing(c, [place])).predict(x)[0] - wanted) ** 2))
        for c in (spoiled, with_corrected_biases(spoiled, float_cnn(), batches()))
    ]
    assert errors[1] < 0.5 * errors[0]


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
    x = pictures(50, seed=1)
    wanted = load(content).predict(x)[0]
    errors = [
        float(np.mean((load(c).predict(x)[0] - wanted) ** 2))
        for c in (spoiled, with_corrected_biases(spoiled, content, batches()))
    ]
    assert errors[1] < 0.5 * errors[0]
