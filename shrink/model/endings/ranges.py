"""Bounds of a computation's outputs, found operator by operator (interval arithmetic).

Moore, Kearfott & Cloud 2009, "Introduction to Interval Analysis", chapter 2, over tensors in place
of numbers, with one more fact: along which axis the values add up to what (a softmax: to 1). The
bounds are sound: whatever the inputs and the weights, no value lies outside. They need not be
tight, as when a tensor meets itself again (x - x): whether values do reach beyond all bounds is
told apart, and is so where weights multiply them and nothing takes them back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

Shape = tuple[int | None, ...]
_TURNS = 4
"""Of a loop, before its values are taken to be anything at the start of a turn."""


@dataclass(frozen=True)
class Range:
    """What is known of all values of a tensor.

    Attributes:
        low: no value is below.
        high: no value is above.
        reached: where a bound is infinite, whether values do go there, as far as anybody can tell.
        fixed: the values are the same for all examples: constants and weights.
        axis: the axis, counted from the last (-1), along which values add up to `total`.
        total: None where nothing is known of sums.
    """

    low: float
    high: float
    reached: bool = True
    axis: int | None = None
    total: float | None = None
    fixed: bool = False

    @property
    def unbounded(self) -> bool:
        """Whether there is no bound on one side or on both."""
        return math.isinf(self.low) or math.isinf(self.high)


ANY = Range(-math.inf, math.inf)
EMPTY = Range(math.inf, -math.inf)
UNKNOWN = Range(-math.inf, math.inf, reached=False)


@dataclass(frozen=True)
class Node:
    """An operator, with what its rule needs of it.

    Attributes:
        kind: TensorFlow's name of the operator.
        inputs: its inputs, as the graph names them.
        shape: of the output in question, with the batch; None where not even the rank is known.
        clamp: least and largest value that a fused activation leaves.
        options: what else a rule asks for, such as a slope.
        loop: of a loop, what is computed in each turn.
    """

    kind: str
    inputs: tuple[Any, ...] = ()
    shape: Shape | None = None
    clamp: tuple[float, float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    loop: Loop | None = None


@dataclass(frozen=True)
class Loop:
    """The body of a loop, whose values at the start are the operator's inputs.

    Attributes:
        arguments: the tensors that hold the values before a turn.
        results: the tensors that hold them after it.
        place: which of them the output in question is.
        collected: which of them are lists that each turn adds to.
    """

    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    place: int
    collected: frozenset[int] = frozenset()


class Computation(Protocol):
    """A graph of operators; tensors are any hashable values."""

    def node(self, tensor: Any) -> Node | None:
        """Return the operator that makes a tensor; None for an input of the model."""

    def constant(self, tensor: Any) -> np.ndarray[Any, Any] | None:
        """Return the values of a constant, None for any other tensor."""

    def shape(self, tensor: Any) -> Shape | None:
        """Return a tensor's shape with the batch, None where not even the rank is known."""


def range_of(computation: Computation, tensor: Any) -> Range:
    """Return the bounds of a tensor's values."""
    return _Analysis(computation).range_of(tensor)


