"""A small convolutional forecaster of time series: the next values from the last ones.

Convolutions over time with stride in place of pooling, as in Bai et al., "An Empirical Evaluation
of Generic Convolutional and Recurrent Networks for Sequence Modeling", 2018, cut down.
"""

from __future__ import annotations

import tf_keras as keras

layers = keras.layers


def build(
    *,
    width: float = 1.0,
    window: int = 72,
    columns: int = 1,
    horizon: int = 12,
    center: float = 50.0,
    scale: float = 10.0,
) -> keras.Model:
    """Build three convolutions over time, two of stride 2, and two dense layers.

    Input: (batch, window, columns) float32. Output: (batch, horizon) float32, in the input's unit.
    Parameters at width 1: 19,196.

    Args:
        width: multiplies the 16, 24, 24 and 32 channels and units, rounded, at least 4.
        window: rows that are seen.
        columns: numbers of a row.
        horizon: rows that are predicted.
        center: about the mean of the series, which the model subtracts and adds again.
        scale: about its standard deviation, likewise.
    """
    inputs = layers.Input((window, columns), name="window")
    x = layers.Rescaling(1 / scale, offset=-center / scale, name="normalize")(inputs)
    for number, (channels, stride) in enumerate(((16, 1), (24, 2), (24, 2)), start=1):
        x = layers.Conv1D(
            _channels(channels, width),
            5,
            strides=stride,
            padding="same",
            activation="relu",
            name=f"conv{number}",
        )(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(_channels(32, width), activation="relu", name="hidden")(x)
    x = layers.Dense(horizon, name="forecast")(x)
    outputs = layers.Rescaling(scale, offset=center, name="restore")(x)
    return keras.Model(inputs, outputs, name="forecaster")


def _channels(full: int, width: float) -> int:
    return max(4, round(full * width))
