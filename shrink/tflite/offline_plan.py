"""Offline memory plans in .tflite files: read, checked against what the operators do, written.

A file's metadata may say where in the arena each activation lies; TFLite Micro takes the offsets as
they are (tensorflow/lite/micro/docs/memory_management.md) and checks only how many there are. A
wrong plan reads what another tensor has overwritten, without an error. Here a plan is run on an
array with the owner of each byte: what an operator reads has to be what was written for it.

A plan may place an output over bytes that no later operator reads, a SLICE or a GATHER of rows
inside its input, the inputs of a CONCATENATION inside its output, a RESHAPE on its input, and an
elementwise result on an operand of the same size. It may not place any other output over what its
operator reads: some kernels write while they read.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.tflite.model import (
    PLAN_ENTRY,
    Operator,
    Subgraph,
    Tensor,
    add_buffer,
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
_MOST_CHECKED_BYTES = 1 << 26
"""Of an arena; no microcontroller has as many."""
_MOST_BYTES_LOOKED_AT, _STEP_BYTES = 1 << 32, 1 << 10
"""By a check, each read and write counting some more; plans that need more are refused."""
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
    entry = schema.MetadataT()
    entry.name, entry.buffer = PLAN_ENTRY, add_buffer(model, numbers)
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
    _Arena(graph, offsets).check()


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


Run: TypeAlias = tuple[int, int]
"""Bytes of one writing that follow each other: the number of the first, and how many."""
Box: TypeAlias = tuple[slice, ...]


class _Arena:
    """Which written byte lies at each byte of the arena while the operators run.

    Every writing numbers its bytes on from those before; copies keep the numbers. A tensor's own
    bytes are kept as runs of numbers, (first, count).
    """

    def __init__(self, graph: Subgraph, offsets: Sequence[int]) -> None:
        self._graph = graph
        self._offsets = offsets
        self._sizes = [tensor_bytes(tensor) for tensor in graph.tensors]
        ends = (o + s for o, s in zip(offsets, self._sizes, strict=True) if o != ONLINE)
        size = max(ends, default=0)
        if size > _MOST_CHECKED_BYTES:
            raise _wrong(f"it lays out {size:,} bytes, more than can be checked")
        self._owner = np.full(size, -1, np.int32)
        self._wanted: dict[int, list[Run]] = {}
        self._firsts: list[int] = []  # number of each writing's first byte
        self._writers: list[str] = []
        self._next = 0
        self._left = _MOST_BYTES_LOOKED_AT

    def check(self) -> None:
        """Raise `ModelError` where an operator or the application reads what is not its own."""
        graph = self._graph
        for index in graph.inputs:
            self._write_new(index, "the application")
        for index in graph.inputs:
            self._read(index, None, "the first operator")
        for number, operator in enumerate(graph.operators):
            self._step(operator, f"operator {number} ({operator.name})")
        for index in graph.outputs:
            self._read(index, None, "the application")

    def _step(self, operator: Operator, who: str) -> None:
        inputs = [i for i in dict.fromkeys(operator.inputs) if self._is_placed(i)]
        for index in inputs:
            self._read(index, self._box(operator, index), who)
        outputs = [i for i in dict.fromkeys(operator.outputs) if self._is_placed(i)]
        known = [index for index in inputs if index in self._wanted]
        self._check_apart(operator, outputs, known, who)
        results = {index: self._result(operator, index, who) for index in outputs}
        for index in inputs:  # work memory, which nothing has written
            if index not in self._wanted and operator.name not in _COMPILED:
                self._write_new(index, who)
        for index, runs in results.items():
            self._write(index, runs)

    def _check_apart(
        self, operator: Operator, outputs: Sequence[int], reads: Sequence[int], who: str
    ) -> None:
        """Refuse outputs over each other, or over what is read, but where kernels allow it."""
        for position, index in enumerate(outputs):
            start, end = self._extent(index)
            for other in outputs[:position]:
                low, high = self._extent(other)
                if low < end and start < high:
                    raise _wrong(f"{who} writes {self._name(index)} over {self._name(other)}")
            for other in reads:
                low, high = self._extent(other)
                if high <= start or end <= low or self._may_overlap(operator, index, other):
                    continue
                places = low + self._places(other, self._box(operator, other))
                if np.any((places >= start) & (places < end)):
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
        span = self._copied(operator)
        return span is not None and read == operator.inputs[0] and apart == span[0]

    def _result(self, operator: Operator, output: int, who: str) -> list[Run]:
        """Return the bytes of an output: copies of inputs' bytes, or new ones."""
        if not operator.inputs or len(operator.outputs) != 1:
            return self._new(output, who)
        source, size = operator.inputs[0], self._sizes[output]
        if operator.name == "CONCATENATION" and self._concatenated(operator) is not None:
            return [
                run
                for index in operator.inputs
                for run in (self._wanted.get(index) or self._new(index, who))
            ]
        known = self._wanted.get(source)
        if known is not None and operator.name in _COPIES and self._sizes[source] == size:
            return known
        span = self._copied(operator)
        if known is not None and span is not None and span[1] - span[0] == size:
            return _part(known, *span)
        return self._new(output, who)

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

    def _copied(self, operator: Operator) -> tuple[int, int] | None:
        """Return the bytes of its first input that a SLICE or a GATHER copies, if in one piece."""
        if operator.name not in ("SLICE", "GATHER") or not operator.inputs:
            return None
        places = self._places(operator.inputs[0], self._box(operator, operator.inputs[0]))
        if not places.size or places[-1] - places[0] + 1 != places.size:
            return None
        return int(places[0]), int(places[-1]) + 1

    def _box(self, operator: Operator, index: int) -> Box | None:
        """Return which part of a tensor an operator reads; None for all of it."""
        if index != operator.inputs[0] or index in operator.inputs[1:]:
            return None
        return _box(self._graph, operator)

    def _places(self, index: int, box: Box | None) -> Array:
        """Return the bytes of a tensor that lie in a box of it, ascending."""
        size, tensor = self._sizes[index], self._graph.tensors[index]
        self._spend(size)
        if box is None:
            return np.arange(size)
        width = size // max(tensor.elements, 1)
        return np.arange(tensor.elements * width).reshape(*tensor.shape, width)[box].ravel()

    def _is_placed(self, index: int) -> bool:
        return index >= 0 and self._offsets[index] != ONLINE and self._sizes[index] > 0

    def _name(self, index: int) -> str:
        return _named(self._graph.tensors[index])

    def _extent(self, index: int) -> tuple[int, int]:
        return self._offsets[index], self._offsets[index] + self._sizes[index]

    def _write_new(self, index: int, who: str) -> None:
        if self._is_placed(index):
            self._write(index, self._new(index, who))

    def _new(self, index: int, who: str) -> list[Run]:
        self._writers.append(f"{self._name(index)} of {who}")
        self._firsts.append(self._next)
        self._next += self._sizes[index]
        if self._next > _MOST_BYTES:
            raise _wrong("its operators write more bytes than can be checked")
        return [(self._firsts[-1], self._sizes[index])]

    def _write(self, index: int, runs: list[Run]) -> None:
        self._wanted[index] = runs
        start, end = self._extent(index)
        self._spend(end - start)
        self._owner[start:end] = _numbered(runs)

    def _read(self, index: int, box: Box | None, who: str) -> None:
        """Refuse where bytes that are read are not those that were written for the tensor."""
        if not self._is_placed(index) or index not in self._wanted:
            return
        start, end = self._extent(index)
        self._spend(end - start)
        found, expected = self._owner[start:end], _numbered(self._wanted[index])
        if box is not None:
            places = self._places(index, box)
            found, expected = found[places], expected[places]
        wrong = np.flatnonzero(found != expected)
        if wrong.size:
            number, own = (
                bisect.bisect_right(self._firsts, int(one[wrong[0]])) - 1
                for one in (found, expected)
            )
            culprit = "a copy of itself" if number == own else self._writers[number]
            raise _wrong(f"{self._name(index)} is overwritten by {culprit} before {who} reads it")

    def _spend(self, count: int) -> None:
        self._left -= count + _STEP_BYTES
        if self._left < 0:
            raise _wrong("it has too many bytes to be checked")


