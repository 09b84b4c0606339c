"""Operations of Keras 3 (`keras.ops`) in a functional model, as layers or functions of TensorFlow.

Where tf-keras has a layer for it, the layer is taken: later stages know layers best.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeGuard

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import first_line
from shrink.base.types import JsonObject, Tensors
from shrink.model.keras3.layers import FUNCTIONS, UnsupportedLayerError

_Op: TypeAlias = Callable[..., tf.Tensor]
_Operand: TypeAlias = "tf.Tensor | np.ndarray | Sequence[float] | float"
_Axes: TypeAlias = int | Sequence[int]


def call_op(
    module: str,
    name: str,
    config: JsonObject,
    args: Sequence[Tensors],
    kwargs: Mapping[str, object],
) -> Tensors:
    """Return what an operation of Keras 3 makes of symbolic tensors of tf-keras.

    Args:
        module: such as `keras.src.ops.numpy`.
        name: the operation's class.
        config: its constructor's arguments.
        args: what it is called with, tensors and constants.
        kwargs: likewise, by name.

    Raises:
        UnsupportedLayerError: there is no counterpart.
    """
    label = f"keras.ops {name} {config.get('name')!r}"
    room = module.rpartition(".")[2]
    function = _OPS.get(f"{room}.{name}") or _OPS.get(name)
    if function is None:
        raise UnsupportedLayerError(label, "this operation has no counterpart yet")
    settings = {key: value for key, value in config.items() if key not in ("name", "dtype_policy")}
    named = {key: value for key, value in kwargs.items() if value is not None}
    try:
        return function(*args, **{**settings, **named})
    except (TypeError, ValueError) as error:
        raise UnsupportedLayerError(label, first_line(error)) from error


def _is_tensor(value: object) -> TypeGuard[tf.Tensor]:
    constant = isinstance(value, int | float | list | tuple | np.ndarray)
    return not constant and bool(keras.backend.is_keras_tensor(value))


def _binary(layer: type[keras.layers.Layer] | None, function: _Op) -> _Op:
    """Two tensors of equal rank through the layer, all else through the function."""

    def call(x1: _Operand, x2: _Operand) -> tf.Tensor:
        if (
            layer is not None
            and _is_tensor(x1)
            and _is_tensor(x2)
            and (x1.shape.rank, x1.dtype) == (x2.shape.rank, x2.dtype)
        ):
            return layer(dtype=x1.dtype.name)([x1, x2])
        return function(_constant(x1, x2), _constant(x2, x1))

    return call


def _constant(value: _Operand, other: _Operand) -> _Operand:
    """TensorFlow reads the 1 of `1 - x` as an int32 tensor, whatever the dtype of x is."""
    if isinstance(value, int) and _is_tensor(other) and other.dtype.is_floating:
        return float(value)
    return np.asarray(value, np.float32) if isinstance(value, list | tuple) else value


def _reduce(function: _Op) -> _Op:
    def call(
        x: tf.Tensor, axis: _Axes | None = None, keepdims: bool = False, **others: object
    ) -> tf.Tensor:
        _only_defaults(others)
        axis = list(axis) if isinstance(axis, tuple) else axis
        return function(x, axis=axis, keepdims=keepdims)

    return call


def _only_defaults(others: Mapping[str, object]) -> None:
    for key, value in others.items():
        if value not in (None, 0, False):
            raise ValueError(f"{key}={value!r} has no counterpart")


def _reshape(x: tf.Tensor, newshape: Sequence[int | None]) -> tf.Tensor:
    rest = [-1 if size is None else size for size in newshape[1:]]
    known = x.shape[1:].is_fully_defined() and -1 not in rest
    if newshape[0] in (-1, None) and known and np.prod(rest) == x.shape[1:].num_elements():
        return keras.layers.Reshape(rest)(x)
    return tf.reshape(x, [-1 if size is None else size for size in newshape])


def _transpose(x: tf.Tensor, axes: Sequence[int] | None = None) -> tf.Tensor:
    order = list(axes) if axes is not None else list(range(x.shape.rank))[::-1]
    order = [axis % x.shape.rank for axis in order]
    if order[0] == 0 and len(order) > 1:
        return keras.layers.Permute(order[1:])(x)
    return tf.transpose(x, order)


def _swap_axes(x: tf.Tensor, axis1: int, axis2: int) -> tf.Tensor:
    order = list(range(x.shape.rank))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return _transpose(x, order)


def _move_axis(x: tf.Tensor, source: _Axes, destination: _Axes) -> tf.Tensor:
    sources, targets = np.atleast_1d(source), np.atleast_1d(destination)
    rank = x.shape.rank
    order = [axis for axis in range(rank) if axis not in {int(s) % rank for s in sources}]
    for target, moved in sorted(
        (int(t) % rank, int(s) % rank) for s, t in zip(sources, targets, strict=True)
    ):
        order.insert(target, moved)
    return _transpose(x, order)


def _get_item(x: tf.Tensor, key: object) -> tf.Tensor:
    parts = list(key) if isinstance(key, list | tuple) else [key]
    if any(
        not (part is None or part is Ellipsis or isinstance(part, int | slice)) for part in parts
    ):
        raise ValueError("it is indexed by something other than numbers and slices")
    if Ellipsis in parts:
        # tf-keras cannot write an ellipsis into a file.
        at = parts.index(Ellipsis)
        taken = sum(part is not None for part in parts) - 1
        parts[at : at + 1] = [slice(None)] * (x.shape.rank - taken)
    return x[tuple(parts)]


def _concatenate(xs: Sequence[_Operand], axis: int | None = -1) -> tf.Tensor:
    if all(_is_tensor(x) for x in xs):
        return keras.layers.Concatenate(axis=-1 if axis is None else axis)(list(xs))
    return tf.concat(list(xs), axis)


def _split(x: tf.Tensor, indices_or_sections: _Axes, axis: int = 0) -> list[tf.Tensor]:
    if isinstance(indices_or_sections, int):
        return tf.split(x, indices_or_sections, axis=axis)
    edges = [0, *indices_or_sections, x.shape[axis]]
    return tf.split(x, list(np.diff(edges).tolist()), axis=axis)


def _pad(
    x: tf.Tensor,
    pad_width: Sequence[_Axes],
    mode: str = "constant",
    constant_values: float | None = None,
) -> tf.Tensor:
    width = [list(pair) if isinstance(pair, list | tuple) else [pair, pair] for pair in pad_width]
    width = width * x.shape.rank if len(width) == 1 else width
    return tf.pad(x, width, mode.upper(), constant_values=constant_values or 0)


def _normalize(
    x: tf.Tensor, axis: int = -1, order: int = 2, epsilon: float | None = None
) -> tf.Tensor:
    if order != 2:
        raise ValueError(f"order={order!r} has no counterpart")
    return tf.math.l2_normalize(x, axis=axis, epsilon=epsilon or 1e-12)


def _pool(kind: str) -> _Op:
    def call(
        x: tf.Tensor,
        pool_size: _Axes,
        strides: _Axes | None = None,
        padding: str = "valid",
        data_format: str | None = None,
    ) -> tf.Tensor:
        rank = x.shape.rank - 2
        cls = getattr(keras.layers, f"{kind}Pooling{rank}D")
        return cls(pool_size, strides=strides, padding=padding, data_format=data_format)(x)

    return call


def _resize(
    x: tf.Tensor,
    size: Sequence[int],
    interpolation: str = "bilinear",
    antialias: bool = False,
    **others: object,
) -> tf.Tensor:
    others.pop("fill_mode", None)
    others.pop("fill_value", None)
    if others.pop("data_format", None) == "channels_first":
        raise ValueError("channels first")
    _only_defaults(others)
    return tf.image.resize(x, list(size), method=interpolation, antialias=antialias)


def _arg(function: _Op) -> _Op:
    def call(x: tf.Tensor, axis: int | None = None, keepdims: bool = False) -> tf.Tensor:
        if axis is None or keepdims:
            raise ValueError("it has no axis, or keeps it")
        return function(x, axis=axis, output_type=tf.int32)

    return call


def _activation(name: str) -> _Op:
    return lambda x: keras.layers.Activation(name)(x)


_LAYERED: dict[str, _Op] = {
    "Add": _binary(keras.layers.Add, tf.math.add),
    "Subtract": _binary(keras.layers.Subtract, tf.math.subtract),
    "Multiply": _binary(keras.layers.Multiply, tf.math.multiply),
    "Maximum": _binary(keras.layers.Maximum, tf.math.maximum),
    "Minimum": _binary(keras.layers.Minimum, tf.math.minimum),
    "Divide": _binary(None, tf.math.divide),
    "TrueDivide": _binary(None, tf.math.truediv),
    "FloorDivide": _binary(None, tf.math.floordiv),
    "Mod": _binary(None, tf.math.floormod),
    "Power": _binary(None, tf.math.pow),
    "Matmul": lambda x1, x2: tf.linalg.matmul(x1, x2),
    "Concatenate": _concatenate,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "nn.Relu": lambda x: keras.layers.ReLU()(x),
    "nn.Softmax": lambda x, axis=-1: keras.layers.Softmax(axis=axis)(x),
    "nn.Elu": lambda x, alpha=1.0: keras.layers.ELU(alpha)(x),
    "nn.Gelu": lambda x, approximate=True: tf.nn.gelu(x, approximate=approximate),
    "nn.AveragePool": _pool("Average"),
    "nn.MaxPool": _pool("Max"),
    "nn.Normalize": _normalize,
}  # fmt: skip

_ACTIVATIONS = {
    "nn.Sigmoid": "sigmoid", "nn.Silu": "swish", "nn.Selu": "selu", "nn.Softplus": "softplus",
    "nn.Softsign": "softsign", "numpy.Tanh": "tanh",
}  # fmt: skip


def _snake(name: str) -> str:
    """Return a class's name as TensorFlow writes functions."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_SAME = [
    "Abs", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Expm1", "Floor", "Log", "Log1p", "LogicalNot",
    "Negative", "Reciprocal", "Rsqrt", "Sign", "Sin", "Sinh", "Sqrt", "Square", "Tan",
]  # fmt: skip
_UNARY = {
    **{name: getattr(tf.math, _snake(name)) for name in _SAME},
    "Absolute": tf.math.abs,
    "Arccos": tf.math.acos,
    "Arcsin": tf.math.asin,
    "Arctan": tf.math.atan,
    "StopGradient": tf.stop_gradient,
}
_COMPARED = [
    "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr",
]  # fmt: skip
_REDUCED = {
    "Amax": "max", "Amin": "min", "Var": "variance",
    **{name: name.lower() for name in (
        "All", "Any", "Logsumexp", "Max", "Mean", "Min", "Prod", "Std", "Sum",
    )},
}  # fmt: skip
_FUNCTIONS = [
    "Glu", "HardSigmoid", "HardSilu", "HardTanh", "LeakyRelu", "LogSigmoid", "LogSoftmax", "Relu6",
]  # fmt: skip