class _Analysis:
    """Finds bounds backwards from a tensor; every tensor once, without recursion but in loops."""

    def __init__(self, computation: Computation, assumed: Mapping[Any, Range] | None = None):
        self.graph = computation
        self._found: dict[Any, Range] = dict(assumed or {})

    def range_of(self, tensor: Any) -> Range:
        waiting = [tensor]
        while waiting:
            current = waiting[-1]
            if current in self._found:
                waiting.pop()
                continue
            missing = self._needed(current)
            if missing:
                waiting += missing
                continue
            self._found[waiting.pop()] = self._compute(current)
        return self._found[tensor]

    def _needed(self, tensor: Any) -> list[Any]:
        """Return the inputs whose bounds are needed first; a product of weights needs none."""
        node = self.graph.node(tensor)
        if node is None or self.graph.constant(tensor) is not None:
            return []
        if node.kind not in _RULES and node.loop is None:
            return []
        return [each for each in node.inputs if each not in self._found]

    def _compute(self, tensor: Any) -> Range:
        values = self.graph.constant(tensor)
        if values is not None:
            return _range_of_values(values)
        node = self.graph.node(tensor)
        if node is None:
            return ANY
        if node.loop is not None:
            return self._looped([self._found[each] for each in node.inputs], node.loop)
        if node.kind in _WEIGHTS:
            found = replace(ANY, fixed=True)
        elif node.kind in _REAL:
            found = ANY
        elif node.kind in _RULES:
            inputs = [self._found[each] for each in node.inputs]
            found = _RULES[node.kind](_Site(node, inputs, self.graph))
            if inputs and all(each.fixed for each in inputs):
                found = replace(found, fixed=True, reached=True)
        else:
            found = UNKNOWN
        return found if node.clamp is None else _clamped(found, *node.clamp)

    def _looped(self, begin: list[Range], loop: Loop) -> Range:
        """Return bounds that a turn of the loop does not leave, starting from within them."""
        values, turns = begin, 0
        while (after := self._turn(values, loop)) != values:
            turns += 1
            values = [
                new
                if new == old or turns < (2 if place in loop.collected else 1) * _TURNS
                # What still grows may grow for ever, or not. Lists are given up last: they may
                # hold less than what is carried from turn to turn.
                else UNKNOWN
                for place, (old, new) in enumerate(zip(values, after, strict=True))
            ]
        return values[loop.place]

    def _turn(self, values: list[Range], loop: Loop) -> list[Range]:
        inner = _Analysis(self.graph, dict(zip(loop.arguments, values, strict=True)))
        after = [inner.range_of(each) for each in loop.results]
        return [_joined(*pair) for pair in zip(values, after, strict=True)]


@dataclass(frozen=True)
class _Site:
    """An operator with the bounds of its inputs."""

    node: Node
    inputs: Sequence[Range]
    graph: Computation

    def shape(self, place: int = 0) -> Shape | None:
        return self.graph.shape(self.node.inputs[place])


_Rule = Callable[[_Site], Range]


def _range_of_values(values: np.ndarray[Any, Any]) -> Range:
    if not values.size or values.dtype.kind not in "fiub" or not np.isfinite(values).all():
        return replace(ANY, fixed=True)
    return Range(float(values.min()), float(values.max()), fixed=True)


def _clamped(found: Range, low: float, high: float) -> Range:
    kept = found if found.low >= low and found.high <= high else replace(found, total=None)
    bounds = [min(max(bound, low), high) for bound in (found.low, found.high)]
    return replace(kept, low=bounds[0], high=bounds[1])


def _between(low: float, high: float) -> _Rule:
    """The bounds are the operator's own."""
    return lambda site: Range(low, high)


def _cut(low: float, high: float) -> _Rule:
    return lambda site: _clamped(site.inputs[0], low, high)


def _increasing(function: Callable[[float], float]) -> _Rule:
    """A function of each value that never falls."""

    def rule(site: _Site) -> Range:
        (x, *_) = site.inputs
        try:
            return Range(function(x.low), function(x.high), x.reached)
        except (ValueError, OverflowError):
            return replace(ANY, reached=x.reached)

    return rule


def _softmax(site: _Site) -> Range:
    return Range(0.0, 1.0, axis=-1, total=1.0)


def _same(site: _Site) -> Range:
    return site.inputs[0]


def _reordered(site: _Site) -> Range:
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
    behind = math.prod(side or 1 for side in rest)
    found = 1
    for place in range(1, len(after) + 1):
        side = after[-place]
        if side == size and found == behind:
            return -place
        if side is None:
            return None
        found *= side
    return None


def _transposed(site: _Site) -> Range:
    x, order = site.inputs[0], site.graph.constant(site.node.inputs[1])
    if x.total is None or x.axis is None:
        return x
    if order is None:
        return replace(x, axis=None, total=None)
    rank = order.size
    axis = [int(each) for each in order.reshape(-1)].index(rank + x.axis) - rank
    return replace(x, axis=axis)


