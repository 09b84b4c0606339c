"""Rules for TensorFlow functions and operators that stand among the layers of a Keras model."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from shrink.graph.effects import Effect, Site, concatenate, merge
from shrink.graph.network import Ref

_UNARY = {
    "nn.relu", "nn.relu6", "nn.elu", "nn.selu", "nn.gelu", "nn.silu", "nn.swish", "nn.leaky_relu",
    "nn.softplus", "nn.softsign", "nn.dropout", "math.sigmoid", "math.tanh", "math.softplus",
    "math.abs", "math.square", "math.sqrt", "math.rsqrt", "math.exp", "math.expm1",
    "math.log1p", "math.log_sigmoid", "math.erf", "math.negative",
    "__operators__.neg", "clip_by_value", "identity", "cast", "stop_gradient",
}  # fmt: skip
_BINARY = {
    "math.add", "math.subtract", "math.multiply", "math.divide", "math.truediv", "math.maximum",
    "math.minimum", "math.pow", "__operators__.add", "__operators__.sub", "__operators__.mul",
    "__operators__.truediv", "__operators__.pow", "math.divide_no_nan", "math.squared_difference",
}  # fmt: skip
_REDUCTIONS = {"math.reduce_mean", "math.reduce_max", "math.reduce_sum", "math.reduce_min"}


def operation(site: Site) -> Effect:
    """Return what a TensorFlow function does with channels; unknown ones protect them."""
    symbol = site.layer.symbol
    args, kwargs = site.call.arguments
    if symbol in _UNARY | _BINARY:
        return _elementwise(site, [*args, *kwargs.values()])
    if symbol in {"concat"} and not kwargs.get("name"):
        axis = kwargs.get("axis", args[-1] if len(args) > 1 else None)
        if isinstance(axis, int):
            return concatenate(site, axis % len(site.output.shape))
    if symbol in _REDUCTIONS:
        return _reduction(site, kwargs.get("axis", args[1] if len(args) > 1 else None))
    return site.protect(f"{site.name}: no rule for the channels of tf.{symbol}")


def _elementwise(site: Site, arguments: list[Any]) -> Effect:
    if not all(_is_scalar(value) for value in arguments if not isinstance(value, Ref)):
        return site.protect(f"{site.name}: a constant with one value per channel")
    if len({len(channels.shape) for channels in site.inputs}) > 1:
        return site.protect(f"{site.name}: its inputs have different numbers of axes")
    return merge(site)


def _is_scalar(value: Any) -> bool:
    if value is None or isinstance(value, str | tf.DType):
        return True
    return not isinstance(value, list | tuple | dict) and np.size(value) == 1


def _reduction(site: Site, axis: Any) -> Effect:
    channels = site.inputs[0]
    rank = len(channels.shape)
    axes = {a % rank for a in (axis if isinstance(axis, list | tuple) else [axis]) if a is not None}
    if axis is None or channels.axis in axes or not channels.is_last:
        return site.protect(f"{site.name}: reduces over its channels")
    return Effect(site.passes(channels.labels))
