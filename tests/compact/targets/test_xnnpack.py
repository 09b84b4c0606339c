"""XNNPACK's conditions against the delegate itself: what LiteRT runs here, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

from shrink.compact.targets.view import read_view
from shrink.compact.targets.xnnpack import staying
from shrink.compact.targets.xnnpack_child import taken
from tests.compact.toys import Net, random_net

pytestmark = pytest.mark.filterwarnings("ignore:Statistics for quantized inputs:UserWarning")


def left_by_delegate(content: bytes) -> list[int]:
    interpreter = Interpreter(model_content=content, num_threads=1)
    count = len(interpreter._get_ops_details())
    interpreter.allocate_tensors()
    return sorted(set(range(count)) - taken(interpreter._get_ops_details()))


def convert(model: keras.Model, mode: str) -> bytes:
    converter: Any = tf.lite.TFLiteConverter.from_keras_model(model)
    if mode != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if mode == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if mode in ("int8", "int16x8"):
        rng = np.random.default_rng(0)
        shape = (1, *model.input_shape[1:])
        converter.representative_dataset = lambda: (
            [rng.normal(size=shape).astype(np.float32)] for _ in range(4)
        )
    if mode == "int16x8":
        name = "EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8"
        converter.target_spec.supported_ops = [getattr(tf.lite.OpsSet, name)]
    return bytes(converter.convert())


def small() -> keras.Model:
    """Operators that XNNPACK takes in float alone, in both, and never."""
    layers = keras.layers
    inputs = layers.Input((12, 12, 3))
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    x = layers.Add()([x, layers.DepthwiseConv2D(3, padding="same")(x)])
    x = layers.UpSampling2D(2)(layers.MaxPool2D()(x))  # nearest: never
    x = layers.LeakyReLU(0.1)(layers.AveragePooling2D(2)(x))  # the average in float alone
    x = layers.PReLU(shared_axes=[1, 2])(layers.Concatenate()([x, layers.Conv2D(8, 1)(x)]))
    x = layers.GlobalAveragePooling2D()(layers.Activation("sigmoid")(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


def many() -> keras.Model:
    """Operators of tensors' shapes, of arithmetic, and with parameters that decide."""
    inputs = keras.layers.Input((16, 16, 4))
    functions: list[Callable[[Any], Any]] = [
        lambda t: tf.nn.depth_to_space(tf.nn.space_to_depth(t, 2), 2),
        lambda t: tf.transpose(t, [0, 2, 1, 3]),
        lambda t: t[:, 2:10, 2:10, :],
        lambda t: t[:, ::2, ::2, :],
        lambda t: tf.split(t, 2, -1)[0],
        lambda t: tf.concat(tf.split(t, 4, 1), 2),
        lambda t: tf.pad(t, [[0, 0], [1, 1], [1, 1], [0, 0]]),
        lambda t: tf.pad(t, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="REFLECT"),
        lambda t: tf.maximum(t, 0.1),
        lambda t: tf.sqrt(tf.abs(t)),
        lambda t: tf.exp(t) / (tf.abs(t) + 1.0),
        lambda t: tf.reduce_mean(t, [3]),
        lambda t: tf.reduce_max(t, [1, 2]),
        lambda t: tf.reduce_sum(t, [1]),
        lambda t: tf.cast(tf.argmax(t, -1), tf.float32),
        lambda t: tf.stack([t, t], 1),
        lambda t: tf.expand_dims(t, 1),
        lambda t: tf.nn.gelu(t),
        lambda t: t * tf.nn.relu6(t + 3.0) / 6.0,
        lambda t: tf.squeeze(t[:, :1], 1),
        lambda t: tf.tile(t, [1, 2, 1, 1]),
        lambda t: tf.math.squared_difference(t, 1.0),
        lambda t: tf.concat([t, -t, t + 1.0, t - 1.0, t * 2.0, t * 3.0], -1),
        lambda t: tf.nn.leaky_relu(t, 0.001),
        lambda t: tf.matmul(
            tf.reshape(t, [-1, 16, 64]), tf.reshape(t, [-1, 16, 64]), transpose_b=True
        ),
        lambda t: tf.image.resize(t, [32, 32]),
    ]
    return keras.Model(inputs, [keras.layers.Lambda(one)(inputs) for one in functions])


@pytest.mark.parametrize("mode", ["float32", "dynamic", "int8"])
def test_staying_is_what_the_delegate_leaves(mode: str) -> None:
    content = convert(small(), mode)
    found = staying(read_view(content))
    assert list(found) == left_by_delegate(content)
    kinds = {read_view(content).nodes[place].kind for place in found}
    assert "RESIZE_NEAREST_NEIGHBOR" in kinds
    assert ("AVERAGE_POOL_2D" in kinds) == (mode == "int8")


@pytest.mark.parametrize("seed", range(4))
def test_staying_is_what_the_delegate_leaves_of_random_graphs(seed: int) -> None:
    content = random_net(seed)
    assert list(staying(read_view(content))) == left_by_delegate(content)


def test_staying_knows_where_scales_decide() -> None:
    net = Net((1, 8, 8, 4))
    near = net.conv(net.input, 4)
    far = net.same_scale(near, net.scale(near) / 300)
    again = net.same_scale(near, net.scale(near) / 100)
    content = net.file(near, far, again)
    assert staying(read_view(content)) == {1: "its scales are 300 apart"}
    assert left_by_delegate(content) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["float32", "float16", "dynamic", "int8"])
def test_staying_is_what_the_delegate_leaves_of_many_operators(mode: str) -> None:
    content = convert(many(), mode)
    found = list(staying(read_view(content)))
    assert found == left_by_delegate(content)
    assert len(found) > 8


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["float16", "int16x8"])
def test_staying_is_what_the_delegate_leaves_of_other_types(mode: str) -> None:
    content = convert(small(), mode)
    found = list(staying(read_view(content)))
    assert found == left_by_delegate(content)
    assert found
