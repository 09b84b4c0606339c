from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.graph.network import read_network
from shrink.quantization import edge_quantizer
from shrink.quantization.aware_model import (
    AwareModel,
    FakeQuantize,
    aware_model,
    rounded_kernel,
    stored_activations,
    with_quantized_kernel,
)
from shrink.quantization.calibration import least_squares_ranges
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from tests.stages.quantize.toys import batches, images

L = keras.layers


def residual(*, prelu: bool = True) -> keras.Model:
    """A block with batch norm, an addition, a nested model and maybe a layer of unknown kind."""
    keras.utils.set_random_seed(0)
    inputs = L.Input((8, 8, 3), name="picture")
    x = L.Conv2D(8, 3, padding="same", name="first")(inputs)
    x = first = L.ReLU(name="relu")(L.BatchNormalization(name="norm")(x))
    inner = L.Input((8, 8, 8))
    nested = keras.Model(inner, L.Conv2D(8, 3, padding="same", name="inner")(inner), name="nested")
    x = L.Activation("relu", name="sum_relu")(L.Add(name="sum")([nested(x), first]))
    if prelu:
        x = L.PReLU(shared_axes=[1, 2], alpha_initializer="uniform", name="prelu")(x)
    x = L.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(inputs, L.Dense(4, name="logits")(L.Flatten(name="flat")(x)))


def built(*, prelu: bool = True) -> AwareModel:
    return aware_model(residual(prelu=prelu), batches())


def test_stored_activations_leave_out_what_the_converter_fuses() -> None:
    network = read_network(residual())
    stored = set(stored_activations(network))
    names = {
        network.name(call.layer)
        for call in network.calls
        for ref in call.outputs
        if ref.index in stored
    }
    assert names == {"relu", "inner", "sum_relu", "prelu", "pool"}
    assert network.inputs[0][1].index in stored


def test_aware_model_computes_what_the_integer_artifact_computes() -> None:
    model, x = built(prelu=False), images(40, seed=3)
    content = convert(model.plain, "float32").content
    artifact = edge_quantizer.quantize(
        content, "static", ranges=least_squares_ranges(content, batches())
    )
    wanted = load(artifact).predict(x)[0]
    plain = model.plain(x).numpy()
    difference = np.abs(model.aware(x).numpy() - wanted).max()
    assert difference < 0.04 * np.abs(plain).max()
    assert np.abs(model.aware(x).numpy() - plain).max() > 1e-4


def test_aware_model_rounds_its_inputs() -> None:
    model, x = built(), images(40, seed=3)
    (layer,) = [one for one in model.aware.layers if one.name == "fake_quantize_0"]
    low, high = (
        min(a.min() for a in (one["picture"] for one in batches())),
        max(a.max() for a in (one["picture"] for one in batches())),
    )
    assert (layer.low, layer.high) == pytest.approx((low, high))
    assert model.aware.input_names == ["picture"]
    far = np.where(x > 0, 1e3, x).astype(np.float32)
    np.testing.assert_array_equal(model.aware(far), model.aware(np.minimum(far, 2 * high)))


def test_aware_model_names_the_layers_with_float_weights() -> None:
    skipped = built().skipped
    assert [one.layer for one in skipped] == ["prelu"]
    assert "PReLU" in skipped[0].reason


def test_trained_returns_the_weights_of_the_aware_model_in_a_plain_one() -> None:
    model = built()
    model.aware.get_layer("inner").kernel.assign(tf.ones((3, 3, 8, 8)))
    trained = model.trained()
    assert not any(isinstance(layer, FakeQuantize) for layer in trained.layers)
    np.testing.assert_array_equal(trained.get_layer("inner").kernel, np.ones((3, 3, 8, 8)))
    np.testing.assert_array_equal(
        trained.get_layer("first").kernel, model.aware.get_layer("first").kernel
    )


