"""A small single-stage detector, anchor-free as FCOS: one box and ten scores for each cell.

Tian et al., "FCOS: Fully Convolutional One-Stage Object Detection", ICCV 2019. The boxes are
decoded by the model itself, and stand in one output with the scores, as exports of the YOLO family
have it.
"""

from __future__ import annotations

import math

import numpy as np
import tf_keras as keras

layers = keras.layers

STRIDE = 8
"""Pixels between the cells of the head."""
_MOMENTUM = 0.9
_PRIOR = 0.01
"""Score of every class before training (RetinaNet, section 4.1): most cells hold nothing."""


def build(*, width: float = 1.0, classes: int = 10, size: int = 96) -> keras.Model:
    """Build a backbone of 3x3 convolutions down to an eighth, and a head of two branches.

    Input: (batch, size, size, 1), values 0..255.
    Output: (batch, (size / 8)^2, 4 + classes): left, top, right and bottom edge in pixels, and the
    probability of each class, cell by cell.

    Args:
        width: multiplies the 16, 32, 48 and 64 channels of the convolutions, rounded, at least 4.
        classes: number of scores.
        size: height and width of the input, a multiple of 8.
    """
    inputs = layers.Input((size, size, 1), name="picture")
    x = layers.Rescaling(1 / 255, name="rescale")(inputs)
    for index, (channels, stride) in enumerate([(16, 2), (32, 2), (48, 2), (64, 1)]):
        x = _conv(x, _channels(channels, width), stride, f"conv{index + 1}")
    boxes = _boxes(_conv(x, _channels(32, width), 1, "box"), size)
    scores = _scores(_conv(x, _channels(48, width), 1, "class"), size, classes)
    outputs = layers.Concatenate(axis=-1, name="detections")([boxes, scores])
    return keras.Model(inputs, outputs, name="digits_detector")


def _boxes(x: keras.KerasTensor, size: int) -> keras.KerasTensor:
    """Distances from each cell's centre to the four edges, and from these the edges."""
    cells = size // STRIDE
    # A stride each way at first: a distance that begins at 0 has no gradient.
    distances = layers.Conv2D(
        4, 3, padding="same", activation="relu", bias_initializer="ones", name="distances"
    )(x)
    flat = layers.Reshape((cells * cells, 4), name="distances_flat")(distances)
    centres = (np.arange(cells) + 0.5) * STRIDE
    y, x_ = np.meshgrid(centres, centres, indexing="ij")
    places = np.stack([x_, y, x_, y], axis=-1).reshape(-1, 4)
    outwards = [-STRIDE, -STRIDE, STRIDE, STRIDE]
    return layers.Rescaling(outwards, places.tolist(), name="boxes")(flat)


def _scores(x: keras.KerasTensor, size: int, classes: int) -> keras.KerasTensor:
    cells = size // STRIDE
    bias = keras.initializers.Constant(-math.log((1 - _PRIOR) / _PRIOR))
    logits = layers.Conv2D(classes, 3, padding="same", bias_initializer=bias, name="class_logits")(
        x
    )
    flat = layers.Reshape((cells * cells, classes), name="class_flat")(logits)
    return layers.Activation("sigmoid", name="scores")(flat)


def _channels(full: int, width: float) -> int:
    return max(4, round(full * width))


def _conv(x: keras.KerasTensor, channels: int, stride: int, name: str) -> keras.KerasTensor:
    x = layers.Conv2D(
        channels, 3, strides=stride, padding="same", use_bias=False, name=f"{name}_conv"
    )(x)
    x = layers.BatchNormalization(momentum=_MOMENTUM, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)
