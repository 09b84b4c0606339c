"""Which rows of its inputs an operator needs for some rows of its output.

Rows are those of tensors (1, height, width, channels). A convolution whose padding is SAME keeps it
when it runs on a window of rows: the zeros it puts above and below a window make the first and last
rows of its output wrong, so that the window is a little larger than needed and these rows are left
out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ai_edge_litert import schema_py_generated as schema

from shrink.compact.graph import Graph
from shrink.tflite.model import Operator

POINTWISE = {
    "ABS",
    "DEQUANTIZE",
    "ELU",
    "HARD_SWISH",
    "LEAKY_RELU",
    "LOGISTIC",
    "QUANTIZE",
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "TANH",
    "ADD",
    "MAXIMUM",
    "MINIMUM",
    "MUL",
    "PRELU",
    "SUB",
}
POOLS = {"MAX_POOL_2D", "AVERAGE_POOL_2D"}
CONVOLUTIONS = {"CONV_2D", "DEPTHWISE_CONV_2D"}
TRANSPOSED = "TRANSPOSE_CONV"
RESIZES = {"RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"}
_BY_SIXTEENS = {"QUANTIZE", "DEQUANTIZE"}
"""LiteRT's built-in kernels round the last values, where 16 do not come together, another way."""


class Window(NamedTuple):
    """How rows [first, last) of an output come about.

    Attributes:
        start: the first input row that is needed.
        end: behind the last one.
        first: the first output row of the operator, run on this window.
        last: behind the last one.
    """

    start: int
    end: int
    first: int
    last: int


class RowRule(NamedTuple):
    """What an operator does to rows.

    Attributes:
        inputs: positions, among the operator's inputs, of the tensors that are cut by rows.
        window: returns the smallest window for output rows [first, last).
    """

    inputs: tuple[int, ...]
    window: Callable[[int, int], Window]


def pointwise(inputs: Sequence[int]) -> RowRule:
    """Each output row comes from the same row of every input."""
    return RowRule(tuple(inputs), lambda first, last: Window(first, last, first, last))


def sliding(same: bool, height: int, kernel: int, stride: int, outputs: int) -> RowRule:
    """Kernels that slide over rows: convolutions and pools.

    Args:
        same: whether the padding is SAME.
        height: of the input.
        kernel: rows from the first to the last that a kernel touches, dilation included.
        stride: in rows.
        outputs: height of the output.
    """
    padded_above = same_padding(height, kernel, stride)[0] if same else 0

    @functools.cache
    def window(first: int, last: int) -> Window:
        low = first * stride - padded_above
        high = (last - 1) * stride - padded_above + kernel
        start, end = max(0, low), min(height, high)
        if not same:
            return Window(start, end, first, last)
        for size in range(end - start, height + 1):
            for begin in range(min(start, height - size), end - size - 1, -1):
                # The stride has to be in step, and no edge of the window may come near.
                above, count = same_padding(size, kernel, stride)
                row, out_of_step = divmod(begin + padded_above - above, stride)
                at_top = begin == 0 and above == padded_above
                at_bottom = begin + size == height
                inside = 0 <= row <= first and last <= row + count <= outputs
                right = (at_top or low >= begin) and (at_bottom or high <= begin + size)
                if begin >= 0 and not out_of_step and inside and right:
                    return Window(begin, begin + size, row, row + count)
        raise AssertionError("all rows are a window")

    return RowRule((0,), window)


