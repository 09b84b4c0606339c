"""One small rule per kind of layer: how its channels depend on those of its inputs.

A rule is given a `Site` and returns an `Effect`. Layers are looked up by their exact class: what
a subclass does is unknown. Add a rule as a function and one line in the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.graph.channels import (
    Edit,
    Effect,
    Labels,
    Role,
    Site,
    WeightAxis,
    WeightUse,
    concatenate,
    is_elementwise,
    merge,
    positions,
    reshaped,
    weight_index,
)
from shrink.graph.network import Ref
from shrink.graph.sequences import RECURRENT, bidirectional, multi_head_attention, recurrent

Rule = Callable[[Site], Effect]

L = keras.layers


def apply_rule(site: Site, rules: Mapping[type, Rule] | None = None) -> Effect:
    """Return what the call at this site does; everything is protected where no rule knows it.

    Args:
        site: the call.
        rules: by class; by default `RULES`.
    """
    if (
        any(not channels.labels.size for channels in site.inputs)
        and type(site.layer) not in _STARTS
    ):
        return site.protect(f"{site.name}: its input has no channels of known number")
    rule = (RULES if rules is None else rules).get(type(site.layer))
    if rule is None and hasattr(site.layer, "symbol"):
        rule = operation
    if rule is None:
        return site.protect(f"{site.name}: no rule for the channels of a {_kind(site)}")
    return rule(site)


def _kind(site: Site) -> str:
    return type(site.layer).__name__


def _on_last_axis(rule: Rule) -> Rule:
    """Give the rule inputs whose last axis is what it takes for channels."""

    def checked(site: Site) -> Effect:
        if getattr(site.layer, "data_format", "channels_last") == "channels_first":
            return site.protect(f"{site.name}: channels_first")
        return rule(site.on_last_axis())

    return checked


def _check_activation(site: Site, labels: Labels) -> None:
    activation = getattr(site.layer, "activation", None)
    if not is_elementwise(activation):
        name = getattr(activation, "__name__", "its activation")
        site.sets.protect(labels, f"{site.name}: {name} mixes its channels")


def _bias(site: Site, labels: Labels) -> list[WeightUse]:
    bias = site.layer.bias
    if bias is None:
        return []
    axis = WeightAxis(0, labels, "channel")
    return [WeightUse(weight_index(site.layer, bias), (axis,))]


@_on_last_axis
def _convolution(site: Site) -> Effect:
    layer, inputs = site.layer, site.inputs[0].labels
    outputs = site.produce(layer.filters)
    if layer.groups > 1:
        return _grouped(site, inputs, outputs)
    axes = _kernel_axes(layer.kernel, inputs, outputs)
    return _linear(site, axes, outputs, (Edit("filters", outputs),))


def _grouped(site: Site, inputs: Labels, outputs: Labels) -> Effect:
    """Groups stay of one size: the channels at the same place in each of them go together.

    Where a group has one input channel (a depthwise convolution by another name), whole groups go.
    """
    layer, groups = site.layer, site.layer.groups
    if len(inputs) == groups:
        site.sets.unite(np.repeat(inputs, len(outputs) // groups), outputs)
        axes: tuple[WeightAxis, ...] = (WeightAxis(layer.kernel.shape.rank - 1, outputs, "output"),)
        return _linear(site, axes, outputs, (Edit("filters", outputs), Edit("groups", inputs)))
    for labels in (inputs, outputs):
        rows = labels.reshape(groups, -1)
        for row in rows[1:]:
            site.sets.unite(rows[0], row)
    axes = _kernel_axes(layer.kernel, inputs[: len(inputs) // groups], outputs)
    return _linear(site, axes, outputs, (Edit("filters", outputs),))


def _kernel_axes(kernel: tf.Variable, inputs: Labels, outputs: Labels) -> tuple[WeightAxis, ...]:
    rank = kernel.shape.rank
    return (WeightAxis(rank - 2, inputs, "input"), WeightAxis(rank - 1, outputs, "output"))


def _linear(
    site: Site, axes: tuple[WeightAxis, ...], outputs: Labels, edits: tuple[Edit, ...]
) -> Effect:
    index = weight_index(site.layer, site.layer.kernel)
    kernel = WeightUse(index, axes, positions(site.output))
    _check_activation(site, outputs)
    weights = (kernel, *_bias(site, outputs))
    return Effect(site.passes(outputs), weights, edits, produces=outputs)


@_on_last_axis
def _dense(site: Site) -> Effect:
    outputs = site.produce(site.layer.units)
    axes = _kernel_axes(site.layer.kernel, site.inputs[0].labels, outputs)
    return _linear(site, axes, outputs, (Edit("units", outputs),))


@_on_last_axis
def _einsum_dense(site: Site) -> Effect:
    """Return what a dense layer by another name does: it replaces the last axis of its input."""
    layer = site.layer
    inputs, kernel, output = layer.equation.replace("->", ",").split(",")
    bias = layer.bias_axes
    replaces = (inputs[:-1], inputs[-1:] + output[-1:]) == (output[:-1], kernel)
    if not replaces or inputs[-1] in output or (bias or kernel[1]) != kernel[1]:
        return site.protect(f"{site.name}: no dense layer over the last axis, {layer.equation}")
    outputs = site.produce(layer.kernel.shape[-1])
    axes = _kernel_axes(layer.kernel, site.inputs[0].labels, outputs)
    sizes = layer.partial_output_shape
    return _linear(site, axes, outputs, (Edit("output_shape", outputs, len(sizes) - 1),))


@_on_last_axis
def _transposed(site: Site) -> Effect:
    layer = site.layer
    outputs = site.produce(layer.filters)
    rank = layer.kernel.shape.rank
    axes = (
        WeightAxis(rank - 2, outputs, "output"),
        WeightAxis(rank - 1, site.inputs[0].labels, "input"),
    )
    index = weight_index(layer, layer.kernel)
    kernel = WeightUse(index, axes, positions(site.inputs[0]))
    _check_activation(site, outputs)
    weights = (kernel, *_bias(site, outputs))
    edits = (Edit("filters", outputs),)
    return Effect(site.passes(outputs), weights, edits, produces=outputs)


@_on_last_axis
def _depthwise(site: Site) -> Effect:
    inputs = site.inputs[0].labels
    outputs = np.repeat(inputs, site.layer.depth_multiplier)
    kernel = _depthwise_kernel(site, inputs)
    _check_activation(site, outputs)
    return Effect(site.passes(outputs), (kernel, *_bias(site, outputs)))


def _depthwise_kernel(site: Site, inputs: Labels) -> WeightUse:
    kernel = site.layer.depthwise_kernel
    axis = WeightAxis(kernel.shape.rank - 2, inputs, "channel")
    return WeightUse(weight_index(site.layer, kernel), (axis,), positions(site.output))


@_on_last_axis
def _separable(site: Site) -> Effect:
    layer, inputs = site.layer, site.inputs[0].labels
    outputs = site.produce(layer.filters)
    between = np.repeat(inputs, layer.depth_multiplier)
    index = weight_index(layer, layer.pointwise_kernel)
    axes = _kernel_axes(layer.pointwise_kernel, between, outputs)
    pointwise = WeightUse(index, axes, positions(site.output))
    _check_activation(site, outputs)
    weights = (_depthwise_kernel(site, inputs), pointwise, *_bias(site, outputs))
    edits = (Edit("filters", outputs),)
    return Effect(site.passes(outputs), weights, edits, produces=outputs)


def _embedding(site: Site) -> Effect:
    outputs = site.produce(site.layer.output_dim)
    axis = WeightAxis(1, outputs, "output")
    edits = (Edit("output_dim", outputs),)
    return Effect(site.passes(outputs), (WeightUse(0, (axis,)),), edits, produces=outputs)


def _batch_norm(site: Site) -> Effect:
    channels = site.inputs[0]
    if list(site.layer.axis) != [channels.axis]:
        return site.protect(f"{site.name}: normalises along another axis than the channels")
    weights = []
    for index, weight in enumerate(site.layer.weights):
        role: Role = "scale" if weight is site.layer.gamma else "channel"
        weights.append(WeightUse(index, (WeightAxis(0, channels.labels, role),)))
    return Effect(site.passes(channels.labels, channels.axis), tuple(weights))


def _normalisation(site: Site) -> Effect:
    return site.protect(f"{site.name}: a {_kind(site)} over pruned channels would not be the same")


def normalisation_by_channel(site: Site) -> Effect:
    """Return the channels of a layer normalisation as they are: for copies, not for pruning.

    Over fewer channels it gives other values, which a student learns to live with.
    """
    channels = site.inputs[0]
    axis = site.layer.axis
    axes = axis if isinstance(axis, list | tuple) else [axis]
    if [a % len(channels.shape) for a in axes] != [channels.axis]:
        return site.protect(f"{site.name}: normalises along other axes than the channels")
    weights = tuple(
        WeightUse(index, (WeightAxis(0, channels.labels, "channel"),))
        for index in range(len(site.layer.weights))
    )
    return Effect(site.passes(channels.labels, channels.axis), weights)


def _prelu(site: Site) -> Effect:
    channels, alpha = site.inputs[0], site.layer.alpha
    axis = channels.axis - 1
    shared = alpha.shape[axis] == 1
    axes = () if shared else (WeightAxis(axis, channels.labels, "channel"),)
    return Effect(site.passes(channels.labels, channels.axis), (WeightUse(0, axes),))


def _pass(site: Site) -> Effect:
    channels = site.inputs[0]
    return Effect(site.passes(channels.labels, channels.axis))


def _activation(site: Site) -> Effect:
    if not is_elementwise(site.layer.activation):
        return site.protect(f"{site.name}: its activation mixes channels")
    return _pass(site)


def _softmax(site: Site) -> Effect:
    axis, channels = site.layer.axis, site.inputs[0]
    rank = len(channels.shape)
    axes = [a % rank for a in (axis if isinstance(axis, list | tuple) else [axis])]
    if channels.axis in axes:
        return site.protect(f"{site.name}: a softmax mixes its channels")
    return _pass(site)


def _rescaling(site: Site) -> Effect:
    if np.size(site.layer.scale) > 1 or np.size(site.layer.offset) > 1:
        return site.protect(f"{site.name}: one factor per channel")
    return _pass(site)


@_on_last_axis
def _spatial(site: Site) -> Effect:
    return Effect(site.passes(site.inputs[0].labels))


@_on_last_axis
def _flatten(site: Site) -> Effect:
    return _reshape(site)


def _reshape(site: Site) -> Effect:
    channels = reshaped(site.inputs[0], site.output.shape, site.sets)
    if channels is None:
        return site.protect(f"{site.name}: the channels are lost in a reshape")
    edits: tuple[Edit, ...] = ()
    if isinstance(site.layer, L.Reshape):
        edits = (Edit("target_shape", channels.labels, channels.axis - 1),)
    return Effect((channels,), edits=edits)


def _permute(site: Site) -> Effect:
    channels = site.inputs[0]
    axis = list(site.layer.dims).index(channels.axis) + 1
    return Effect(site.passes(channels.labels, axis))


def _concatenate(site: Site) -> Effect:
    axis = site.layer.axis % len(site.output.shape)
    return concatenate(site, axis)


RULES: dict[type, Rule] = {
    **dict.fromkeys((L.Conv1D, L.Conv2D, L.Conv3D), _convolution),
    **dict.fromkeys((L.DepthwiseConv1D, L.DepthwiseConv2D), _depthwise),
    **dict.fromkeys((L.SeparableConv1D, L.SeparableConv2D), _separable),
    **dict.fromkeys((L.Conv1DTranspose, L.Conv2DTranspose, L.Conv3DTranspose), _transposed),
    L.Dense: _dense,
    L.EinsumDense: _einsum_dense,
    L.MultiHeadAttention: multi_head_attention,
    **dict.fromkeys(RECURRENT, recurrent),
    L.Bidirectional: bidirectional,
    L.Embedding: _embedding,
    L.BatchNormalization: _batch_norm,
    **dict.fromkeys(
        (L.LayerNormalization, L.GroupNormalization, L.UnitNormalization), _normalisation
    ),
    L.PReLU: _prelu,
    L.Activation: _activation,
    L.Softmax: _softmax,
    L.Rescaling: _rescaling,
    **dict.fromkeys(
        (
            L.ReLU, L.LeakyReLU, L.ELU, L.ThresholdedReLU, L.Dropout, L.GaussianDropout,
            L.GaussianNoise, L.AlphaDropout, L.ActivityRegularization, L.Identity,
        ),
        _pass,
    ),
    **dict.fromkeys(
        (
            L.MaxPooling1D, L.MaxPooling2D, L.MaxPooling3D,
            L.AveragePooling1D, L.AveragePooling2D, L.AveragePooling3D,
            L.GlobalMaxPooling1D, L.GlobalMaxPooling2D, L.GlobalMaxPooling3D,
            L.GlobalAveragePooling1D, L.GlobalAveragePooling2D, L.GlobalAveragePooling3D,
            L.UpSampling1D, L.UpSampling2D, L.UpSampling3D,
            L.ZeroPadding1D, L.ZeroPadding2D, L.ZeroPadding3D,
            L.Cropping1D, L.Cropping2D, L.Cropping3D,
            L.SpatialDropout1D, L.SpatialDropout2D, L.SpatialDropout3D, L.RepeatVector,
            L.CenterCrop, L.Resizing,
        ),
        _spatial,
    ),
    L.Flatten: _flatten,
    L.Reshape: _reshape,
    L.Permute: _permute,
    L.Concatenate: _concatenate,
    **dict.fromkeys((L.Add, L.Subtract, L.Multiply, L.Average, L.Maximum, L.Minimum), merge),
}  # fmt: skip
"""The rule of each kind of layer, by its exact class."""

COPY_RULES: Mapping[type, Rule] = {**RULES, L.LayerNormalization: normalisation_by_channel}
"""For narrower copies that are trained anew, and need not compute what the model did."""

_STARTS = {L.Embedding}
"""Layers whose input has no channels."""


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


def _elementwise(site: Site, arguments: Sequence[object]) -> Effect:
    if not all(_is_scalar(value) for value in arguments if not isinstance(value, Ref)):
        return site.protect(f"{site.name}: a constant with one value per channel")
    if len({len(channels.shape) for channels in site.inputs}) > 1:
        return site.protect(f"{site.name}: its inputs have different numbers of axes")
    return merge(site)


def _is_scalar(value: object) -> bool:
    if value is None or isinstance(value, str | tf.DType):
        return True
    return not isinstance(value, list | tuple | dict) and np.asarray(value).size == 1


def _reduction(site: Site, axis: object) -> Effect:
    channels = site.inputs[0]
    if (
        axis is None
        or channels.axis in np.asarray(axis, int).ravel() % len(channels.shape)
        or not channels.is_last
    ):
        return site.protect(f"{site.name}: reduces over its channels")
    return Effect(site.passes(channels.labels))