def test_source_gives_the_file_the_ranges_that_were_trained() -> None:
    model = built(prelu=False)
    for weight in model.aware.trainable_weights:
        weight.assign(weight * 1.3)
    source = model.source(batches())
    artifact = edge_quantizer.quantize(
        source.float32.content,
        "static",
        ranges={**least_squares_ranges(source.float32.content, batches()), **source.ranges},
    )
    graph = read(artifact)[0]
    simulated = [one for one in model.aware.layers if isinstance(one, FakeQuantize)]
    stored = [*graph.inputs, *(o.outputs[0] for o in graph.operators if o.name != "RESHAPE")][:-1]
    scales = [graph.tensors[index].scales[0] for index in stored]
    wanted = [(one.high - one.low) / 255 for one in simulated]
    np.testing.assert_allclose(sorted(scales), sorted(wanted), rtol=1e-6)


def test_fake_quantize_rounds_and_clips_and_passes_gradients_inside() -> None:
    x = tf.Variable([-5.0, -0.6, 0.0, 0.4, 100.2, 300.0])
    with tf.GradientTape() as tape:
        y = FakeQuantize(-1.0, 254.0)(x)
    np.testing.assert_allclose(y, [-1, -1, 0, 0, 100, 254])
    np.testing.assert_array_equal(tape.gradient(y, x), [0, 1, 1, 1, 1, 0])


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (-0.3, 1.7)])
def test_fake_quantize_rounds_values_between_two_codes_to_the_even_one(
    low: float, high: float
) -> None:
    scale = np.float32((high - low) / 255)
    codes = np.arange(np.rint(low / scale), np.rint(low / scale) + 255, dtype=np.float32)
    x = (codes + np.float32(0.5)) * scale
    x = x[np.float32(0.5) == np.abs(x / scale - codes)]  # those that float32 can tell
    assert len(x) > 100
    found = FakeQuantize(low, high)(tf.constant(x)).numpy() / scale
    np.testing.assert_allclose(found, np.rint(x / scale), atol=1e-4)
    np.testing.assert_array_equal(np.rint(found) % 2, 0)


def test_rounded_kernel_is_on_the_grid_of_each_channel() -> None:
    kernel = np.random.default_rng(0).normal(size=(3, 3, 4, 5)).astype(np.float32)
    kernel *= np.array([1, 10, 0.1, 3, 7], np.float32)
    rounded = rounded_kernel(tf.constant(kernel), (0, 1, 2)).numpy()
    scales = np.abs(kernel).max(axis=(0, 1, 2)) / 127
    codes = rounded / scales
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-3)
    assert np.abs(rounded - kernel).max(axis=(0, 1, 2)) == pytest.approx(scales / 2, rel=0.2)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (L.Dense(3), (5,)),
        (L.Conv1D(3, 3), (8, 2)),
        (L.Conv2D(3, 3), (8, 8, 2)),
        (L.Conv2DTranspose(3, 3), (8, 8, 2)),
        (L.DepthwiseConv2D(3), (8, 8, 2)),
    ],
)
def test_with_quantized_kernel_trains_the_float_kernel(
    layer: keras.layers.Layer, shape: tuple[int, ...]
) -> None:
    quantizing = with_quantized_kernel(type(layer)).from_config(layer.get_config())  # type: ignore[attr-defined]
    x = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
    plain = layer(x)
    quantizing(x)
    quantizing.set_weights(layer.get_weights())

    @tf.function
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            y = quantizing(x)
            loss = tf.reduce_sum(y**2)
        return y, tape.gradient(loss, quantizing.trainable_variables)

    y, gradients = step()
    assert [v.shape for v in quantizing.weights] == [v.shape for v in layer.weights]
    for variable, kept in zip(quantizing.get_weights(), layer.get_weights(), strict=True):
        np.testing.assert_array_equal(variable, kept)
    assert 0 < np.abs(y - plain).max() < 0.05 * np.abs(plain).max()
    assert all(np.abs(g).max() > 0 for g in gradients)
