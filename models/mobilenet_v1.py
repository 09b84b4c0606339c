"""MobileNetV1 for visual wake words, as in MLPerf Tiny.

Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
Applications", 2017, table 1, in the version of Banbury et al., "MLPerf Tiny Benchmark", 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras as keras

layers = keras.layers

# Stride of the depthwise convolution and full number of output channels, block by block.
_BLOCKS = (
    (1, 64),
    (2, 128),
    (1, 128),
    (2, 256),
    (1, 256),
    (2, 512),
    *[(1, 512)] * 5,
    (2, 1024),
    (1, 1024),
)


def build(
    *,
    width: float = 0.25,
    input_shape: Sequence[int] = (96, 96, 3),
    classes: int = 2,
) -> keras.Model:
    """Build a 3x3 convolution of stride 2 and thirteen depthwise separable blocks.

    Input: (batch, *input_shape) float32, pixels scaled as the data gives them (MLPerf Tiny: 0..1).
    Output: (batch, classes) logits.
    Parameters, batch norm included: 221,794 at width 0.25, as MLPerf Tiny's.

    Differs from MLPerf Tiny's in three ways without parameters: the mean over the map is a
    GlobalAveragePooling2D (int8 AVERAGE_POOL loses accuracy), the outputs are logits instead of a
    softmax, and weight decay is left to the optimizer.

    Args:
        width: multiplies the 32 to 1024 channels of the layers, rounded, at least 4. MLPerf Tiny's
            is 0.25, the paper's 1.0.
        input_shape: height, width and channels of an image; the layers divide the sides by 32.
        classes: number of logits.
    """
    inputs = layers.Input(tuple(input_shape), name="picture")
    x = _conv(inputs, _channels(32, width), 3, 2, "stem")
    for block, (stride, full) in enumerate(_BLOCKS, 1):
        x = _depthwise(x, stride, f"block{block}_depthwise")
        x = _conv(x, _channels(full, width), 1, 1, f"block{block}_pointwise")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    outputs = layers.Dense(classes, name="logits")(x)
    return keras.Model(inputs, outputs, name="mobilenet_v1")


def _channels(full: int, width: float) -> int:
    return max(4, round(full * width))


def _conv(
    x: keras.KerasTensor, channels: int, kernel: int, stride: int, name: str
) -> keras.KerasTensor:
    x = layers.Conv2D(
        channels,
        kernel,
        strides=stride,
        padding="same",
        kernel_initializer="he_normal",
        name=f"{name}_conv",
    )(x)
    return _bn_relu(x, name)


def _depthwise(x: keras.KerasTensor, stride: int, name: str) -> keras.KerasTensor:
    x = layers.DepthwiseConv2D(
        3,
        strides=stride,
        padding="same",
        depthwise_initializer="he_normal",
        name=f"{name}_conv",
    )(x)
    return _bn_relu(x, name)


def _bn_relu(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    x = layers.BatchNormalization(name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)
