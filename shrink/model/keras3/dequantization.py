"""Weights that Keras 3 quantized (`model.quantize(...)`), as the float weights that they stand for.

Which form a layer has follows from its arrays: Keras saves parts of a layer, such as the
projections of attention, without their own policy. Layouts: `variable_serialization_spec` of Dense,
EinsumDense and Embedding, and keras/src/quantizers/quantizers.py, of Keras 3.15.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tf_keras as keras

from shrink.base.keras_internals import own_state, own_weights
from shrink.base.types import Array
from shrink.model.keras3.layers import UnsupportedLayerError

_KINDS = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)
_FLOAT8_VARIABLES = 6
"""Scales and histories behind kernel and bias, which hold float values."""


def float_weights(layer: keras.layers.Layer, values: Sequence[Array]) -> Sequence[Array]:
    """Return the float weights of a layer's stored arrays; the same where none is quantized.

    Args:
        layer: of tf-keras, built.
        values: the layer's own arrays in the order of the file.

    Raises:
        UnsupportedLayerError: the file lacks what decodes a kernel.
    """
    own = [*own_weights(layer), *own_state(layer)]
    if not isinstance(layer, _KINDS) or len(values) <= len(own):
        return values
    has_bias = len(own) == 2
    if all(np.issubdtype(value.dtype, np.floating) for value in values):
        is_float8 = len(values) == len(own) + _FLOAT8_VARIABLES
        return values[: len(own)] if is_float8 else values
    if values[has_bias].dtype == np.uint8:
        raise UnsupportedLayerError(
            f"{type(layer).__name__} {layer.name!r}",
            "Keras 3.15 saves kernels of GPTQ and AWQ without their zero points, so that nothing "
            "can decode them, Keras included",
            "save the model before Keras quantizes it; shrink quantizes it afterwards",
        )
    bias, codes, rest = values[1 : 1 + has_bias], values[0], values[1 + has_bias :]
    if isinstance(layer, keras.layers.Embedding):
        kernel = _embeddings(tuple(own[0].shape), codes, rest)
    else:
        kernel = _kernel(layer, codes, rest)
    return [kernel.reshape(tuple(own[0].shape)).astype(np.float32), *bias]


def _kernel(layer: keras.layers.Layer, codes: Array, rest: Sequence[Array]) -> Array:
    """Return a kernel of int8 or int4.

    Args:
        layer: Dense or EinsumDense.
        codes: the kernel's shape; of 4 bits (rows, half the columns), two codes a byte.
        rest: scale, and where rows are in groups zero point (groups, columns) and group of each
            row.
    """
    shape = tuple(layer.kernel.shape)
    scale = rest[0]
    if codes.shape == shape and len(rest) == 1:
        return codes / _like_kernel(layer, scale)
    if len(rest) == 1:
        return _unpacked(codes, scale.size) / scale.reshape(-1)
    zero, group = rest[1], rest[2].astype(np.int64)
    return (_unpacked(codes, scale.shape[1]) - zero.astype(np.float32)[group]) * scale[group]


def _like_kernel(layer: keras.layers.Layer, scale: Array) -> Array:
    """Return a scale per output, which has the output's layout, so that it divides the kernel."""
    if isinstance(layer, keras.layers.Dense):
        return scale
    inputs_and_kernel, output = layer.equation.replace("...", "").split("->")
    kernel = inputs_and_kernel.split(",")[1]
    size = dict(zip(kernel, layer.kernel.shape, strict=True))
    kept = [label for label in output if label in size]  # the scale is 1 along all others
    scale = scale.reshape([size[label] for label in kept])
    scale = scale.transpose([kept.index(label) for label in kernel if label in kept])
    return scale.reshape([size[label] if label in kept else 1 for label in kernel])


def _embeddings(shape: tuple[int, ...], codes: Array, rest: Sequence[Array]) -> Array:
    """Return embeddings of int8 or int4, whose scales are of rows, or of groups within rows."""
    scale = rest[0]
    if len(rest) == 1:
        whole = codes if codes.shape == shape else _unpacked(codes, shape[1])
        return whole / scale.reshape(-1, 1)
    zero, group = rest[1].astype(np.float32), rest[2].astype(np.int64)
    return (_unpacked(codes, len(group)) - zero[:, group]) * scale[:, group]


def _unpacked(codes: Array, columns: int) -> Array:
    """Return the 4-bit codes of bytes along the last axis, low half first, as float32."""
    halves = np.stack([codes & 0x0F, (codes >> 4) & 0x0F], axis=-1).astype(np.int16)
    return ((halves.reshape(len(codes), -1)[:, :columns] ^ 8) - 8).astype(np.float32)
