"""Which rows of its inputs an operator needs for some rows of its output.

Rows are those of tensors (1, height, width, channels). A convolution whose padding is SAME keeps it
when it runs on a window of rows: the zeros it puts above and below a window make the first and last
rows of its output wrong, so that the window is a little larger than needed and these rows are left
out. Where no window brings the stride into step, the padding becomes an operator of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

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
_TRANSPOSED = "TRANSPOSE_CONV"
RESIZES = {"RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"}
_BY_SIXTEENS = {"QUANTIZE", "DEQUANTIZE"}
"""LiteRT's built-in kernels round the last values, where 16 do not come together, another way."""
_MOST_ROWS_MORE = 4


class Window(NamedTuple):
    """How rows [first, last) of an output come about.

    Attributes:
        start: the first input row that is needed.
        end: behind the last one.
        first: the first output row of the operator, run on this window.
        last: behind the last one.
        padding: rows of zeros above and below, and columns left and right, with which the window
            is padded, for the operator to run with VALID; None where it runs as it is.
    """

    start: int
    end: int
    first: int
    last: int
    padding: tuple[int, int, int, int] | None = None


class RowRule(Protocol):
    """What an operator does to rows."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Places, among the operator's inputs, of the tensors that are cut by rows."""

    def window(self, first: int, last: int) -> Window | None:
        """Return the smallest window for output rows [first, last); None where there is none."""

    def whole(self, start: int, end: int, first: int, last: int) -> tuple[int, int] | None:
        """Return the output rows of the operator run on all rows [start, end).

        Returns:
            None where rows [first, last) would not come out right.
        """


class Pointwise:
    """Each output row comes from the same row of every input."""

    def __init__(self, inputs: Sequence[int]) -> None:
        self.inputs = tuple(inputs)

    def window(self, first: int, last: int) -> Window | None:
        """Return the same rows."""
        return Window(first, last, first, last)

    def whole(self, start: int, end: int, first: int, last: int) -> tuple[int, int] | None:
        """Return the same rows."""
        return start, end


class Sliding:
    """Kernels that slide over rows: convolutions and pools.

    Args:
        same: whether the padding is SAME.
        height: of the input.
        kernel: rows from the first to the last that a kernel touches, dilation included.
        stride: in rows.
        outputs: height of the output.
        columns: columns of zeros left and right, for convolutions, which can be padded by another
            operator; None for pools.
    """

    inputs = (0,)

    def __init__(
        self,
        same: bool,
        height: int,
        kernel: int,
        stride: int,
        outputs: int,
        columns: tuple[int, int] | None,
    ) -> None:
        self._same, self._height, self._outputs = same, height, outputs
        self._kernel, self._stride, self._columns = kernel, stride, columns
        self._above = same_padding(height, kernel, stride)[0] if same else 0
        self.window = functools.cache(self._window)  # type: ignore[method-assign]

    def window(self, first: int, last: int) -> Window | None:
        """Return the smallest window, or one that is padded."""
        return self._window(first, last)

    def _window(self, first: int, last: int) -> Window | None:
        start, end = self._needed(first, last)
        if not self._same:
            return Window(start, end, first, last)
        for size in range(end - start, end - start + _MOST_ROWS_MORE + 1):
            for begin in range(min(start, self._height - size), end - size - 1, -1):
                if begin >= 0 and (rows := self.whole(begin, begin + size, first, last)):
                    return Window(begin, begin + size, *rows)
        if self._columns is None:
            return None
        above = max(0, self._above - first * self._stride)
        below = (last - 1) * self._stride - self._above + self._kernel - self._height
        return Window(start, end, first, last, (above, max(0, below), *self._columns))

    def whole(self, start: int, end: int, first: int, last: int) -> tuple[int, int] | None:
        """Return the output rows where the stride is in step and no edge comes near."""
        low = first * self._stride - self._above
        high = (last - 1) * self._stride - self._above + self._kernel
        if not self._same:
            if start % self._stride or end - start < self._kernel or low < start or high > end:
                return None
            begin, count = start // self._stride, (end - start - self._kernel) // self._stride + 1
        else:
            above, count = same_padding(end - start, self._kernel, self._stride)
            offset = start + self._above - above
            if offset % self._stride:
                return None
            begin = offset // self._stride
            at_top = start == 0 and above == self._above
            if not (at_top or low >= start) or not (end == self._height or high <= end):
                return None
        inside = 0 <= begin <= first and last <= begin + count <= self._outputs
        return (begin, begin + count) if inside else None

    def _needed(self, first: int, last: int) -> tuple[int, int]:
        start = first * self._stride - self._above
        end = (last - 1) * self._stride - self._above + self._kernel
        return max(0, start), min(self._height, end)


