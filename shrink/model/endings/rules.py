"""How each operator's bounds follow from those of its inputs, by TensorFlow's name of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shrink.base.types import Array
from shrink.model.endings import ANY, EMPTY, Computation, Node, Range, Shape


@dataclass(frozen=True)
class Site:
    """An operator with the bounds of its inputs."""

    node: Node[Any]
    inputs: Sequence[Range]
    graph: Computation[Any]

    def shape(self, index: int = 0) -> Shape | None:
        """Return the shape of an input."""
        return self.graph.shape(self.node.inputs[index])


Rule = Callable[[Site], Range]


def range_of_values(values: Array) -> Range:
    """Return the bounds of a constant."""
    if not values.size or values.dtype.kind not in "fiub" or not np.isfinite(values).all():
        return replace(ANY, fixed=True)
    return Range(float(values.min()), float(values.max()), fixed=True)


def clamped(x: Range, low: float, high: float) -> Range:
    """Return the bounds of values that are cut off below and above."""
    x = x if x.low >= low and x.high <= high else replace(x, total=None)
    bounds = [min(max(bound, low), high) for bound in (x.low, x.high)]
    return replace(x, low=bounds[0], high=bounds[1])


def _between(low: float, high: float) -> Rule:
    """The bounds are the operator's own."""
    return lambda site: Range(low, high)


def _cut(low: float, high: float) -> Rule:
    return lambda site: clamped(site.inputs[0], low, high)


def _increasing(function: Callable[[float], float]) -> Rule:
    """A function of each value that never falls."""

    def rule(site: Site) -> Range:
        (x, *_) = site.inputs
        try:
            return Range(function(x.low), function(x.high), x.reached)
        except (ValueError, OverflowError):
            return replace(ANY, reached=x.reached)

    return rule


def _softmax(site: Site) -> Range:
    return Range(0.0, 1.0, axis=-1, total=1.0)


def _same(site: Site) -> Range:
    return site.inputs[0]


def _reordered(site: Site) -> Range:
    """Values stay, in another shape: an axis is found again by its size and what follows it."""
    x = site.inputs[0]
    if x.total is None or x.axis is None:
        return x
    axis = _axis_after_reshape(site.shape(), site.node.shape, x.axis)
    return replace(x, axis=axis, total=None if axis is None else x.total)


def _axis_after_reshape(before: Shape | None, after: Shape | None, axis: int) -> int | None:
    if before is None or after is None:
        return None
    size, rest = before[axis], before[axis:][1:]
    if size is None or None in rest:
        return None
    behind = math.prod(length or 1 for length in rest)
    product = 1
    for position in range(1, len(after) + 1):
        length = after[-position]
        if length == size and product == behind:
            return -position
        if length is None:
            return None
        product *= length
    return None


def _transposed(site: Site) -> Range:
    x, order = site.inputs[0], site.graph.constant(site.node.inputs[1])
    if x.total is None or x.axis is None:
        return x
    if order is None:
        return replace(x, axis=None, total=None)
    rank = order.size
    axis = [int(each) for each in order.reshape(-1)].index(rank + x.axis) - rank
    return replace(x, axis=axis)


def _part(site: Site) -> Range:
    """A part of the values: sums stay where the axis is whole and the rank is the same."""
    x, before, after = site.inputs[0], site.shape(), site.node.shape
    whole = (
        x.axis is not None
        and before is not None
        and after is not None
        and len(before) == len(after)
        and before[x.axis] is not None
        and before[x.axis] == after[x.axis]
    )
    return x if whole else replace(x, axis=None, total=None)


def _extreme(site: Site) -> Range:
    """The largest or least of some values: what they add up to is lost."""
    return replace(site.inputs[0], axis=None, total=None)


def _split(site: Site) -> Range:
    """A part of the second input; the first is the axis."""
    return _part(Site(replace(site.node, inputs=site.node.inputs[1:]), site.inputs[1:], site.graph))


