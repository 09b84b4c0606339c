"""A small CNN for the 8x8 handwritten digits of scikit-learn.

Data: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998. Batch norm after every convolution: Ioffe and Szegedy, "Batch Normalization:
Accelerating Deep Network Training by Reducing Internal Covariate Shift", 2015.
"""

from __future__ import annotations

import tf_keras as keras

layers = keras.layers

# A hundred updates are a whole training on 1,400 digits: 0.99, the default, would leave the moving
# statistics a third of the way from where they started.
_MOMENTUM = 0.9


def build(*, width: float = 1.0, classes: int = 10) -> keras.Model:
    """Build three 3x3 convolutions with batch norm, a max pooling, and a maximum over the map.

    Input: (batch, 8, 8, 1) float32, values 0..16 as scikit-learn stores them.
    Output: (batch, classes) logits.
    Parameters, batch norm included: 104,058 at width 1, 26,690 at width 0.5.

    Args:
        width: multiplies the 48, 64 and 128 channels of the convolutions, rounded, at least 4.
        classes: number of logits.
    """
    inputs = layers.Input((8, 8, 1), name="picture")
    x = layers.Rescaling(1 / 16, name="rescale")(inputs)
    x = _conv(x, _channels(48, width), "conv1")
    x = _conv(x, _channels(64, width), "conv2")
    x = layers.MaxPooling2D(2, name="conv2_pool")(x)
    x = _conv(x, _channels(128, width), "conv3")
    x = layers.GlobalMaxPooling2D(name="pool")(x)
    outputs = layers.Dense(classes, name="logits")(x)
    return keras.Model(inputs, outputs, name="digits_cnn")


def _channels(full: int, width: float) -> int:
    return max(4, round(full * width))


def _conv(x: keras.KerasTensor, channels: int, name: str) -> keras.KerasTensor:
    x = layers.Conv2D(channels, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=_MOMENTUM, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)
