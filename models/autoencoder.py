"""Fully connected autoencoder for anomaly detection in machine sounds, as in MLPerf Tiny.

Koizumi et al., "ToyADMOS: A Dataset of Miniature-Machine Operating Sounds for Anomalous Sound
Detection", 2019, and the DCASE 2020 task 2 baseline, in the version of Banbury et al., "MLPerf
Tiny Benchmark", 2021.
"""

from __future__ import annotations

import tf_keras as keras

layers = keras.layers

_DEPTH = 4


def build(
    *,
    width: float = 1.0,
    features: int = 640,
    bottleneck: int = 8,
    momentum: float = 0.99,
) -> keras.Model:
    """Build four hidden layers of 128, a bottleneck of 8, and four hidden layers of 128.

    Input: (batch, features) float32, log-mel energies (MLPerf Tiny: 5 frames of 128 bands).
    Output: (batch, features) float32, their reconstruction; its mean squared error is the anomaly
    score. Parameters at width 1, batch norm included: 269,992, as MLPerf Tiny's.

    Args:
        width: multiplies the 128 units of the hidden layers, rounded, at least 4. The bottleneck
            is the size of the code and is not scaled.
        features: number of values of an example.
        bottleneck: number of values of the code.
        momentum: of the moving statistics of batch norm; a training of few updates needs less.
    """
    hidden = max(4, round(128 * width))
    inputs = layers.Input((features,), name="features")
    x = inputs
    for index in range(1, _DEPTH + 1):
        x = _dense(x, hidden, f"encoder{index}", momentum)
    x = _dense(x, bottleneck, "bottleneck", momentum)
    for index in range(1, _DEPTH + 1):
        x = _dense(x, hidden, f"decoder{index}", momentum)
    outputs = layers.Dense(features, name="reconstruction")(x)
    return keras.Model(inputs, outputs, name="autoencoder")


def _dense(x: keras.KerasTensor, units: int, name: str, momentum: float) -> keras.KerasTensor:
    x = layers.Dense(units, name=f"{name}_dense")(x)
    x = layers.BatchNormalization(momentum=momentum, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)


def build_machine(*, width: float = 0.5) -> keras.Model:
    """Build it for the recipe machine-anomaly: 8 frames of 32 log-mel energies in a row.

    Input and output: (batch, 256) float32. Batch norm follows trainings of few updates.

    Args:
        width: as in `build`.
    """
    return build(width=width, features=256, bottleneck=8, momentum=0.9)