def _part(site: _Site) -> Range:
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


def _split(site: _Site) -> Range:
    """A part of the second input; the first is the axis."""
    return _part(
        _Site(replace(site.node, inputs=site.node.inputs[1:]), site.inputs[1:], site.graph)
    )


def _joined(*found: Range) -> Range:
    """The bounds of values of which each comes from one of the tensors."""
    totals = {(each.axis, each.total) for each in found}
    axis, total = totals.pop() if len(totals) == 1 else (None, None)
    low, high = min(each.low for each in found), max(each.high for each in found)
    return Range(low, high, all(each.reached for each in found), axis, total)


def _concatenated(site: _Site) -> Range:
    """Several tensors side by side; the axis of sums must be as long as in each of them."""
    shapes, after = [], site.node.shape
    parts = []
    for tensor, found in zip(site.node.inputs, site.inputs, strict=True):
        if site.graph.constant(tensor) is not None and site.graph.shape(tensor) in ((), None):
            continue  # the axis itself, which is an input of TensorFlow's operator
        parts.append(found)
        shapes.append(site.graph.shape(tensor))
    found = _joined(*parts)
    if found.axis is None or after is None:
        return replace(found, axis=None, total=None)
    same = all(s is not None and s[found.axis] == after[found.axis] for s in shapes)
    return found if same and after[found.axis] is not None else replace(found, total=None)


def _stacked(site: _Site) -> Range:
    return replace(_joined(*site.inputs), axis=None, total=None)


def _all_joined(site: _Site) -> Range:
    return _joined(*site.inputs)


def _chosen(site: _Site) -> Range:
    return replace(_joined(*site.inputs[1:]), axis=None, total=None)


def _padded(site: _Site) -> Range:
    x = site.inputs[0]
    return Range(min(x.low, 0.0), max(x.high, 0.0), x.reached)


def _sum(*found: Range) -> Range:
    low, high = math.fsum(f.low for f in found), math.fsum(f.high for f in found)
    total = None
    axes = {f.axis for f in found}
    if len(axes) == 1 and all(f.total is not None for f in found):
        total = math.fsum(f.total or 0.0 for f in found)
    reached = all(f.reached for f in found) or any(_goes_anywhere(f) for f in found)
    return Range(low, high, reached, found[0].axis if total else None, total)


def _goes_anywhere(found: Range) -> bool:
    return found.reached and not found.fixed and (found.low, found.high) == (ANY.low, ANY.high)


def _met(one: Range, other: Range) -> bool:
    """Whether an infinite bound of what two tensors make together is reached.

    Two that both depend on the example may belong together, as x and the sum of all x do.
    """
    return one.reached and other.reached and (one.fixed or other.fixed)


def _added(site: _Site) -> Range:
    return _sum(*site.inputs) if _same_shapes(site) else replace(_sum(*site.inputs), total=None)


def _same_shapes(site: _Site) -> bool:
    shapes = {site.shape(place) for place in range(len(site.inputs))}
    return len(shapes) == 1 and None not in shapes


def _negated(site: _Site) -> Range:
    return _times(site.inputs[0], -1.0)


def _subtracted(site: _Site) -> Range:
    one, other = site.inputs
    found = replace(_sum(one, _times(other, -1.0)), total=None)
    return replace(found, reached=_met(one, other))


def _times(found: Range, factor: float) -> Range:
    bounds = sorted(_product(bound, factor) for bound in (found.low, found.high))
    total = None if found.total is None else found.total * factor
    return replace(found, low=bounds[0], high=bounds[1], total=total)


def _product(one: float, other: float) -> float:
    return 0.0 if 0.0 in (one, other) else one * other


