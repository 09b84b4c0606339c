"""Which operators XNNPACK takes: LiteRT's delegate for processors, by its own conditions.

Each rule yields why an operator stays with LiteRT's built-in kernels; one of which nothing is
yielded is delegated. Types are those of the delegate with its defaults in LiteRT: float, signed and
unsigned integers of 8 bits, weights of dynamic ranges.

Source: LiteRT, tflite/delegates/xnnpack/README.md and xnnpack_delegate.cc (VisitNode), 2026-08.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from shrink.compact.targets.conditions import (
    Reasons,
    activation,
    biased,
    fixed,
    float_or_int8,
    floats,
    kernel,
    pairs_of_scales,
    same_types,
    scale_between,
)
from shrink.compact.targets.view import Node, View

_MOST_DIMENSIONS = 6
_MOST_CONCATENATED = 5
_MOST_PARTS = 4
_SUM_SCALES = (2.0**-10, 2.0**8)
_PRODUCT_SCALES = (2.0**-16, 2.0**8)
_RESCALES = (2.0**-8, 2.0**7)
_LARGEST_SLOPE = 127.99609375

Rule = Callable[[Node, Collection[int]], Reasons]
"""Why an operator stays, given it and the tensors that the delegate unpacks before it runs."""


def staying(view: View) -> dict[int, str]:
    """Return why each operator that XNNPACK leaves stays on LiteRT's kernels, by its place."""
    unpacked = _unpackers(view)
    static = {node.outputs[0].index for node in view.nodes if node.place in unpacked}
    found: dict[int, str] = {}
    for node in view.nodes:
        if node.place not in unpacked:
            reason = next(_reasons(node, static), None)
            if reason is not None:
                found[node.place] = reason
    read_outside = {v.index for p in found for v in view.nodes[p].inputs if v is not None}
    for place in unpacked:
        output = view.nodes[place].outputs[0].index
        if output in read_outside or output in view.outputs:
            found[place] = "what it writes is also read by an operator that stays"
    return dict(sorted(found.items()))


def _unpackers(view: View) -> set[int]:
    """Return the operators that only unpack a constant, which the delegate does once."""
    found: set[int] = set()
    constant: set[int] = set()
    for node in view.nodes:
        if len(node.inputs) != 1 or len(node.outputs) != 1 or node.inputs[0] is None:
            continue
        source, output = node.inputs[0], node.outputs[0]
        fixed = source.constant or source.index in constant
        if node.kind == "DEQUANTIZE":
            stored = source.dtype == "FLOAT16" or (source.dtype == "INT8" and source.scales)
            taken = bool(stored) and not source.sparse and output.dtype == "FLOAT32"
        else:
            stored = source.dtype in ("FLOAT32", "FLOAT16", "INT8") and source.sparse
            taken = node.kind == "DENSIFY" and bool(stored) and output.dtype == source.dtype
        if fixed and taken:
            found.add(node.place)
            constant.add(output.index)
    return found


def _reasons(node: Node, static: Collection[int]) -> Reasons:
    rule = None if node.custom else _RULES.get(node.kind)
    if rule is None:
        yield "XNNPACK has no such operator"
        return
    yield from rule(node, static)


def _convolution(node: Node, static: Collection[int]) -> Reasons:
    depthwise = node.kind == "DEPTHWISE_CONV_2D"
    source, weights, bias, output = (*(node.given(i) for i in range(3)), node.outputs[0])
    yield from float_or_int8(source)
    yield from kernel(weights, 3 if depthwise else 0)
    yield from fixed(weights, static, "weights")
    yield from biased(bias)
    yield from fixed(bias, static, "biases")
    yield from float_or_int8(output)
    assert source is not None
    assert weights is not None
    dynamic = not depthwise and source.dtype == "FLOAT32" and weights.dtype == "INT8"
    yield from same_types(source, output)
    if not dynamic:
        yield from same_types(source, weights)
    if not depthwise and source.shape[3] < weights.shape[3]:
        yield "its groups are not whole"
    yield from activation(node)