def _numbered(runs: Sequence[Run]) -> Array:
    return np.concatenate(
        [np.arange(first, first + count, dtype=np.int32) for first, count in runs]
    )


def _part(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    """Return the runs of bytes `start` to `end`."""
    part, at = [], 0
    for first, count in runs:
        low, high = max(at, start), min(at + count, end)
        if low < high:
            part.append((first + low - at, high - low))
        at += count
    return part


def _box(graph: Subgraph, operator: Operator) -> Box | None:
    """Return the part of its first input that a SLICE or GATHER reads.

    None for others, and where this is not known from the file or is not one box.
    """
    shape = graph.tensors[operator.inputs[0]].shape if operator.inputs else ()
    if operator.name == "SLICE" and len(operator.inputs) == 3:
        begins, sizes = (_numbers(graph, index) for index in operator.inputs[1:])
        if not len(begins) == len(sizes) == len(shape):
            return None
        ends = [b + s if s >= 0 else n for b, s, n in zip(begins, sizes, shape, strict=True)]
    elif operator.name == "GATHER" and len(operator.inputs) == 2 and shape:
        indices, axis = _numbers(graph, operator.inputs[1]), operator.axis % len(shape)
        if not indices or indices != list(range(indices[0], indices[0] + len(indices))):
            return None
        begins, ends = [0] * len(shape), list(shape)
        begins[axis], ends[axis] = indices[0], indices[0] + len(indices)
    else:
        return None
    inside = all(0 <= low <= high <= n for low, high, n in zip(begins, ends, shape, strict=True))
    return tuple(map(slice, begins, ends)) if inside else None


def _numbers(graph: Subgraph, index: int) -> list[int]:
    array = values(graph.tensors[index]) if index >= 0 else None
    return [] if array is None else [int(number) for number in array]