def joined(*ranges: Range) -> Range:
    """Return the bounds of values of which each comes from one of the tensors."""
    totals = {(each.axis, each.total) for each in ranges}
    axis, total = totals.pop() if len(totals) == 1 else (None, None)
    low, high = min(each.low for each in ranges), max(each.high for each in ranges)
    return Range(low, high, all(each.reached for each in ranges), axis, total)


def _concatenated(site: Site) -> Range:
    """Several tensors side by side; the axis of sums must be as long as in each of them."""
    shapes, after = [], site.node.shape
    parts = []
    for tensor, x in zip(site.node.inputs, site.inputs, strict=True):
        if site.graph.constant(tensor) is not None and site.graph.shape(tensor) in ((), None):
            continue  # the axis itself, which is an input of TensorFlow's operator
        parts.append(x)
        shapes.append(site.graph.shape(tensor))
    x = joined(*parts)
    if x.axis is None or after is None:
        return replace(x, axis=None, total=None)
    same = all(s is not None and s[x.axis] == after[x.axis] for s in shapes)
    return x if same and after[x.axis] is not None else replace(x, total=None)


def _stacked(site: Site) -> Range:
    return replace(joined(*site.inputs), axis=None, total=None)


def _chosen(site: Site) -> Range:
    return replace(joined(*site.inputs[1:]), axis=None, total=None)


def _padded(site: Site) -> Range:
    x = site.inputs[0]
    return Range(min(x.low, 0.0), max(x.high, 0.0), x.reached)


def _sum(*ranges: Range) -> Range:
    low, high = math.fsum(f.low for f in ranges), math.fsum(f.high for f in ranges)
    total = None
    axes = {f.axis for f in ranges}
    if len(axes) == 1 and all(f.total is not None for f in ranges):
        total = math.fsum(f.total or 0.0 for f in ranges)
    reached = all(f.reached for f in ranges) or any(_goes_anywhere(f) for f in ranges)
    return Range(low, high, reached, ranges[0].axis if total else None, total)


def _goes_anywhere(x: Range) -> bool:
    return x.reached and not x.fixed and (x.low, x.high) == (ANY.low, ANY.high)


def _met(one: Range, other: Range) -> bool:
    """Whether an infinite bound of what two tensors make together is reached.

    Two that both depend on the example may belong together, as x and the sum of all x do.
    """
    return one.reached and other.reached and (one.fixed or other.fixed)


def _added(site: Site) -> Range:
    return _sum(*site.inputs) if _same_shapes(site) else replace(_sum(*site.inputs), total=None)


def _same_shapes(site: Site) -> bool:
    shapes = {site.shape(index) for index in range(len(site.inputs))}
    return len(shapes) == 1 and None not in shapes


def _negated(site: Site) -> Range:
    return _times(site.inputs[0], -1.0)


def _subtracted(site: Site) -> Range:
    one, other = site.inputs
    difference = replace(_sum(one, _times(other, -1.0)), total=None)
    return replace(difference, reached=_met(one, other))


def _times(x: Range, factor: float) -> Range:
    bounds = sorted(_product(bound, factor) for bound in (x.low, x.high))
    total = None if x.total is None else x.total * factor
    return replace(x, low=bounds[0], high=bounds[1], total=total)


def _product(one: float, other: float) -> float:
    return 0.0 if 0.0 in (one, other) else one * other