def _fully_connected(node: Node, static: Collection[int]) -> Reasons:
    source, weights, output = node.given(0), node.given(1), node.outputs[0]
    bias = node.given(2)
    if node.option("weightsFormat"):
        yield "its weights are shuffled"
    yield from float_or_int8(source)
    assert source is not None
    if weights is None or len(weights.shape) != 2:
        yield "its weights have no two dimensions"
    assert weights is not None
    if weights.dtype not in ("INT2", "INT4"):
        yield from kernel(weights, 0)
    elif len(weights.scales) > 1 and weights.axis != 0:
        yield f"its weights have scales along dimension {weights.axis}, not 0"
    if weights.dtype != "FLOAT32":
        yield from fixed(weights, static, "weights")
    if bias is not None:
        yield from biased(bias)
    yield from float_or_int8(output)
    yield from same_types(source, output)
    narrow = weights.dtype in ("INT2", "INT4", "INT8")
    if not (narrow and (source.is_float or source.dtype == "INT8")):
        yield from same_types(source, weights)
    if source.dtype == "INT8" and weights.dtype == "INT8" and any(weights.zero_points):
        yield "its weights have a zero point"
    if weights.dtype == "INT4" and weights.shape[1] % 2:
        yield "its weights of 4 bits are of an odd number of inputs"
    yield from activation(node)


def _transposed_convolution(node: Node, static: Collection[int]) -> Reasons:
    shape, weights, source = (node.given(i) for i in range(3))
    output = node.outputs[0]
    yield from fixed(shape, (), "sizes")
    yield from fixed(weights, static, "weights")
    yield from float_or_int8(source, halves=False)
    yield from kernel(weights, 0)
    if (bias := node.given(3)) is not None:
        yield from biased(bias)
        yield from fixed(bias, static, "biases")
    yield from float_or_int8(output, halves=False)
    yield from activation(node)


def _average_pool(node: Node, _: Collection[int]) -> Reasons:
    yield from floats(node.given(0), node.outputs[0])
    yield from _window(node)


def _max_pool(node: Node, _: Collection[int]) -> Reasons:
    yield from float_or_int8(node.given(0), halves=False)
    yield from float_or_int8(node.outputs[0])
    yield from _window(node)


def _window(node: Node) -> Reasons:
    for side in "HW":
        word = {"H": "Height", "W": "Width"}[side]
        stride, size = node.option(f"stride{side}", 1), node.option(f"filter{word}", 1)
        if stride > size:
            yield f"its stride of {stride} is larger than its window of {size}"
    yield from activation(node)


def _sum(node: Node, _: Collection[int]) -> Reasons:
    yield from _elementwise(node)
    for own, output in pairs_of_scales(node):
        yield from scale_between(own / output, _SUM_SCALES, "an input's scale by the output's")
    yield from activation(node)


def _product(node: Node, _: Collection[int]) -> Reasons:
    yield from _elementwise(node)
    pairs = list(pairs_of_scales(node))
    if len(pairs) == 2:
        ratio = pairs[0][0] * pairs[1][0] / pairs[0][1]
        yield from scale_between(ratio, _PRODUCT_SCALES, "the scales' product by the output's")
    yield from activation(node)


def _elementwise(node: Node) -> Reasons:
    values = (node.given(0), node.given(1), node.outputs[0])
    yield from _few_dimensions(node)
    yield from float_or_int8(*values)
    yield from same_types(*values)


def _few_dimensions(node: Node) -> Reasons:
    if any(len(value.shape) > _MOST_DIMENSIONS for value in node.values):
        yield f"it has more than {_MOST_DIMENSIONS} dimensions"


def _float_pair(node: Node, static: Collection[int]) -> Reasons:
    yield from _few_dimensions(node)
    yield from floats(node.given(0), node.given(1), node.outputs[0])
    if node.kind == "PRELU":
        yield from fixed(node.given(1), static, "slopes")
    if node.kind == "DIV":
        yield from activation(node)


def _float_alone(node: Node, _: Collection[int]) -> Reasons:
    yield from _few_dimensions(node)
    yield from floats(node.given(0), node.outputs[0])


def _either_alone(node: Node, _: Collection[int]) -> Reasons:
    yield from _few_dimensions(node)
    yield from float_or_int8(node.given(0), node.outputs[0])
    if node.kind == "ELU" and any(value.dtype == "UINT8" for value in node.values):
        yield "it is unsigned"


