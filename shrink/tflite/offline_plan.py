"""Offline memory plans in .tflite files: read, checked against what the operators do, written.

A file's metadata may say where in the arena each activation lies; TFLite Micro takes the offsets as
they are (tensorflow/lite/micro/docs/memory_management.md) and checks only how many there are. A
wrong plan reads what another tensor has overwritten, without an error. Here a plan is run byte by
byte: what an operator reads has to be what was written for it.

A plan may place an output over bytes that no later operator reads, a SLICE or a GATHER of rows
inside its input, the inputs of a CONCATENATION inside its output, a RESHAPE on its input, and an
elementwise result on an operand of the same size. It may not place any other output over what its
operator reads: some kernels write while they read.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.tflite.model import (
    PLAN_ENTRY,
    Operator,
    Subgraph,
    Tensor,
    packed,
    read,
    read_metadata,
    unpacked,
    values,
)
from shrink.tflite.planner import aligned, tensor_bytes

ONLINE = -1
"""The offset of a tensor that TFLite Micro places itself."""

_VERSION, _HEADER = 1, 3
_MOST_BYTES = (1 << 31) - 1
_MOST_STEPS = 2_000_000
"""Pieces of tensors that a check may look at; plans that need more are refused."""
_MOST_RUNS = 1 << 14
_AGAIN = "remove the plan (any edit by shrink does), or make the file again"
_COPIES = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})
_ELEMENTWISE = frozenset(
    {
        "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "RELU", "RELU6", "LOGISTIC", "TANH",
        "HARD_SWISH", "LEAKY_RELU", "ABS", "QUANTIZE",
    }
)  # fmt: skip
"""Operators whose kernels read each element before they write the one at its place."""
_COMPILED = frozenset({"ethos-u"})
"""Operators whose compiler planned their work memory, over their own inputs and outputs."""


@dataclass(frozen=True)
class OfflinePlan:
    """Where activations lie in the arena.

    Attributes:
        offsets: in bytes by the tensor's index; ONLINE for constants and for tensors that TFLite
            Micro places itself.
        size_bytes: of the arena's part that the plan lays out, to 16 bytes.
    """

    offsets: tuple[int, ...]
    size_bytes: int

    @property
    def placed(self) -> int:
        """The number of tensors that have an offset."""
        return sum(offset != ONLINE for offset in self.offsets)


def read_plan(content: bytes) -> OfflinePlan | None:
    """Return the memory plan of a .tflite file, None where it has none.

    Raises:
        ModelError: the content is no TFLite model, or the plan is wrong: not one offset for each
            tensor, an offset that does not suit the tensor's type, or bytes that are overwritten
            before they are read. The message names the tensors.
    """
    entries = read_metadata(content, PLAN_ENTRY)
    if not entries:
        return None
    graphs = read(content)
    if len(entries) > 1:
        raise _wrong(f"the file has {len(entries)} of them")
    if len(graphs) > 1:
        raise _wrong(f"the file has {len(graphs)} subgraphs, for which plans are not checked")
    graph = graphs[0]
    offsets = _offsets(entries[0], graph)
    check_plan(graph, offsets)
    ends = (o + tensor_bytes(t) for o, t in zip(offsets, graph.tensors, strict=True) if o >= 0)
    return OfflinePlan(offsets, aligned(max(ends, default=0)))


def with_plan(content: bytes, offsets: Sequence[int]) -> bytes:
    """Return the model with a memory plan, in place of any that it has; the last of all edits.

    Args:
        content: a .tflite file of one subgraph.
        offsets: bytes from the arena's start by the tensor's index, ONLINE for constants.

    Raises:
        ModelError: the plan is wrong; see `read_plan`.
    """
    model = unpacked(content)
    numbers = np.array([_VERSION, 0, len(offsets), *offsets], "<i4")
    model.buffers.append(schema.BufferT())
    model.buffers[-1].data = np.frombuffer(numbers.tobytes(), np.uint8)
    entry = schema.MetadataT()
    entry.name, entry.buffer = PLAN_ENTRY, len(model.buffers) - 1
    planned = packed(model, plan=entry)
    read_plan(planned)
    return planned


def check_plan(graph: Subgraph, offsets: Sequence[int]) -> None:
    """Run a plan byte by byte.

    Args:
        graph: the model's only subgraph.
        offsets: bytes by the tensor's index, ONLINE where there is none.

    Raises:
        ModelError: the plan is wrong; see `read_plan`.
    """
    for tensor, offset in zip(graph.tensors, offsets, strict=True):
        _check_offset(tensor, offset)
    _Run(graph, offsets).check()


def _offsets(entry: bytes, graph: Subgraph) -> tuple[int, ...]:
    numbers = np.frombuffer(entry[: len(entry) // 4 * 4], "<i4")
    if len(numbers) < _HEADER:
        raise _wrong(f"it has {len(entry)} bytes")
    count = int(numbers[_HEADER - 1])
    if count != len(graph.tensors) or len(numbers) < _HEADER + count:
        raise _wrong(
            f"it says {count} tensors and has {len(numbers) - _HEADER} offsets, "
            f"the file has {len(graph.tensors)} tensors"
        )
    offsets = numbers[_HEADER : _HEADER + count].tolist()
    return tuple(
        ONLINE if tensor.constant and not tensor.variable else offset
        for tensor, offset in zip(graph.tensors, offsets, strict=True)
    )


def _check_offset(tensor: Tensor, offset: int) -> None:
    if offset == ONLINE:
        return
    if tensor.variable:
        raise _wrong(f"it places {_named(tensor)}, a variable, which others may then overwrite")
    end = offset + tensor_bytes(tensor)
    if not 0 <= offset <= end <= _MOST_BYTES:
        raise _wrong(f"{_named(tensor)} lies at {offset:,}")
    width = max(tensor_bytes(tensor) // max(tensor.elements, 1), 1)
    if offset % width:
        raise _wrong(f"{_named(tensor)} lies at {offset:,}, no multiple of its {width} bytes")


def _wrong(why: str) -> ModelError:
    return ModelError(f"the TFLite file's memory plan is wrong: {why}", hint=_AGAIN)


def _named(tensor: Tensor) -> str:
    return tensor.name[:80] or "a tensor without a name"


Piece = tuple[int, int, int]
"""Bytes: how many, which writing they come from, and where in it they begin."""
Span = tuple[int, int]  # from and to where in a tensor's bytes


class _Run:
    """The arena while the operators run, as pieces of what was written where."""

    def __init__(self, graph: Subgraph, offsets: Sequence[int]) -> None:
        self._graph = graph
        self._offsets = offsets
        self._sizes = [tensor_bytes(tensor) for tensor in graph.tensors]
        self._starts: list[int] = []  # of pieces in the arena, ascending, which do not overlap
        self._pieces: list[Piece] = []
        self._wanted: dict[int, list[Piece]] = {}
        self._writers: list[str] = []
        self._left = _MOST_STEPS

    def check(self) -> None:
        """Raise `ModelError` where an operator or the application reads what is not its own."""
        graph = self._graph
        for index in graph.inputs:
            self._write_new(index, "the application")
        for index in graph.inputs:
            self._read(index, [(0, self._sizes[index])], "the first operator")
        for number, operator in enumerate(graph.operators):
            self._step(operator, f"operator {number} ({operator.name})")
        for index in graph.outputs:
            self._read(index, [(0, self._sizes[index])], "the application")

    def _step(self, operator: Operator, who: str) -> None:
        reads: list[tuple[int, list[Span]]] = []
        inputs = [i for i in dict.fromkeys(operator.inputs) if self._is_placed(i)]
        for index in inputs:
            spans = self._read_spans(operator, index)
            self._read(index, spans, who)
            if index in self._wanted:
                reads.append((index, spans))
        outputs = [i for i in dict.fromkeys(operator.outputs) if self._is_placed(i)]
        self._check_apart(operator, outputs, reads, who)
        results = {index: self._result(operator, index, who) for index in outputs}
        for index in inputs:  # work memory, which nothing has written
            if index not in self._wanted and operator.name not in _COMPILED:
                self._write_new(index, who)
        for index, pieces in results.items():
            self._write(index, pieces)

    def _check_apart(
        self,
        operator: Operator,
        outputs: Sequence[int],
        reads: Sequence[tuple[int, list[Span]]],
        who: str,
    ) -> None:
        """Refuse outputs over each other, or over what is read, but where kernels allow it."""
        for position, index in enumerate(outputs):
            start, end = self._extent(index)
            for other in outputs[:position]:
                low, high = self._extent(other)
                if low < end and start < high:
                    raise _wrong(f"{who} writes {self._name(index)} over {self._name(other)}")
            for other, spans in reads:
                base = self._offsets[other]
                touched = any(base + a < end and start < base + b for a, b in spans)
                if touched and not self._may_overlap(operator, index, other):
                    raise _wrong(f"{who} writes {self._name(index)} over {self._name(other)}")

    def _may_overlap(self, operator: Operator, output: int, read: int) -> bool:
        """Whether an operator may write an output over an input that it reads."""
        apart = self._offsets[output] - self._offsets[read]
        if operator.name in _COMPILED:
            return True
        if operator.name in _COPIES:
            return apart == 0
        if operator.name in _ELEMENTWISE:
            same = self._graph.tensors[output].shape == self._graph.tensors[read].shape
            return apart == 0 and same and self._sizes[output] == self._sizes[read]
        if operator.name == "CONCATENATION":
            offsets = self._concatenated(operator)
            return offsets is not None and offsets.get(read) == -apart
        if operator.name in ("SLICE", "GATHER"):
            span = self._copied(operator)
            return span is not None and read == operator.inputs[0] and apart == span[0]
        return False

    def _result(self, operator: Operator, output: int, who: str) -> list[Piece]:
        """Return the bytes of an output: copies of inputs' bytes, or new ones."""
        if not operator.inputs or len(operator.outputs) != 1:
            return self._new(output, who)
        source, size = operator.inputs[0], self._sizes[output]
        if operator.name == "CONCATENATION" and self._concatenated(operator) is not None:
            return [piece for index in operator.inputs for piece in self._copy_of(index, who)]
        known = self._wanted.get(source)
        if known is not None and operator.name in _COPIES and self._sizes[source] == size:
            return known
        span = self._copied(operator)
        if known is not None and span is not None and span[1] - span[0] == size:
            return _part(known, *span)
        return self._new(output, who)

    def _copy_of(self, index: int, who: str) -> list[Piece]:
        return self._wanted[index] if index in self._wanted else self._new(index, who)

    def _concatenated(self, operator: Operator) -> dict[int, int] | None:
        """Return where in the output each input lies, None where inputs are not whole there."""
        output = operator.outputs[0]
        shape = self._graph.tensors[output].shape
        axis = operator.axis % max(len(shape), 1)
        if math.prod(shape[:axis]) != 1 or operator.fused_activation != "NONE":
            return None
        if min(operator.inputs, default=ONLINE) < 0 or len(operator.outputs) != 1:
            return None
        ends = list(itertools.accumulate(self._sizes[index] for index in operator.inputs))
        offsets = dict(zip(operator.inputs, [0, *ends], strict=False))
        whole = ends[-1] == self._sizes[output] and len(offsets) == len(operator.inputs)
        return offsets if whole else None

    def _copied(self, operator: Operator) -> Span | None:
        """Return the bytes of its first input that a SLICE or a GATHER copies, if in one piece."""
        if operator.name not in ("SLICE", "GATHER") or not operator.inputs:
            return None
        spans = self._read_spans(operator, operator.inputs[0])
        return spans[0] if len(spans) == 1 else None

    def _read_spans(self, operator: Operator, index: int) -> list[Span]:
        """Return the bytes of a tensor that an operator reads: all, but of a SLICE or GATHER."""
        whole = [(0, self._sizes[index])]
        if index != operator.inputs[0] or index in operator.inputs[1:]:
            return whole
        box = _box(self._graph, operator)
        tensor = self._graph.tensors[index]
        width = self._sizes[index] // max(tensor.elements, 1)
        return whole if box is None else _spans(tensor.shape, box, width) or whole

    def _is_placed(self, index: int) -> bool:
        return index >= 0 and self._offsets[index] != ONLINE and self._sizes[index] > 0

    def _name(self, index: int) -> str:
        return _named(self._graph.tensors[index])

    def _extent(self, index: int) -> Span:
        return self._offsets[index], self._offsets[index] + self._sizes[index]

    def _write_new(self, index: int, who: str) -> None:
        if self._is_placed(index):
            self._write(index, self._new(index, who))

    def _new(self, index: int, who: str) -> list[Piece]:
        self._writers.append(f"{self._name(index)} of {who}")
        return [(self._sizes[index], len(self._writers) - 1, 0)]

    def _write(self, index: int, pieces: list[Piece]) -> None:
        self._wanted[index] = pieces
        start, end = self._extent(index)
        first, last = self._cut(start), self._cut(end)
        starts, at = [], start
        for length, _, _ in pieces:
            starts.append(at)
            at += length
        self._starts[first:last] = starts
        self._pieces[first:last] = pieces
        self._spend(len(pieces) + 1)

    def _cut(self, at: int) -> int:
        """Let a piece begin at this byte if one covers it; return the index of the first after."""
        index = bisect.bisect_left(self._starts, at)
        if index:
            start, (length, writing, begin) = self._starts[index - 1], self._pieces[index - 1]
            if start + length > at:
                head = at - start
                self._pieces[index - 1] = (head, writing, begin)
                self._starts.insert(index, at)
                self._pieces.insert(index, (length - head, writing, begin + head))
        return index

    def _read(self, index: int, spans: Iterable[Span], who: str) -> None:
        """Refuse where bytes that are read are not those that were written for the tensor."""
        if not self._is_placed(index) or index not in self._wanted:
            return
        base = self._offsets[index]
        for start, end in spans:
            expected = _part(self._wanted[index], start, end)
            actual = self._found(base + start, base + end)
            self._spend(len(expected) + len(actual) + 1)
            if _joined(expected) != _joined(actual):
                raise _wrong(
                    f"{self._name(index)} is overwritten by {self._culprit(expected, actual)} "
                    f"before {who} reads it"
                )

    def _found(self, start: int, end: int) -> list[Piece]:
        position = max(bisect.bisect_right(self._starts, start) - 1, 0)
        pieces = []
        while position < len(self._starts) and self._starts[position] < end:
            at, (length, writing, begin) = self._starts[position], self._pieces[position]
            low, high = max(at, start), min(at + length, end)
            if low < high:
                pieces.append((high - low, writing, begin + low - at))
            position += 1
        return pieces

    def _culprit(self, expected: Sequence[Piece], actual: Sequence[Piece]) -> str:
        known = {writing for _, writing, _ in expected}
        others = [writing for _, writing, _ in actual if writing not in known]
        return self._writers[others[0]] if others else "a copy of itself"

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _wrong("it has too many pieces to be checked")