_SHAPED: dict[str, _Op] = {
    "Argmax": _arg(tf.math.argmax),
    "Argmin": _arg(tf.math.argmin),
    "BroadcastTo": lambda x, shape: tf.broadcast_to(x, list(shape)),
    "Cast": lambda x, dtype: tf.cast(x, dtype),
    "Clip": lambda x, x_min, x_max: tf.clip_by_value(x, x_min, x_max),
    "Cumsum": lambda x, axis=None, dtype=None: tf.math.cumsum(x, axis=axis),
    "DepthToSpace": lambda x, block_size, data_format="channels_last": tf.nn.depth_to_space(
        x, block_size
    ),
    "Einsum": lambda *xs, subscripts: tf.einsum(subscripts, *xs),
    "ExpandDims": lambda x, axis: tf.expand_dims(x, axis if isinstance(axis, int) else axis[0]),
    "Flip": lambda x, axis=None: tf.reverse(x, [axis] if isinstance(axis, int) else list(axis)),
    "GetItem": _get_item,
    "Moveaxis": _move_axis,
    "OnesLike": lambda x, dtype=None: tf.ones_like(x, dtype or x.dtype),
    "ZerosLike": lambda x, dtype=None: tf.zeros_like(x, dtype or x.dtype),
    "OneHot": lambda x, num_classes, axis=-1, dtype="float32", sparse=False: tf.one_hot(
        x, num_classes, axis=axis, dtype=dtype or "float32"
    ),
    "Pad": _pad,
    "Ravel": lambda x: tf.reshape(x, [-1]),
    "Repeat": lambda x, repeats, axis=None: tf.repeat(x, repeats, axis=axis),
    "Resize": _resize,
    "Roll": lambda x, shift, axis=None: tf.roll(x, shift, axis),
    "SpaceToDepth": lambda x, block_size, data_format="channels_last": tf.nn.space_to_depth(
        x, block_size
    ),
    "Split": _split,
    "Squeeze": lambda x, axis=None: tf.squeeze(x, axis=axis),
    "Stack": lambda xs, axis=0: tf.stack(list(xs), axis=axis),
    "Swapaxes": _swap_axes,
    "Take": lambda x, indices, axis=None: tf.gather(x, indices, axis=axis),
    "Tile": lambda x, repeats: tf.tile(x, list(repeats)),
    "Where": lambda condition, x1, x2: tf.where(condition, x1, x2),
}

_OPS: dict[str, _Op] = {
    **_LAYERED,
    **_SHAPED,
    **_UNARY,
    **{name: _binary(None, getattr(tf.math, _snake(name))) for name in _COMPARED},
    **{name: _reduce(getattr(tf.math, f"reduce_{one}")) for name, one in _REDUCED.items()},
    **{name: _activation(activation) for name, activation in _ACTIVATIONS.items()},
    **{f"nn.{name}": FUNCTIONS[_snake(name)] for name in _FUNCTIONS},
}
"""By class, or by module and class where the class alone is not enough."""