def _softmax(node: Node, _: Collection[int]) -> Reasons:
    if getattr(node.options, "beta", 1.0) != 1.0:
        yield "its beta is not 1"
    yield from floats(node.given(0), node.outputs[0])


def _dequantize(node: Node, _: Collection[int]) -> Reasons:
    source = node.given(0)
    if source is None or not source.is_int8:
        yield f"what it reads is {'left out' if source is None else source.dtype}"
    yield from float_or_int8(source)
    yield from floats(node.outputs[0])


def _quantize(node: Node, _: Collection[int]) -> Reasons:
    source, output = node.given(0), node.outputs[0]
    yield from float_or_int8(source, output)
    assert source is not None
    if source.is_float:
        return
    if source.dtype != output.dtype:
        yield f"it turns {source.dtype} into {output.dtype}"
    for own, other in pairs_of_scales(node):
        if not _RESCALES[0] <= own / other <= _RESCALES[1]:
            yield f"its scales are {own / other:.3g} apart"


def _leaky_relu(node: Node, _: Collection[int]) -> Reasons:
    slope = float(getattr(node.options, "alpha", 0.0))
    yield from float_or_int8(node.given(0), node.outputs[0])
    if slope == 0.0 or not math.isfinite(slope):
        yield f"its slope is {slope:g}"
    for own, output in pairs_of_scales(node):
        ratio = own / output
        below = ratio * slope
        if not _RESCALES[0] <= ratio <= _RESCALES[1]:
            yield f"its scales are {ratio:.3g} apart"
        if not -_LARGEST_SLOPE <= below <= _RESCALES[1] or abs(below) < _RESCALES[0]:
            yield f"its slope is {below:.3g} of the output's scale"


def _concatenation(node: Node, _: Collection[int]) -> Reasons:
    if not 2 <= len(node.inputs) <= _MOST_CONCATENATED:
        yield f"it has {len(node.inputs)} inputs, 2 to {_MOST_CONCATENATED} are taken"
    yield from float_or_int8(*node.inputs, node.outputs[0])
    output = node.outputs[0]
    known = (output.scales, output.zero_points)
    others = [(one.scales, one.zero_points) for one in node.inputs if one is not None]
    if output.dtype == "UINT8" and any(one != known for one in others):
        yield "its unsigned inputs have other scales than its output"


def _reduction(node: Node, _: Collection[int]) -> Reasons:
    axes = node.given(1)
    yield from float_or_int8(node.given(0))
    yield from fixed(axes, (), "axes")
    if axes is not None and axes.dtype != "INT32":
        yield f"its axes are {axes.dtype}"
    yield from float_or_int8(node.outputs[0])


def _pad(node: Node, _: Collection[int]) -> Reasons:
    source, sizes = node.given(0), node.given(1)
    yield from float_or_int8(source)
    yield from _few_dimensions(node)
    yield from fixed(sizes, (), "sizes")
    if sizes is not None and sizes.dtype != "INT32":
        yield f"its sizes are {sizes.dtype}"
    if sizes is not None and any(size < 0 for size in sizes.integers()):
        yield "it takes rows or columns away"
    yield from float_or_int8(node.outputs[0])


def _reshape(node: Node, _: Collection[int]) -> Reasons:
    source, output = node.given(0), node.outputs[0]
    yield from float_or_int8(source, output)
    yield from _few_dimensions(node)
    assert source is not None
    same = (source.scales, source.zero_points) == (output.scales, output.zero_points)
    if output.is_int8 and not same:
        yield "its output has another scale than its input"
    if len(node.inputs) == 2:
        yield from fixed(node.given(1), (), "sizes")


def _resize(node: Node, _: Collection[int]) -> Reasons:
    yield from float_or_int8(node.given(0), halves=False)
    yield from fixed(node.given(1), (), "sizes")
    yield from float_or_int8(node.outputs[0])


