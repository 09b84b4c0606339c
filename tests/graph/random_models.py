"""Random functional models: every kind of layer and join that rules exist for, at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tf_keras as keras

L = keras.layers
Random = np.random.Generator


def random_model(seed: int, blocks: int = 6) -> keras.Model:
    """Build a model of 8x8 images from `blocks` random layers or joins.

    Tensors that were made on the way stay within reach, so that joins reach far back.
    """
    random = np.random.default_rng(seed)
    inputs = L.Input((8, 8, 3))
    pool = [L.Conv2D(int(random.integers(4, 9)), 3, padding="same")(inputs)]
    for _ in range(blocks):
        x = pool[int(random.integers(max(0, len(pool) - 3), len(pool)))]
        block = _BLOCKS[int(random.integers(len(_BLOCKS)))]
        pool.append(block(x, pool, random))
    x = L.Concatenate()([pool[-1], pool[int(random.integers(len(pool)))]])
    x = (
        L.Flatten()(L.AveragePooling2D(4)(x))
        if random.random() < 0.5
        else L.GlobalMaxPooling2D()(x)
    )
    return keras.Model(inputs, L.Dense(4)(x))


def _convolution(x: Any, pool: list[Any], random: Random) -> Any:
    filters, kernel = int(random.integers(3, 10)), int(random.choice([1, 3]))
    x = L.Conv2D(filters, kernel, padding="same", use_bias=bool(random.random() < 0.5))(x)
    return L.ReLU()(L.BatchNormalization()(x)) if random.random() < 0.5 else x


def _residual(x: Any, pool: list[Any], random: Random) -> Any:
    other = pool[int(random.integers(len(pool)))]
    if other.shape[-1] != x.shape[-1]:
        other = L.Conv2D(x.shape[-1], 1)(other)
    join = [L.Add, L.Subtract, L.Average, L.Maximum, L.Minimum][int(random.integers(5))]
    return join()([x, other])


def _join(x: Any, pool: list[Any], random: Random) -> Any:
    return L.Concatenate()([x, pool[int(random.integers(len(pool)))]])


def _depthwise(x: Any, pool: list[Any], random: Random) -> Any:
    multiplier = int(random.integers(1, 3)) if x.shape[-1] < 16 else 1
    return L.DepthwiseConv2D(3, padding="same", depth_multiplier=multiplier)(x)


def _separable(x: Any, pool: list[Any], random: Random) -> Any:
    return L.SeparableConv2D(int(random.integers(3, 9)), 3, padding="same")(x)


def _grouped(x: Any, pool: list[Any], random: Random) -> Any:
    groups = 2 if x.shape[-1] % 2 == 0 else 1
    return L.Conv2D(groups * int(random.integers(2, 5)), 3, padding="same", groups=groups)(x)


def _excite(x: Any, pool: list[Any], random: Random) -> Any:
    gate = L.GlobalAveragePooling2D(keepdims=True)(x)
    gate = L.Conv2D(x.shape[-1], 1, activation="sigmoid")(L.Conv2D(3, 1, activation="tanh")(gate))
    return L.Multiply()([x, gate])


def _shuffle(x: Any, pool: list[Any], random: Random) -> Any:
    if x.shape[-1] % 2:
        return L.PReLU(shared_axes=[1, 2])(x)
    x = L.Permute((1, 2, 4, 3))(L.Reshape((8, 8, 2, x.shape[-1] // 2))(x))
    return L.Reshape((8, 8, x.shape[-1] * x.shape[-2]))(x)


def _twice(x: Any, pool: list[Any], random: Random) -> Any:
    shared = L.Conv2D(x.shape[-1], 3, padding="same")
    return shared(L.LeakyReLU()(shared(x)))


def _resize(x: Any, pool: list[Any], random: Random) -> Any:
    x = L.UpSampling2D()(L.MaxPooling2D()(x))
    return L.ZeroPadding2D(1)(L.Cropping2D(1)(L.Activation("softplus")(x)))


def _normalised(x: Any, pool: list[Any], random: Random) -> Any:
    return L.LayerNormalization()(x)


def _up(x: Any, pool: list[Any], random: Random) -> Any:
    return L.Conv2DTranspose(int(random.integers(3, 8)), 2, strides=2)(L.MaxPooling2D()(x))


_BLOCKS: list[Callable[[Any, list[Any], Random], Any]] = [
    _convolution, _convolution, _residual, _residual, _join, _depthwise, _separable, _grouped,
    _excite, _shuffle, _twice, _resize, _normalised, _up,
]  # fmt: skip