def _multiplied(site: Site) -> Range:
    one, other = site.inputs
    for x, factor in ((one, other), (other, one)):
        if factor.low == factor.high and math.isfinite(factor.low):
            return _times(x, factor.low)
    bounds = [_product(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
    if site.node.inputs[0] == site.node.inputs[1]:
        return _squared(site)
    return Range(min(bounds), max(bounds), _met(one, other))


def _divided(site: Site) -> Range:
    one, other = site.inputs
    if other.low == other.high and other.low:
        return _times(one, 1 / other.low)
    axes = _sum_of(site)
    if axes and one.low >= 0:
        return Range(0.0, 1.0, *((True, axes[0], 1.0) if len(axes) == 1 else ()))
    if other.low > 0:
        bounds = [a / b for a in (one.low, one.high) for b in (other.low, other.high) if a or b]
        if not any(map(math.isnan, bounds)):
            return Range(min(bounds), max(bounds), _met(one, other))
    return replace(ANY, reached=_met(one, other))


def _sum_of(site: Site) -> list[int]:
    """Return the axes over which the divisor is the dividend's sum, none where it is not."""
    whole, divisor = site.node.inputs
    node = site.graph.node(divisor)
    if node is None or node.kind != "Sum" or node.inputs[0] != whole:
        return []
    axes, shape, divisor_shape = site.graph.constant(node.inputs[1]), site.shape(), site.shape(1)
    if axes is None or shape is None or divisor_shape is None or len(divisor_shape) != len(shape):
        return []
    return [int(a) if a < 0 else int(a) - len(shape) for a in axes.reshape(-1)]


def _squared(site: Site) -> Range:
    x = site.inputs[0]
    ends = [_product(x.low, x.low), _product(x.high, x.high)]
    low = 0.0 if x.low <= 0 <= x.high else min(ends)
    return Range(low, max(ends), x.reached)


def _absolute(site: Site) -> Range:
    x = site.inputs[0]
    low = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Range(low, max(abs(x.low), abs(x.high)), x.reached)


def _larger(site: Site) -> Range:
    one, other = site.inputs
    return Range(max(one.low, other.low), max(one.high, other.high), _both_reached(site))


def _smaller(site: Site) -> Range:
    one, other = site.inputs
    return Range(min(one.low, other.low), min(one.high, other.high), _both_reached(site))


def _both_reached(site: Site) -> bool:
    return all(each.reached for each in site.inputs)


def _clipped(site: Site) -> Range:
    x, least, most = site.inputs
    return clamped(x, least.low, most.high)


def _averaged(site: Site) -> Range:
    """A mean over axes lies between its values; sums stay along an axis that is left."""
    x, axes = site.inputs[0], site.graph.constant(site.node.inputs[1])
    before, after = site.shape(), site.node.shape
    if x.axis is None or axes is None or before is None or after is None:
        return replace(x, axis=None, total=None)
    gone = {int(a) if a < 0 else int(a) - len(before) for a in axes.reshape(-1)}
    if x.axis in gone:
        return replace(x, axis=None, total=None)
    behind = 0 if len(after) == len(before) else sum(each > x.axis for each in gone)
    return replace(x, axis=x.axis + behind)


def _summed(site: Site) -> Range:
    x = site.inputs[0]
    low, high = (0.0 if x.low >= 0 else -math.inf), (0.0 if x.high <= 0 else math.inf)
    return Range(low, high, x.reached)


def _leaky(site: Site) -> Range:
    x, slope = site.inputs[0], float(site.node.options.get("alpha", math.nan))
    if math.isnan(slope):
        return replace(ANY, reached=x.reached)
    ends = [bound if bound >= 0 else _product(bound, slope) for bound in (x.low, x.high)]
    return Range(min(ends), max(ends), x.reached)


_PASSING = (
    "Identity IdentityN StopGradient PreventGradient EnsureShape CheckNumerics Cast Quantize "
    "Dequantize FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxArgs "
    "Snapshot CopyHost Copy"
)
_RESHAPING = "Reshape Squeeze ExpandDims"
_TAKING = (
    "StridedSlice Slice SplitV Unpack GatherV2 GatherNd ReverseV2 Tile BroadcastTo "
    "AvgPool AvgPool3D ResizeNearestNeighbor ResizeBilinear DepthToSpace "
    "SpaceToDepth BatchToSpaceND MirrorPad TopKV2 DynamicPartition"
)
_CHOOSING = "Max Min MaxPool MaxPool3D"
_YES_OR_NO = (
    "Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot Any All "
    "IsFinite IsNan IsInf"
)
_PRODUCTS = (
    "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv3D DepthwiseConv2dNative Einsum "
    "Conv2DBackpropInput Conv3DBackpropInputV2 FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 "
    "ResourceGather Embedding Rnn Svdf"
)
REAL = frozenset(_PRODUCTS.split())
"""Operators whose values can be anything, as weights decide."""

WEIGHTS = frozenset({"ReadVariableOp"})
"""Operators that give the same values for all examples."""

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_PASSING.split(), _same),
    **dict.fromkeys(_RESHAPING.split(), _reordered),
    **dict.fromkeys(_TAKING.split(), _part),
    **dict.fromkeys(_CHOOSING.split(), _extreme),
    **dict.fromkeys(("Add", "AddV2", "AddN", "BiasAdd"), _added),
    **dict.fromkeys(("Select", "SelectV2"), _chosen),
    **dict.fromkeys(("Pad", "SpaceToBatchND"), _padded),
    **dict.fromkeys(("RealDiv", "Div", "DivNoNan"), _divided),
    "Softmax": _softmax,
    "Sigmoid": _between(0.0, 1.0),
    "Tanh": _increasing(math.tanh),
    **dict.fromkeys(("Shape", "Size", "Rank", "Range"), _between(0.0, math.inf)),
    "Fill": lambda site: site.inputs[1],
    "ZerosLike": _between(0.0, 0.0),
    "OnesLike": _between(1.0, 1.0),
    "Softsign": _between(-1.0, 1.0),
    "L2Normalization": _between(-1.0, 1.0),
    "Sin": _between(-1.0, 1.0),
    "Cos": _between(-1.0, 1.0),
    "Sign": _between(-1.0, 1.0),
    "Erf": _increasing(math.erf),
    "LogSoftmax": _between(-math.inf, 0.0),
    "OneHot": _between(0.0, 1.0),
    **dict.fromkeys(_YES_OR_NO.split(), _between(0.0, 1.0)),
    "Relu": _cut(0.0, math.inf),
    "Relu6": _cut(0.0, 6.0),
    "Relu0To1": _cut(0.0, 1.0),
    "ReluN1To1": _cut(-1.0, 1.0),
    "LeakyRelu": _leaky,
    "Elu": _increasing(lambda x: x if x > 0 else math.expm1(x)),
    "Softplus": _increasing(lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0)),
    "Exp": _increasing(math.exp),
    "Expm1": _increasing(math.expm1),
    "Log": _increasing(lambda x: math.log(x) if x > 0 else -math.inf),
    "Log1p": _increasing(lambda x: math.log1p(x) if x > -1 else -math.inf),
    "Sqrt": _increasing(lambda x: math.sqrt(max(x, 0.0))),
    **dict.fromkeys(("Rsqrt", "SquaredDifference"), _between(0.0, math.inf)),
    "Round": _increasing(lambda x: x if math.isinf(x) else float(round(x))),
    "Square": _squared,
    "Abs": _absolute,
    "Neg": _negated,
    "Sub": _subtracted,
    "Mul": _multiplied,
    "Maximum": _larger,
    "Minimum": _smaller,
    "ClipByValue": _clipped,
    "Mean": _averaged,
    "Sum": _summed,
    "Transpose": _transposed,
    "ConcatV2": _concatenated,
    "Split": _split,
    "Pack": _stacked,
    "TensorListReserve": lambda site: EMPTY,
    "TensorListFromTensor": _part,
    "TensorListSetItem": lambda site: joined(site.inputs[0], site.inputs[2]),
    "TensorListGetItem": _part,
    "TensorListStack": _part,
}
"""How each operator's bounds follow from those of its inputs."""
