"""DS-CNN, a depthwise separable CNN for keyword spotting, as in MLPerf Tiny.

Zhang et al., "Hello Edge: Keyword Spotting on Microcontrollers", 2017 (DS-CNN, size S), in the
version of Banbury et al., "MLPerf Tiny Benchmark", 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras as keras

layers = keras.layers

_BLOCKS = 4


def build(
    *,
    width: float = 1.0,
    input_shape: Sequence[int] = (49, 10, 1),
    classes: int = 12,
    stem_dropout: float = 0.2,
    head_dropout: float = 0.4,
    momentum: float = 0.99,
) -> keras.Model:
    """Build a 10x4 convolution of stride 2 and four depthwise separable blocks.

    Input: (batch, *input_shape) float32: frames x MFCC coefficients x 1.
    Output: (batch, classes) logits.
    Parameters at width 1, batch norm included: 24,908, as MLPerf Tiny's.

    Differs from MLPerf Tiny's in three ways without parameters: the mean over the map is a
    GlobalAveragePooling2D (int8 AVERAGE_POOL loses accuracy), the outputs are logits instead of a
    softmax, and weight decay is left to the optimizer.

    Args:
        width: multiplies the 64 channels of every layer, rounded, at least 4.
        input_shape: frames, coefficients and 1.
        classes: number of logits.
        stem_dropout: rate after the first convolution; 0 leaves the layer out.
        head_dropout: rate before the mean; 0 leaves the layer out.
        momentum: of the moving statistics of batch norm; a training of few updates needs less.
    """
    channels = max(4, round(64 * width))
    inputs = layers.Input(tuple(input_shape), name="mfcc")
    x = layers.Conv2D(channels, (10, 4), strides=2, padding="same", name="stem_conv")(inputs)
    x = _bn_relu(x, "stem", momentum)
    x = _dropout(x, stem_dropout, "stem_dropout")
    for block in range(1, _BLOCKS + 1):
        x = layers.DepthwiseConv2D(3, padding="same", name=f"block{block}_depthwise_conv")(x)
        x = _bn_relu(x, f"block{block}_depthwise", momentum)
        x = layers.Conv2D(channels, 1, padding="same", name=f"block{block}_pointwise_conv")(x)
        x = _bn_relu(x, f"block{block}_pointwise", momentum)
    x = _dropout(x, head_dropout, "head_dropout")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    outputs = layers.Dense(classes, name="logits")(x)
    return keras.Model(inputs, outputs, name="ds_cnn")


def _bn_relu(x: keras.KerasTensor, name: str, momentum: float) -> keras.KerasTensor:
    x = layers.BatchNormalization(momentum=momentum, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)


def _dropout(x: keras.KerasTensor, rate: float, name: str) -> keras.KerasTensor:
    return layers.Dropout(rate, name=name)(x) if rate else x


def build_tones(*, width: float = 0.5) -> keras.Model:
    """Build it for the five kinds of the recipe tones-keyword: 25 frames of 10 MFCCs, less dropout.

    Input: (batch, 25, 10, 1) float32. Output: (batch, 5) logits.

    Args:
        width: as in `build`.
    """
    return build(
        width=width,
        input_shape=(25, 10, 1),
        classes=5,
        stem_dropout=0.0,
        head_dropout=0.1,
        momentum=0.9,
    )
