"""Small networks of every kind that memory is planned for, with their inputs and loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tf_keras as keras

from shrink.base.types import Spec

layers = keras.layers
CLASSES = 10
IMAGE = (32, 32, 3)


def conv() -> Any:
    """Convolutions and pooling."""
    inputs = x = layers.Input(IMAGE)
    for channels in (32, 64, 64):
        x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(x) if channels == 64 else x
    return _classifier(inputs, x)


def depthwise() -> Any:
    """Depthwise-separable convolutions with batch normalisation."""
    inputs = layers.Input(IMAGE)
    x = _conv_bn(inputs, 16)
    for channels, stride in ((32, 1), (64, 2), (64, 1)):
        x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(x)
        x = _conv_bn(layers.ReLU()(layers.BatchNormalization()(x)), channels, kernel=1)
    return _classifier(inputs, x)


def residual() -> Any:
    """Residual blocks with projections."""
    inputs = layers.Input(IMAGE)
    x = _conv_bn(inputs, 16)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        branch = _conv_bn(x, channels, stride=stride)
        branch = layers.BatchNormalization()(layers.Conv2D(channels, 3, padding="same")(branch))
        x = layers.ReLU()(branch + layers.Conv2D(channels, 1, strides=stride)(x))
    return _classifier(inputs, x)


def dense_connected() -> Any:
    """Every layer sees all layers before it."""
    inputs = layers.Input(IMAGE)
    x = layers.Conv2D(16, 3, padding="same")(inputs)
    for block in range(2):
        for _ in range(3):
            new = layers.ReLU()(layers.BatchNormalization()(x))
            x = layers.Concatenate()([x, layers.Conv2D(12, 3, padding="same")(new)])
        x = layers.AveragePooling2D()(x) if block == 0 else x
    return _classifier(inputs, x)


def recurrent() -> Any:
    """An LSTM and a GRU over 32 time steps."""
    inputs = layers.Input((32, 32))
    x = layers.GRU(128)(layers.LSTM(128, return_sequences=True)(inputs))
    return keras.Model(inputs, layers.Dense(CLASSES)(x))


def lstm() -> Any:
    """An LSTM over 32 time steps."""
    inputs = layers.Input((32, 32))
    return keras.Model(inputs, layers.Dense(CLASSES)(layers.LSTM(128)(inputs)))


def gru() -> Any:
    """A GRU over 32 time steps."""
    inputs = layers.Input((32, 32))
    return keras.Model(inputs, layers.Dense(CLASSES)(layers.GRU(128)(inputs)))


def attention() -> Any:
    """Two transformer blocks over 64 tokens."""
    inputs = layers.Input((64,), dtype="int32")
    x = layers.Embedding(1000, 64)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
        hidden = layers.Dense(256, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(64)(hidden))
    return keras.Model(inputs, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


def autoencoder() -> Any:
    """Dense layers around a bottleneck; the weights outweigh the activations."""
    inputs = x = layers.Input((640,))
    for units in (512, 512, 64, 512, 512):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Dense(units)(x)))
    return keras.Model(inputs, layers.Dense(640)(x))


def two_tower() -> Any:
    """An image and a vector, joined at the end."""
    image, vector = layers.Input(IMAGE), layers.Input((256,))
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(image)
    x = layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")(x)
    y = layers.Dense(64, activation="relu")(layers.Dense(512, activation="relu")(vector))
    x = layers.Concatenate()([layers.GlobalAveragePooling2D()(x), y])
    return keras.Model([image, vector], layers.Dense(CLASSES)(x))


ARCHITECTURES: dict[str, Callable[[], Any]] = {
    make.__name__: make
    for make in (
        conv,
        depthwise,
        residual,
        dense_connected,
        recurrent,
        lstm,
        gru,
        attention,
        autoencoder,
        two_tower,
    )
}
REGRESSIONS = ("autoencoder",)


def _application(name: str) -> Callable[[], Any]:
    """Return what builds a network of `keras.applications` for images of 64×64."""
    return lambda: getattr(keras.applications, name)(
        input_shape=(64, 64, 3), weights=None, classes=CLASSES, classifier_activation=None
    )


APPLICATIONS = {name: _application(name) for name in ("MobileNetV2", "ResNet50", "DenseNet121")}
"""Networks of a realistic size."""


def build(name: str) -> Any:
    """Return a network by its name."""
    return (ARCHITECTURES | APPLICATIONS)[name]()


def specs(name: str, model: Any) -> tuple[Any, Any]:
    """Return the `Spec` of one example's input, or a tuple of them, and of its target."""
    inputs = tuple(Spec(tuple(t.shape[1:]), _stored(t)) for t in model.inputs)
    target = Spec((), np.dtype(np.int64))
    if name in REGRESSIONS:
        target = Spec(tuple(model.outputs[0].shape[1:]), np.dtype(np.float32))
    return (inputs[0] if len(inputs) == 1 else inputs), target


def _stored(tensor: Any) -> np.dtype[Any]:
    """Return the dtype that data sets have for an input: images are bytes."""
    return np.dtype(np.uint8 if tensor.shape[3:] == (3,) else tensor.dtype.as_numpy_dtype)


def loss_of(name: str) -> str:
    """Return the name of the loss."""
    return "mean_squared_error" if name in REGRESSIONS else "sparse_categorical_crossentropy"


def _conv_bn(x: Any, channels: int, *, kernel: int = 3, stride: int = 1) -> Any:
    x = layers.Conv2D(channels, kernel, strides=stride, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def _classifier(inputs: Any, x: Any) -> Any:
    return keras.Model(inputs, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))
