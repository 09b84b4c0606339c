"""Which operators the Edge TPU's compiler maps, by its public list of operators and limits.

The compiler itself is no part of this, and maps less where a tensor is too large or a resize would
lose precision; what this leaves on the CPU, it leaves there. It maps one piece of the model: what
reads, at once or through others, the output of an operator that it does not take stays on the CPU.
Operators that only turn float inputs of the model into integers stay before that piece.

Source: coral.ai/docs/edgetpu/models-intro, "Model requirements" and "Supported operations", of
compiler 16.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shrink.compact.targets.conditions import Reasons, fixed, name_of
from shrink.compact.targets.view import Node, Value, View

SOURCE = "the Edge TPU's public list of operators (compiler 16.0)"

_MOST_DIMENSIONS = 3
_MOST_SOFTMAX = 16_000
_DEPTH_STEP = 4
_BIASES = ("INT32", "INT64")

Rule = Callable[[Node], Reasons]


def staying(view: View) -> dict[int, str]:
    """Return why each operator that is not mapped stays on the CPU, by its place."""
    found: dict[int, str] = {}
    behind: dict[int, Node] = {}
    for node in view.nodes:
        before = next((behind[v.index] for v in node.read if v.index in behind), None)
        reason = next(_reasons(node), None)
        if before is not None:
            reason = reason or (
                f"it comes after operator {before.place}, {before.kind}, which is not mapped: one "
                "piece of a model is"
            )
        elif reason is not None and not _is_border(node, view):
            before = node
        if reason is not None:
            found[node.place] = reason
        if before is not None:
            behind |= dict.fromkeys((value.index for value in node.outputs), before)
    return found


def _is_border(node: Node, view: View) -> bool:
    """Return whether it turns a float input of the model into integers."""
    source = node.given(0)
    return (
        node.kind == "QUANTIZE"
        and source is not None
        and source.is_float
        and source.index in view.inputs
    )


def _reasons(node: Node) -> Reasons:
    rule = None if node.custom else _RULES.get(node.kind)
    if rule is None:
        yield "the Edge TPU has no such operator"
        return
    for value in node.values:
        yield from _tensor(value)
    yield from rule(node)


def _tensor(value: Value) -> Reasons:
    name = name_of(value)
    bias_or_size = value.constant and value.dtype in _BIASES
    if not value.is_int8 and not bias_or_size:
        yield f"{name} is {value.dtype}, and 8-bit integers are mapped"
    elif value.is_int8 and not value.scales:
        yield f"{name} has no scale"
    if value.open_dimensions:
        yield f"a dimension of {name} is known only when the model runs"
    outer = value.shape[:-_MOST_DIMENSIONS]
    if not value.constant and any(size != 1 for size in outer):
        yield f"{name} has more than {_MOST_DIMENSIONS} dimensions larger than 1"


def _any(_: Node) -> Reasons:
    yield from ()


def _no_activation(node: Node) -> Reasons:
    if node.activation != "NONE":
        yield f"the activation {node.activation} is part of it"


def _convolution(node: Node) -> Reasons:
    yield from fixed(node.given(1), (), "weights")
    if node.given(2) is not None:
        yield from fixed(node.given(2), (), "biases")
    across, down = node.option("dilationWFactor", 1), node.option("dilationHFactor", 1)
    if across != down:
        yield f"its dilation is {down} down and {across} across"


def _fully_connected(node: Node) -> Reasons:
    yield from fixed(node.given(1), (), "weights")
    if node.option("weightsFormat"):
        yield "its weights are shuffled"
    shape = node.outputs[0].shape
    if math.prod(shape) != shape[-1]:
        yield f"its output {shape} has more than one dimension"


def _transposed_convolution(node: Node) -> Reasons:
    yield from fixed(node.given(0), (), "sizes")
    yield from fixed(node.given(1), (), "weights")


def _concatenation(node: Node) -> Reasons:
    yield from _no_activation(node)
    constants = [one for one in node.inputs if one is not None and one.constant]
    if constants and len(node.inputs) != 2:
        yield "one of its more than 2 inputs is a constant"
    if any((one.data != one.zero_point % 256).any() for one in constants):
        yield "it appends a constant that is not zero"


def _axes(node: Node) -> list[int]:
    axes, source = node.given(1), node.given(0)
    rank = 0 if source is None else len(source.shape)
    return [] if axes is None else [axis % rank if rank else axis for axis in axes.integers()]


def _reduction(node: Node) -> Reasons:
    source = node.given(0)
    assert source is not None
    yield from fixed(node.given(1), (), "axes")
    axes, rank = _axes(node), len(source.shape)
    if 0 in axes and rank > _MOST_DIMENSIONS:
        yield "it reduces the batch"
    if node.kind == "MEAN" and rank - 1 in axes and source.shape[-1] % _DEPTH_STEP:
        yield f"it averages {source.shape[-1]} channels, no multiple of {_DEPTH_STEP}"


def _pad(node: Node) -> Reasons:
    source, sizes = node.given(0), node.given(1)
    yield from fixed(sizes, (), "sizes")
    assert source is not None
    assert sizes is not None
    if len(source.shape) > _MOST_DIMENSIONS and any(sizes.integers()[:2]):
        yield "it pads the batch"


def _prelu(node: Node) -> Reasons:
    slope = node.given(1)
    yield from fixed(slope, (), "slopes")
    assert slope is not None
    if any(size != 1 for size in slope.shape[:-1]):
        yield f"its slopes {slope.shape} differ along more than the channels"


def _pack(node: Node) -> Reasons:
    if node.option("axis") in (0, -len(node.outputs[0].shape)):
        yield "it packs along the batch"


def _split(node: Node) -> Reasons:
    source = node.given(1)
    axis = node.given(0)
    yield from fixed(axis, (), "dimensions")
    assert source is not None
    assert axis is not None
    rank = len(source.shape)
    if rank > _MOST_DIMENSIONS and {0, -rank} & set(axis.integers()):
        yield "it splits the batch"


def _softmax(node: Node) -> Reasons:
    source = node.given(0)
    assert source is not None
    if math.prod(source.shape) != source.shape[-1]:
        yield f"its input {source.shape} has more than one dimension"
    if source.shape[-1] > _MOST_SOFTMAX:
        yield f"it is over {source.shape[-1]:,} values, at most {_MOST_SOFTMAX:,} are mapped"


def _squeeze(node: Node) -> Reasons:
    source = node.given(0)
    assert source is not None
    large = [place for place, size in enumerate(source.shape) if size != 1]
    if (
        large
        and source.shape[large[0] :] != node.outputs[0].shape[-(len(source.shape) - large[0]) :]
    ):
        yield "it removes a dimension that is not before all others"


def _strided_slice(node: Node) -> Reasons:
    if node.option("ellipsisMask") or node.option("newAxisMask"):
        yield "it adds a dimension"
    strides = node.given(3)
    yield from fixed(strides, (), "strides")
    assert strides is not None
    if any(one != 1 for one in strides.integers()):
        yield "its strides are not 1"


def _lstm(node: Node) -> Reasons:
    if node.kind != "UNIDIRECTIONAL_SEQUENCE_LSTM":
        yield "only LSTMs of one direction are mapped"


_SIMPLE = (
    "ADD EXPAND_DIMS L2_NORMALIZATION LOGISTIC MAXIMUM MINIMUM MUL QUANTIZE RELU RELU6 "
    "RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SPACE_TO_DEPTH "
    "SQUARED_DIFFERENCE SUB TANH TRANSPOSE"
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SIMPLE.split(), _any),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _no_activation),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _convolution),
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"), _reduction),
    **dict.fromkeys(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), _lstm),
    "CONCATENATION": _concatenation,
    "FULLY_CONNECTED": _fully_connected,
    "PACK": _pack,
    "PAD": _pad,
    "PRELU": _prelu,
    "SOFTMAX": _softmax,
    "SPLIT": _split,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE_CONV": _transposed_convolution,
}