def _slice(node: Node, _: Collection[int]) -> Reasons:
    begin, size = node.given(1), node.given(2)
    yield from fixed(begin, (), "positions")
    yield from fixed(size, (), "sizes")
    yield from _few_dimensions(node)
    yield from float_or_int8(node.given(0), node.outputs[0])
    assert begin is not None
    assert size is not None
    if any(one < 0 for one in begin.integers()):
        yield "it begins before what it reads"
    if any(one <= 0 for one in size.integers()):
        yield "the size of a dimension is left open"


def _strided_slice(node: Node, _: Collection[int]) -> Reasons:
    if any(node.option(f"{mask}Mask") for mask in ("ellipsis", "newAxis", "shrinkAxis")):
        yield "it adds or removes a dimension"
    for position, what in ((1, "positions"), (2, "ends"), (3, "strides")):
        yield from fixed(node.given(position), (), what)
    strides = node.given(3)
    assert strides is not None
    if any(one != 1 for one in strides.integers()):
        yield "its strides are not 1"
    yield from float_or_int8(node.given(0), node.outputs[0])


def _split(node: Node, _: Collection[int]) -> Reasons:
    if not 2 <= len(node.outputs) <= _MOST_PARTS:
        yield f"it has {len(node.outputs)} outputs, 2 to {_MOST_PARTS} are taken"
    yield from fixed(node.given(0), (), "dimensions")
    yield from float_or_int8(node.given(1), *node.outputs)


def _transpose(node: Node, _: Collection[int]) -> Reasons:
    yield from float_or_int8(node.given(0))
    yield from _few_dimensions(node)
    yield from fixed(node.given(1), (), "dimensions")


def _blocks(node: Node, _: Collection[int]) -> Reasons:
    """Yield of DEPTH_TO_SPACE and SPACE_TO_DEPTH."""
    size = node.option("blockSize")
    source = node.given(0)
    yield from float_or_int8(source, halves=node.kind == "DEPTH_TO_SPACE")
    yield from float_or_int8(node.outputs[0])
    assert source is not None
    if size <= 1:
        yield f"its blocks are of {size}"
    if node.kind == "SPACE_TO_DEPTH" and any(side % size for side in source.shape[1:3]):
        yield "its sides are no multiple of its blocks"


def _matrix_product(node: Node, _: Collection[int]) -> Reasons:
    one, other = node.given(0), node.given(1)
    yield from float_or_int8(one)
    assert one is not None
    if other is not None:
        last = len(other.shape) - (2 if node.option("adjY") else 1)
        yield from kernel(other, last)
    assert other is not None
    dynamic = one.dtype == "FLOAT32" and other.dtype == "INT8"
    if other.dtype == "INT8" and not dynamic and other.zero_point:
        yield "what it multiplies with has a zero point"
    yield from float_or_int8(node.outputs[0])
    if not dynamic:
        yield from same_types(one, other)
    if min(len(one.shape), len(other.shape)) < 2:
        yield "it has fewer than 2 dimensions"


_FLOAT_ALONE = (
    "ABS CEIL COS EXP FLOOR GELU HARD_SWISH LOG NEG RELU RELU6 RELU_N1_TO_1 ROUND RSQRT SIN SQRT "
    "SQUARE"
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_FLOAT_ALONE.split(), _float_alone),
    **dict.fromkeys(("DIV", "MAXIMUM", "MINIMUM", "PRELU", "SQUARED_DIFFERENCE"), _float_pair),
    **dict.fromkeys(("ELU", "LOGISTIC", "TANH"), _either_alone),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), _reduction),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _convolution),
    **dict.fromkeys(("ADD", "SUB"), _sum),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), _blocks),
    "MUL": _product,
    "FULLY_CONNECTED": _fully_connected,
    "TRANSPOSE_CONV": _transposed_convolution,
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": _max_pool,
    "SOFTMAX": _softmax,
    "DEQUANTIZE": _dequantize,
    "QUANTIZE": _quantize,
    "LEAKY_RELU": _leaky_relu,
    "CONCATENATION": _concatenation,
    "PAD": _pad,
    "RESHAPE": _reshape,
    "RESIZE_BILINEAR": _resize,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "SPLIT": _split,
    "TRANSPOSE": _transpose,
    "BATCH_MATMUL": _matrix_product,
}