def _part(pieces: Sequence[Piece], start: int, end: int) -> list[Piece]:
    """Return the pieces of bytes `start` to `end`."""
    part, at = [], 0
    for length, writing, begin in pieces:
        low, high = max(at, start), min(at + length, end)
        if low < high:
            part.append((high - low, writing, begin + low - at))
        at += length
    return part


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces with those put together that follow each other in one writing."""
    joined: list[Piece] = []
    for length, writing, begin in pieces:
        if joined and joined[-1][1] == writing and joined[-1][2] + joined[-1][0] == begin:
            joined[-1] = (joined[-1][0] + length, writing, joined[-1][2])
        else:
            joined.append((length, writing, begin))
    return joined


def _box(graph: Subgraph, operator: Operator) -> list[Span] | None:
    """Return where a SLICE or GATHER begins and ends in each dimension of its first input.

    None for others, and where this is not known from the file or is not one box.
    """
    shape = graph.tensors[operator.inputs[0]].shape if operator.inputs else ()
    if operator.name == "SLICE" and len(operator.inputs) == 3:
        begins, sizes = (_numbers(graph, index) for index in operator.inputs[1:])
        if not len(begins) == len(sizes) == len(shape):
            return None
        box = [(b, b + s if s >= 0 else n) for b, s, n in zip(begins, sizes, shape, strict=True)]
    elif operator.name == "GATHER" and len(operator.inputs) == 2 and shape:
        indices, axis = _numbers(graph, operator.inputs[1]), operator.axis % len(shape)
        if not indices or indices != list(range(indices[0], indices[0] + len(indices))):
            return None
        box = [(0, size) for size in shape]
        box[axis] = (indices[0], indices[0] + len(indices))
    else:
        return None
    inside = all(0 <= low <= high <= n for (low, high), n in zip(box, shape, strict=True))
    return box if inside else None


def _numbers(graph: Subgraph, index: int) -> list[int]:
    array = values(graph.tensors[index]) if index >= 0 else None
    return [] if array is None else [int(number) for number in array]


def _spans(shape: Sequence[int], box: Sequence[Span], width: int) -> list[Span] | None:
    """Return the bytes of a box of a tensor in ascending runs; None where there are too many.

    Args:
        shape: of the tensor.
        box: where it begins and ends in each dimension.
        width: bytes of an element.
    """
    inner = len(shape)  # dimensions from here on are read whole
    while inner and box[inner - 1] == (0, shape[inner - 1]):
        inner -= 1
    if not inner:
        return [(0, math.prod(shape) * width)]
    run = math.prod(shape[inner:]) * width
    low, high = box[inner - 1]
    strides = [math.prod(shape[axis + 1 :]) * width for axis in range(inner - 1)]
    outer = [range(b * s, e * s, s) for (b, e), s in zip(box, strides, strict=False) if s]
    if math.prod(len(one) for one in outer) > _MOST_RUNS:
        return None
    bases = [sum(offsets) for offsets in itertools.product(*outer)]
    return [(base + low * run, base + high * run) for base in bases]