class Transposed:
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

    inputs = (2,)

    def __init__(self, height: int, kernel: int, stride: int, more: int) -> None:
        self._height, self._kernel, self._stride, self._more = height, kernel, stride, more
        self._above = max(0, kernel - stride - more) // 2

    def window(self, first: int, last: int) -> Window | None:
        """Return the rows that are added up in these, and those that come before them."""
        start, end = self._needed(first, last)
        start = min(start, first // self._stride, self._height - 1)
        end = max(end, -((self._more - last) // self._stride), start + 1)
        return Window(start, end, *self._made(start, end))

    def whole(self, start: int, end: int, first: int, last: int) -> tuple[int, int] | None:
        """Return the rows that come of these, where no other one is added to those wanted."""
        low, high = self._needed(first, last)
        begin, behind = self._made(start, end)
        inside = start <= low and high <= end and begin <= first and last <= behind
        return (begin, behind) if inside else None

    def _made(self, start: int, end: int) -> tuple[int, int]:
        return start * self._stride, end * self._stride + self._more

    def _needed(self, first: int, last: int) -> tuple[int, int]:
        """Return the input rows that are added to output rows."""
        start = -((self._kernel - 1 - first - self._above) // self._stride)
        return max(0, start), min(self._height, (last - 1 + self._above) // self._stride + 1)


class Padded:
    """PAD: rows of zeros above and below."""

    inputs = (0,)

    def __init__(self, above: int, height: int) -> None:
        self.above, self.height = above, height

    def window(self, first: int, last: int) -> Window | None:
        """Return the rows of the input among these, one at least."""
        start = min(max(0, first - self.above), self.height - 1)
        end = max(min(self.height, last - self.above), start + 1)
        return Window(start, end, min(first, start + self.above), max(last, end + self.above))

    def whole(self, start: int, end: int, first: int, last: int) -> tuple[int, int] | None:
        """Return nothing: how many zeros stand above and below depends on the rows."""
        return None


class Repeated:
    """Nearest neighbours: each input row is written several times."""

    inputs = (0,)

    def __init__(self, factor: int) -> None:
        self._factor = factor

    def window(self, first: int, last: int) -> Window | None:
        """Return the rows that these are copies of."""
        start, end = first // self._factor, (last - 1) // self._factor + 1
        return Window(start, end, start * self._factor, end * self._factor)

    def whole(self, start: int, end: int, first: int, last: int) -> tuple[int, int] | None:
        """Return all copies."""
        return start * self._factor, end * self._factor


class Interpolated:
    """Bilinear: each output row lies between two input rows, or on one.

    Args:
        factor: output rows to an input row, a power of two: kernels count in fixed point.
        height: of the input.
        centred: whether rows are at the middle of what they stand for (half-pixel centres).
    """

    inputs = (0,)

    def __init__(self, factor: int, height: int, centred: bool) -> None:
        self._factor, self._height, self._centred = factor, height, centred

    def window(self, first: int, last: int) -> Window | None:
        """Return the rows on both sides of these."""
        start, end = self._between(first)[0], self._between(last - 1)[1]
        return Window(start, end, start * self._factor, end * self._factor)

    def whole(self, start: int, end: int, first: int, last: int) -> tuple[int, int] | None:
        """Return all rows, unless an edge of the window takes the place of a neighbour."""
        if self._between(first)[0] < start or self._between(last - 1)[1] > end:
            return None
        return start * self._factor, end * self._factor

    def _between(self, row: int) -> tuple[int, int]:
        """Return the input rows [start, end) that an output row is made from."""
        twice = 2 * self._factor
        start = (2 * row + 1 - self._factor) // twice if self._centred else row // self._factor
        return max(0, start), min(self._height, start + 2)


_CUT = {
    "FLOAT32",
    "INT32",
    "INT16",
    "INT8",
    "BOOL",
}
"""Types that TFLite Micro's SLICE and CONCATENATION take: what reads a uint8 input runs whole."""
_CUT_IN_LITERT = _CUT | {"UINT8"}


def same_padding(height: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the rows of zeros above that SAME adds, and the height of the output."""
    outputs = -(-height // stride)
    return max((outputs - 1) * stride + kernel - height, 0) // 2, outputs


def rule_of(graph: Graph, operator: Operator, *, litert: bool = False) -> RowRule | None:
    """Return what an operator does to rows; None where it cannot run on some of them.

    Args:
        graph: that it stands in.
        operator: one of its operators.
        litert: whether LiteRT runs the file; else TFLite Micro, whose SLICE takes no uint8.
    """
    if len(operator.outputs) != 1:
        return None
    output = graph.tensors[operator.outputs[0]].shape
    touched = graph.activations((*operator.inputs, *operator.outputs))
    types = _CUT_IN_LITERT if litert else _CUT
    if any(graph.tensors[index].dtype not in types for index in touched):
        return None
    shapes = [graph.tensors[index].shape for index in touched]
    if len(output) != 4 or any(len(shape) == 4 and shape[0] != 1 for shape in shapes):
        return None  # rows of several examples do not lie behind one another
    if operator.name in POINTWISE:
        whole = operator.name not in _BY_SIXTEENS or not math.prod(output[2:]) % 16
        return _pointwise(graph, operator, output) if whole else None
    found = _RULES.get(operator.name)
    source = graph.tensors[operator.inputs[2 if operator.name == _TRANSPOSED else 0]]
    if found is None or operator.options is None or source.constant or len(source.shape) != 4:
        return None
    return found(graph, operator)


def _pointwise(graph: Graph, operator: Operator, output: Sequence[int]) -> RowRule | None:
    by_rows = []
    for place, index in enumerate(operator.inputs):
        shape = graph.tensors[index].shape
        if shape == output and graph.is_activation(index):
            by_rows.append(place)
        elif len(shape) >= 3 and shape[-3] != 1:
            return None
    return Pointwise(by_rows) if by_rows else None


def _sliding(graph: Graph, operator: Operator) -> RowRule | None:
    options, source = operator.options, graph.tensors[operator.inputs[0]].shape
    output = graph.tensors[operator.outputs[0]].shape
    if operator.name in POOLS:
        kernel, width, columns = options.filterHeight, options.filterWidth, None
    else:
        weights = graph.tensors[operator.inputs[1]]
        if not weights.constant or len(weights.shape) != 4:
            return None
        kernel = (weights.shape[1] - 1) * max(1, options.dilationHFactor) + 1
        width = (weights.shape[2] - 1) * max(1, options.dilationWFactor) + 1
    same = options.padding == schema.Padding.SAME
    if operator.name in CONVOLUTIONS:
        left, count = same_padding(source[2], width, options.strideW)
        right = max((count - 1) * options.strideW + width - source[2], 0) - left
        columns = (left, right)
    expected = same_padding(source[1], kernel, options.strideH)[1]
    if not same:
        expected = (source[1] - kernel) // options.strideH + 1
    if expected != output[1]:
        return None
    return Sliding(same, source[1], kernel, options.strideH, output[1], columns)


def _transposed(graph: Graph, operator: Operator) -> RowRule | None:
    shape, weights = (graph.tensors[index] for index in operator.inputs[:2])
    if not shape.constant or not weights.constant or len(weights.shape) != 4:
        return None
    height, kernel = graph.tensors[operator.inputs[2]].shape[1], weights.shape[1]
    stride = operator.options.strideH
    more = graph.tensors[operator.outputs[0]].shape[1] - height * stride
    same = operator.options.padding == schema.Padding.SAME
    usual = -stride < more <= 0 if same else 0 <= more - kernel + stride < stride
    return Transposed(height, kernel, stride, more) if usual else None


def _padded(graph: Graph, operator: Operator) -> RowRule | None:
    if not graph.tensors[operator.inputs[1]].constant:
        return None
    paddings = graph.values(operator.inputs[1]).reshape(-1, 2)
    if len(paddings) != 4 or paddings[0].any() or paddings[3].any():
        return None
    return Padded(int(paddings[1][0]), graph.tensors[operator.inputs[0]].shape[1])


def _concatenated(graph: Graph, operator: Operator) -> RowRule | None:
    by_channels = operator.options.axis % 4 == 3
    activations = len(graph.activations(operator.inputs)) == len(operator.inputs)
    return Pointwise(range(len(operator.inputs))) if by_channels and activations else None


def _resized(graph: Graph, operator: Operator) -> RowRule | None:
    _, rows, columns, _ = graph.tensors[operator.inputs[0]].shape
    _, height, width, _ = graph.tensors[operator.outputs[0]].shape
    factor = height // rows
    by_power = factor > 0 and not factor & (factor - 1) and height == factor * rows
    if not by_power or width % columns or operator.options.alignCorners:
        return None
    if operator.name == "RESIZE_NEAREST_NEIGHBOR":
        return Repeated(factor)
    return Interpolated(factor, rows, operator.options.halfPixelCenters)


_RULES: dict[str, Callable[[Graph, Operator], RowRule | None]] = {
    **dict.fromkeys((*CONVOLUTIONS, *POOLS), _sliding),
    _TRANSPOSED: _transposed,
    "CONCATENATION": _concatenated,
    "PAD": _padded,
    **dict.fromkeys(RESIZES, _resized),
}