def _multiplied(site: _Site) -> Range:
    one, other = site.inputs
    for found, factor in ((one, other), (other, one)):
        if factor.low == factor.high and math.isfinite(factor.low):
            return _times(found, factor.low)
    bounds = [_product(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
    if site.node.inputs[0] == site.node.inputs[1]:
        return _squared(site)
    return Range(min(bounds), max(bounds), _met(one, other))


def _divided(site: _Site) -> Range:
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


def _sum_of(site: _Site) -> list[int]:
    """Return the axes over which the divisor is the dividend's sum, none where it is not."""
    whole, divisor = site.node.inputs
    node = site.graph.node(divisor)
    if node is None or node.kind != "Sum" or node.inputs[0] != whole:
        return []
    axes, shape, kept = site.graph.constant(node.inputs[1]), site.shape(), site.shape(1)
    if axes is None or shape is None or kept is None or len(kept) != len(shape):
        return []
    return [int(a) if a < 0 else int(a) - len(shape) for a in axes.reshape(-1)]


def _squared(site: _Site) -> Range:
    x = site.inputs[0]
    ends = [_product(x.low, x.low), _product(x.high, x.high)]
    low = 0.0 if x.low <= 0 <= x.high else min(ends)
    return Range(low, max(ends), x.reached)


def _absolute(site: _Site) -> Range:
    x = site.inputs[0]
    low = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Range(low, max(abs(x.low), abs(x.high)), x.reached)


def _larger(site: _Site) -> Range:
    one, other = site.inputs
    return Range(max(one.low, other.low), max(one.high, other.high), _both_reached(site))


def _smaller(site: _Site) -> Range:
    one, other = site.inputs
    return Range(min(one.low, other.low), min(one.high, other.high), _both_reached(site))


def _both_reached(site: _Site) -> bool:
    return all(each.reached for each in site.inputs)


def _clipped(site: _Site) -> Range:
    x, least, most = site.inputs
    return _clamped(x, least.low, most.high)


def _averaged(site: _Site) -> Range:
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


def _summed(site: _Site) -> Range:
    x = site.inputs[0]
    low, high = (0.0 if x.low >= 0 else -math.inf), (0.0 if x.high <= 0 else math.inf)
    return Range(low, high, x.reached)


def _leaky(site: _Site) -> Range:
    x, slope = site.inputs[0], float(site.node.options.get("alpha", math.nan))
    if math.isnan(slope):
        return replace(ANY, reached=x.reached)
    ends = [bound if bound >= 0 else _product(bound, slope) for bound in (x.low, x.high)]
    return Range(min(ends), max(ends), x.reached)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


_PASSING = (
    "Identity IdentityN StopGradient PreventGradient EnsureShape CheckNumerics Cast Quantize "
    "Dequantize FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxArgs "
    "Snapshot CopyHost Copy"
)
_RESHAPING = "Reshape Squeeze ExpandDims"
_TAKING = (
    "StridedSlice Slice SplitV Unpack GatherV2 GatherNd ReverseV2 Tile BroadcastTo Max Min "
    "MaxPool MaxPool3D AvgPool AvgPool3D ResizeNearestNeighbor ResizeBilinear DepthToSpace "
    "SpaceToDepth BatchToSpaceND MirrorPad TopKV2 DynamicPartition"
)
_YES_OR_NO = (
    "Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot Any All "
    "IsFinite IsNan IsInf"
)
_PRODUCTS = (
    "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv3D DepthwiseConv2dNative Einsum "
    "Conv2DBackpropInput Conv3DBackpropInputV2 FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 "
    "ResourceGather Embedding Rnn Svdf"
)
_REAL = frozenset(_PRODUCTS.split())
"""Operators whose values can be anything, as weights decide."""

_WEIGHTS = frozenset({"ReadVariableOp"})

_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_PASSING.split(), _same),
    **dict.fromkeys(_RESHAPING.split(), _reordered),
    **dict.fromkeys(_TAKING.split(), _part),
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
    "TensorListSetItem": lambda site: _joined(site.inputs[0], site.inputs[2]),
    "TensorListGetItem": _part,
    "TensorListStack": _part,
}
"""How each operator's bounds follow from those of its inputs."""
