"""A small U-Net: a class for every pixel.

Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015, with
padded convolutions, one to a level on the way down and up, batch norm (Ioffe and Szegedy 2015),
and nearest-neighbour upsampling in place of transposed convolutions (Odena et al. 2016).
"""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras as keras

layers = keras.layers

_MOMENTUM = 0.9


def build(
    *,
    width: float = 1.0,
    input_shape: Sequence[int] = (48, 48, 1),
    classes: int = 11,
    channels: Sequence[int] = (16, 24, 32, 48),
) -> keras.Model:
    """Build as many levels as there are `channels`, each at half the height and width.

    Input: (batch, *input_shape) float32, values 0..255; height and width are multiples of
    2 ** (levels - 1). Output: (batch, height, width, classes) logits.
    Parameters at width 1, batch norm included: 87,115.

    Args:
        width: multiplies the channels of every level, rounded, at least 4.
        input_shape: height, width and channels of an image.
        classes: of a pixel, background included.
        channels: of each level, from full resolution downwards.
    """
    widths = [max(4, round(count * width)) for count in channels]
    inputs = layers.Input(tuple(input_shape), name="image")
    x = layers.Rescaling(1 / 255, name="rescale")(inputs)
    skips = []
    for level, count in enumerate(widths[:-1]):
        x = _conv(x, count, f"down{level}")
        skips.append(x)
        x = layers.MaxPooling2D(2, name=f"down{level}_pool")(x)
    x = _conv(x, widths[-1], "bottom1")
    x = _conv(x, widths[-1], "bottom2")
    for level in reversed(range(len(skips))):
        x = layers.UpSampling2D(2, name=f"up{level}_grow")(x)
        x = layers.Concatenate(name=f"up{level}_join")([x, skips[level]])
        x = _conv(x, widths[level], f"up{level}")
    outputs = layers.Conv2D(classes, 1, name="logits")(x)
    return keras.Model(inputs, outputs, name="unet")


def _conv(x: keras.KerasTensor, channels: int, name: str) -> keras.KerasTensor:
    x = layers.Conv2D(channels, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=_MOMENTUM, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)
