"""ResNet for small images, of 6n+2 layers: the MLPerf Tiny ResNet8 by default.

He et al., "Deep Residual Learning for Image Recognition", 2015, section 4.2 (6n+2 layers), with
the 1x1 projections, biases and initialisation of Banbury et al., "MLPerf Tiny Benchmark", 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras as keras

from shrink.base.errors import ModelError

layers = keras.layers


def build(
    *,
    width: float = 1.0,
    depth: int = 8,
    input_shape: Sequence[int] = (32, 32, 3),
    classes: int = 10,
) -> keras.Model:
    """Build a residual network of three stages; the later two halve height and width.

    Input: (batch, *input_shape) float32, raw pixels 0..255. Output: (batch, classes) logits.
    Parameters at width 1, batch norm included: depth 8 has 78,666 (as MLPerf Tiny's), 14 has
    176,554, 20 has 274,442; every further 6 layers add 97,888.

    Differs from MLPerf Tiny's ResNet8 in three ways without parameters: the mean over the image
    is a GlobalAveragePooling2D (int8 AVERAGE_POOL loses accuracy), the outputs are logits instead
    of a softmax, and weight decay is left to the optimizer.

    Args:
        width: multiplies the 16, 32 and 64 channels of the stages, rounded, at least 4.
        depth: 6n+2 with n >= 1 blocks per stage: 8, 14, 20, 26, 32, 38, 44, 50, 56, ...
        input_shape: height, width and channels of an image.
        classes: number of logits.

    Raises:
        ModelError: depth is not 6n+2.
    """
    blocks, rest = divmod(depth - 2, 6)
    if blocks < 1 or rest:
        raise ModelError(
            f"a ResNet cannot have depth {depth}: three stages of n blocks have 6n+2 layers",
            subject="depth",
            hint="set depth to one of 8, 14, 20, 26, 32, 38, 44, 50, 56",
        )
    inputs = layers.Input(tuple(input_shape), name="picture")
    x = _conv_bn(inputs, _channels(16, width), 1, "stem")
    x = layers.ReLU(name="stem_relu")(x)
    for stage, full in enumerate((16, 32, 64), 1):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            x = _block(x, _channels(full, width), stride, f"stage{stage}_block{block}")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    outputs = layers.Dense(classes, kernel_initializer="he_normal", name="logits")(x)
    return keras.Model(inputs, outputs, name=f"resnet{depth}")


def _channels(full: int, width: float) -> int:
    return max(4, round(full * width))


def _block(x: keras.KerasTensor, channels: int, stride: int, name: str) -> keras.KerasTensor:
    shortcut = x
    if stride > 1:
        shortcut = _conv(x, channels, 1, stride, f"{name}_shortcut")
    x = _conv_bn(x, channels, stride, f"{name}_1")
    x = layers.ReLU(name=f"{name}_1_relu")(x)
    x = _conv_bn(x, channels, 1, f"{name}_2")
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.ReLU(name=f"{name}_relu")(x)


def _conv_bn(x: keras.KerasTensor, channels: int, stride: int, name: str) -> keras.KerasTensor:
    x = _conv(x, channels, 3, stride, f"{name}_conv")
    return layers.BatchNormalization(name=f"{name}_bn")(x)


def _conv(
    x: keras.KerasTensor, channels: int, kernel: int, stride: int, name: str
) -> keras.KerasTensor:
    return layers.Conv2D(
        channels,
        kernel,
        strides=stride,
        padding="same",
        kernel_initializer="he_normal",
        name=name,
    )(x)