def transposed(height: int, kernel: int, stride: int, more: int) -> RowRule:
    """Transposed convolutions: each input row is added to as many output rows as a kernel has.

    From n input rows the operator makes `n * stride + more` rows. With SAME, `more` is from
    1 - stride to 0, with VALID from kernel - stride on; either way the rows that are left out above
    do not depend on n, so that a window needs no other padding.

    Args:
        height: of the input.
        kernel: rows of the kernel.
        stride: in rows.
        more: output rows beyond a stride for each input row.
    """
    above = max(0, kernel - stride - more) // 2

    def window(first: int, last: int) -> Window:
        """Return the rows that are added up in these, and those that come before them."""
        start = max(0, -((kernel - 1 - first - above) // stride))
        start = min(start, first // stride, height - 1)
        end = min(height, (last - 1 + above) // stride + 1)
        end = max(end, -((more - last) // stride), start + 1)
        return Window(start, end, start * stride, end * stride + more)

    return RowRule((2,), window)


def padded(above: int, height: int) -> RowRule:
    """PAD: rows of zeros above and below."""

    def window(first: int, last: int) -> Window:
        """Return the rows of the input among these, one at least."""
        start = min(max(0, first - above), height - 1)
        end = max(min(height, last - above), start + 1)
        return Window(start, end, min(first, start + above), max(last, end + above))

    return RowRule((0,), window)


def repeated(factor: int) -> RowRule:
    """Nearest neighbours: each input row is written several times."""

    def window(first: int, last: int) -> Window:
        start, end = first // factor, (last - 1) // factor + 1
        return Window(start, end, start * factor, end * factor)

    return RowRule((0,), window)


def interpolated(factor: int, height: int, centred: bool) -> RowRule:
    """Bilinear: each output row lies between two input rows, or on one.

    Args:
        factor: output rows to an input row, a power of two: kernels count in fixed point.
        height: of the input.
        centred: whether rows are at the middle of what they stand for (half-pixel centres).
    """

    def before(row: int) -> int:
        return (2 * row + 1 - factor) // (2 * factor) if centred else row // factor

    def window(first: int, last: int) -> Window:
        start, end = max(0, before(first)), min(height, max(0, before(last - 1)) + 2)
        return Window(start, end, start * factor, end * factor)

    return RowRule((0,), window)


_CUT = {
    "FLOAT32",
    "INT32",
    "INT16",
    "INT8",
    "BOOL",
}
"""Types that TFLite Micro's SLICE and CONCATENATION take: what reads a uint8 input runs whole."""


def same_padding(height: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the rows of zeros above that SAME adds, and the height of the output."""
    outputs = -(-height // stride)
    return max((outputs - 1) * stride + kernel - height, 0) // 2, outputs


def rule_of(graph: Graph, operator: Operator) -> RowRule | None:
    """Return what an operator does to rows; None where it cannot run on some of them.

    Args:
        graph: that it stands in.
        operator: one of its operators.
    """
    if len(operator.outputs) != 1:
        return None
    output = graph.tensors[operator.outputs[0]].shape
    touched = graph.activations((*operator.inputs, *operator.outputs))
    if any(graph.tensors[index].dtype not in _CUT for index in touched):
        return None
    shapes = [graph.tensors[index].shape for index in touched]
    if len(output) != 4 or any(len(shape) == 4 and shape[0] != 1 for shape in shapes):
        return None  # rows of several examples do not lie behind one another
    if operator.name in POINTWISE:
        whole = operator.name not in _BY_SIXTEENS or not math.prod(output[2:]) % 16
        return _pointwise(graph, operator, output) if whole else None
    found = _RULES.get(operator.name)
    source = graph.tensors[operator.inputs[2 if operator.name == TRANSPOSED else 0]]
    if found is None or operator.options is None or source.constant or len(source.shape) != 4:
        return None
    return found(graph, operator)


def _pointwise(graph: Graph, operator: Operator, output: Sequence[int]) -> RowRule | None:
    by_rows = []
    for position, index in enumerate(operator.inputs):
        shape = graph.tensors[index].shape
        if shape == output and graph.is_activation(index):
            by_rows.append(position)
        elif len(shape) >= 3 and shape[-3] != 1:
            return None
    return pointwise(by_rows) if by_rows else None


def _sliding(graph: Graph, operator: Operator) -> RowRule | None:
    options, source = operator.options, graph.tensors[operator.inputs[0]].shape
    output = graph.tensors[operator.outputs[0]].shape
    if operator.name in POOLS:
        kernel = options.filterHeight
    else:
        weights = graph.tensors[operator.inputs[1]]
        if not weights.constant or len(weights.shape) != 4:
            return None
        kernel = (weights.shape[1] - 1) * max(1, options.dilationHFactor) + 1
    same = options.padding == schema.Padding.SAME
    expected = same_padding(source[1], kernel, options.strideH)[1]
    if not same:
        expected = (source[1] - kernel) // options.strideH + 1
    if expected != output[1]:
        return None
    return sliding(same, source[1], kernel, options.strideH, output[1])


def _transposed(graph: Graph, operator: Operator) -> RowRule | None:
    shape, weights = (graph.tensors[index] for index in operator.inputs[:2])
    if not shape.constant or not weights.constant or len(weights.shape) != 4:
        return None
    height, kernel = graph.tensors[operator.inputs[2]].shape[1], weights.shape[1]
    stride = operator.options.strideH
    more = graph.tensors[operator.outputs[0]].shape[1] - height * stride
    same = operator.options.padding == schema.Padding.SAME
    usual = -stride < more <= 0 if same else 0 <= more - kernel + stride < stride
    return transposed(height, kernel, stride, more) if usual else None


def _padded(graph: Graph, operator: Operator) -> RowRule | None:
    if not graph.tensors[operator.inputs[1]].constant:
        return None
    paddings = graph.values(operator.inputs[1]).reshape(-1, 2)
    if len(paddings) != 4 or paddings[0].any() or paddings[3].any():
        return None
    return padded(int(paddings[1][0]), graph.tensors[operator.inputs[0]].shape[1])


def _concatenated(graph: Graph, operator: Operator) -> RowRule | None:
    by_channels = operator.options.axis % 4 == 3
    activations = len(graph.activations(operator.inputs)) == len(operator.inputs)
    return pointwise(range(len(operator.inputs))) if by_channels and activations else None


def _resized(graph: Graph, operator: Operator) -> RowRule | None:
    _, rows, columns, _ = graph.tensors[operator.inputs[0]].shape
    _, height, width, _ = graph.tensors[operator.outputs[0]].shape
    factor = height // rows
    by_power = factor > 0 and not factor & (factor - 1) and height == factor * rows
    if not by_power or width % columns or operator.options.alignCorners:
        return None
    if operator.name == "RESIZE_NEAREST_NEIGHBOR":
        return repeated(factor)
    return interpolated(factor, rows, operator.options.halfPixelCenters)


_RULES: dict[str, Callable[[Graph, Operator], RowRule | None]] = {
    **dict.fromkeys((*CONVOLUTIONS, *POOLS), _sliding),
    TRANSPOSED: _transposed,
    "CONCATENATION": _concatenated,
    "PAD": _padded,
    **dict.fromkeys(RESIZES, _resized),
}
