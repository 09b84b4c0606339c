"""Models whose int8 files are larger than 200 KB, for `bench_decode`."""

from __future__ import annotations

import tf_keras as keras

from models import autoencoder as dense
from models import digits_cnn, resnet


def wide_digits() -> keras.Model:
    """Build a digits network of 1.6 times the width: 263,000 parameters."""
    return digits_cnn.build(width=1.6)


def wide_cifar() -> keras.Model:
    """Build ResNet8 of twice the width: 310,000 parameters."""
    return resnet.build(width=2.0)


def autoencoder() -> keras.Model:
    """Build MLPerf Tiny's autoencoder for gray images of 32 x 32: 369,000 parameters."""
    return dense.build(features=1024)
