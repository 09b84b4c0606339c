"""Memory of activations: lifetimes, a planner, and memory plans that files bring along.

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
from collections.abc import Iterable, Sequence
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

ALIGNMENT_BYTES = 16
ONLINE = -1
"""The offset of a tensor that TFLite Micro places itself."""
Cell: TypeAlias = tuple[int, int, int, int]
"""Bytes [start, end), and the first and the last step in which they are needed."""


def aligned(size_bytes: int) -> int:
    """Return a size rounded up to ALIGNMENT_BYTES."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def lifetimes(graph: Subgraph) -> dict[int, tuple[int, int]]:
    """Return the first and the last step in which each activation is needed, by its index.

    Inputs are written in step 0, operator i runs in step i + 1. Outputs last to the end, variables
    throughout.
    """
    found: dict[int, list[int]] = {index: [0, 0] for index in graph.activations(graph.inputs)}
    for step, operator in enumerate(graph.operators, 1):
        for index in graph.activations((*operator.outputs, *operator.inputs)):
            found.setdefault(index, [step, step])[1] = step
    for index in graph.activations(graph.outputs):
        found.setdefault(index, [0, 0])[1] = len(graph.operators)
    for index, tensor in enumerate(graph.tensors):
        if tensor.variable and not tensor.constant:
            found[index] = [0, len(graph.operators)]
    return {index: (first, last) for index, (first, last) in found.items()}


def live_bytes(cells: Iterable[Sequence[int]], steps: int) -> list[int]:
    """Return the bytes that are needed in each of so many steps, and in step 0.

    Args:
        cells: see `Cell`; what stands behind a cell's four numbers is not read.
        steps: operators that run.
    """
    change = [0] * (steps + 2)
    for cell in cells:
        size = cell[1] - cell[0]
        change[cell[2]] += size
        change[cell[3] + 1] -= size
    return list(itertools.accumulate(change[:-1]))


@dataclass(frozen=True)
class Allocation:
    """Memory that is needed from operator `first` to operator `last`, both included.

    Attributes:
        offset: where it lies already; None where it is to be placed.
    """

    size_bytes: int
    first: int
    last: int
    offset: int | None = None


def allocations(graph: Subgraph, offsets: Sequence[int] = ()) -> list[Allocation]:
    """Return the memory of each activation as TFLite Micro sees it; inputs live from operator 0.

    Args:
        graph: the subgraph.
        offsets: of an offline plan, by the tensor's index; below 0 where there is none.
    """
    fixed = dict(enumerate(offsets))
    return [
        Allocation(
            graph.tensors[index].size_bytes,
            max(first - 1, 0),
            max(last - 1, 0),
            offset if (offset := fixed.get(index, ONLINE)) >= 0 else None,
        )
        for index, (first, last) in sorted(lifetimes(graph).items())
    ]


def greedy_plan(blocks: Sequence[Allocation]) -> list[int]:
    """Return an offset for each block, so that no two that live at once overlap.

    As TFLite Micro's GreedyMemoryPlanner places them, to the byte: by size, rounded up to
    ALIGNMENT_BYTES, the largest first and of equal ones the last, each into the lowest gap that
    holds it (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
    algorithm 3). Those that lie somewhere already stay, and come before all others.
    """
    sizes = [aligned(block.size_bytes) for block in blocks]
    offsets = [block.offset or 0 for block in blocks]
    fixed = [index for index, block in enumerate(blocks) if block.offset is not None]
    placed = sorted(fixed, key=lambda index: offsets[index])
    free = [index for index, block in enumerate(blocks) if block.offset is None]
    for index in sorted(reversed(free), key=lambda i: -sizes[i]):
        block = blocks[index]
        offset = 0
        for other in placed:
            if blocks[other].last < block.first or block.last < blocks[other].first:
                continue
            if offset + sizes[index] <= offsets[other]:
                break
            offset = max(offset, offsets[other] + sizes[other])
        offsets[index] = offset
        bisect.insort(placed, index, key=lambda i: offsets[i])
    return offsets


def planned_bytes(graph: Subgraph, offsets: Sequence[int] = ()) -> int:
    """Return the bytes of the arena that TFLite Micro's planner gives a subgraph's activations.

    Args:
        graph: the subgraph.
        offsets: of an offline plan, by the tensor's index; below 0 where there is none.
    """
    return planned_end(allocations(graph, offsets))


def planned_end(blocks: Sequence[Allocation]) -> int:
    """Return where the greedy plan of some blocks ends, in bytes from its beginning."""
    ends = (o + aligned(b.size_bytes) for o, b in zip(greedy_plan(blocks), blocks, strict=True))
    return max(ends, default=0)


_MOVES_NOTHING = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})
_ELEMENTWISE = frozenset(
    {
        "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "RELU", "RELU6", "LOGISTIC", "TANH",
        "HARD_SWISH", "LEAKY_RELU", "ABS", "QUANTIZE",
    }
)  # fmt: skip
"""Operators whose kernels read each element before they write the one at its place."""
_COMPILED = frozenset({"ethos-u"})
"""Operators whose compiler planned their scratch memory, over their own inputs and outputs."""
Piece: TypeAlias = tuple[int, int, int]
"""The index of a tensor, and bytes [start, end) of it."""


def copied_pieces(graph: Subgraph, operator: Operator) -> list[Piece] | None:
    """Return the pieces of its inputs that an operator writes as they are, one behind the other.

    Returns:
        None for an operator whose output is anything else than such pieces.
    """
    if len(operator.outputs) != 1 or not operator.inputs or operator.inputs[0] < 0:
        return None
    output, source = graph.tensors[operator.outputs[0]], operator.inputs[0]
    found: list[Piece]
    if operator.name in _MOVES_NOTHING:
        found = [(source, 0, graph.tensors[source].size_bytes)]
    elif operator.name == "CONCATENATION":
        axis = operator.axis % max(len(output.shape), 1)
        outermost = math.prod(output.shape[:axis]) == 1
        if not outermost or min(operator.inputs) < 0 or operator.fused_activation != "NONE":
            return None
        found = [(index, 0, graph.tensors[index].size_bytes) for index in operator.inputs]
    elif (box := _box_read(graph, operator)) is not None:
        tensor = graph.tensors[source]
        width = tensor.size_bytes // max(tensor.elements, 1)
        low = high = 0  # of the first and the last value, counted as the tensor stores them
        for size, start, end in zip(tensor.shape, *box, strict=True):
            low, high = low * size + start, high * size + end - 1
        found = [(source, low * width, (high + 1) * width)]
    else:
        return None
    return found if sum(end - start for _, start, end in found) == output.size_bytes else None


def _box_read(graph: Subgraph, operator: Operator) -> tuple[list[int], list[int]] | None:
    """Return where the part of its first input that a SLICE or GATHER reads begins and ends.

    None for others, and where this is not known from the file or is not one box.
    """
    shape = graph.tensors[operator.inputs[0]].shape
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
    return (begins, ends) if inside else None


def _numbers(graph: Subgraph, index: int) -> list[int]:
    tensor = graph.tensors[index]
    array = values(tensor) if index >= 0 and tensor.constant else None
    return [] if array is None else [int(number) for number in array]


_VERSION, _HEADER = 1, 3
_MOST_BYTES = (1 << 31) - 1
_MOST_CHECKED_BYTES, _MOST_LIVE_BYTES = 1 << 26, 1 << 28
"""Of an arena, and of the tensors that are live at once; no microcontroller has as many."""
_MOST_BYTES_READ, _STEP_BYTES = 1 << 32, 1 << 10
"""By a check, each read and write counting some more; plans that need more are refused."""
_AGAIN = "remove the plan (any edit by shrink does), or make the file again"


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
    offsets = _offsets(entries[0], graphs[0])
    check_plan(graphs[0], offsets)
    pairs = zip(offsets, graphs[0].tensors, strict=True)
    ends = (offset + tensor.size_bytes for offset, tensor in pairs if offset >= 0)
    return OfflinePlan(offsets, aligned(max(ends, default=0)))


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


def with_plan(content: bytes | schema.ModelT, offsets: Sequence[int]) -> bytes:
    """Return the model with a memory plan, in place of any that it has; the last of all edits.

    Args:
        content: a .tflite file of one subgraph, or its objects, which are changed.
        offsets: bytes from the arena's start by the tensor's index, ONLINE for constants.

    Raises:
        ModelError: the plan is wrong; see `read_plan`.
    """
    model = unpacked(content) if isinstance(content, bytes) else content
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
        if offset == ONLINE:
            continue
        if tensor.variable:
            raise _wrong(f"it places {_named(tensor)}, a variable, which others may then overwrite")
        if not 0 <= offset <= offset + tensor.size_bytes <= _MOST_BYTES:
            raise _wrong(f"{_named(tensor)} lies at {offset:,}")
        width = max(tensor.size_bytes // max(tensor.elements, 1), 1)
        if offset % width:
            raise _wrong(f"{_named(tensor)} lies at {offset:,}, no multiple of its {width} bytes")
    _Arena(graph, offsets).check()


def _wrong(why: str) -> ModelError:
    return ModelError(f"the TFLite file's memory plan is wrong: {why}", hint=_AGAIN)


def _named(tensor: Tensor) -> str:
    return tensor.name[:80] or "a tensor without a name"


class _Arena:
    """The number of the written byte that lies at each byte of the arena while operators run.

    Every writing numbers its bytes on from those before; copies keep the numbers. `_numbers` are
    those that belong to each tensor that is still to be read.
    """

    def __init__(self, graph: Subgraph, offsets: Sequence[int]) -> None:
        self._graph, self._offsets = graph, offsets
        self._sizes = [tensor.size_bytes for tensor in graph.tensors]
        placed = [index for index, offset in enumerate(offsets) if offset != ONLINE]
        size = max((offsets[index] + self._sizes[index] for index in placed), default=0)
        spans, steps = lifetimes(graph), len(graph.operators)
        cells = [(0, self._sizes[index], *spans[index]) for index in placed if index in spans]
        live = max(live_bytes(cells, steps))
        if size > _MOST_CHECKED_BYTES or live > _MOST_LIVE_BYTES:
            raise _wrong(f"it lays out {size:,} bytes for {live:,}, more than can be checked")
        self._unread = [list[int]() for _ in range(steps + 1)]  # after each step
        for index in set(placed) & spans.keys() - set(graph.outputs):
            self._unread[spans[index][1]].append(index)
        self._owner = np.full(size, -1, np.int32)
        self._numbers: dict[int, Array] = {}
        self._firsts: list[int] = []  # number of each writing's first byte
        self._writers: list[str] = []
        self._next, self._left = 0, _MOST_BYTES_READ

    def check(self) -> None:
        """Raise `ModelError` where an operator or the application reads what is not its own."""
        inputs = self._placed(self._graph.inputs)
        for index in inputs:
            self._write(index, self._new(index, self._sizes[index], "the application"))
        for index in inputs:
            self._read(index, 0, self._sizes[index], "the first operator")
        for number, operator in enumerate(self._graph.operators):
            self._step(operator, f"operator {number} ({operator.name})")
            for index in self._unread[number + 1]:
                self._numbers.pop(index, None)
        for index in self._placed(self._graph.outputs):
            self._read(index, 0, self._sizes[index], "the application")

    def _step(self, operator: Operator, who: str) -> None:
        inputs, outputs = self._placed(operator.inputs), self._placed(operator.outputs)
        pieces = copied_pieces(self._graph, operator)
        read = {index: (0, self._sizes[index]) for index in inputs}
        read |= {index: (start, end) for index, start, end in pieces or () if index in read}
        for index, (start, end) in read.items():
            self._read(index, start, end, who)
        for position, output in enumerate(outputs):
            self._spend(_STEP_BYTES * (position + len(read) * len(pieces or (0,))))
            over = {other: (0, self._sizes[other]) for other in outputs[:position]}
            over |= {
                other: part
                for other, part in read.items()
                if other in self._numbers and not self._may_overlap(operator, output, other, pieces)
            }
            for other, (start, end) in over.items():
                low = self._offsets[output] - self._offsets[other]
                if max(low, start) < min(low + self._sizes[output], end):
                    raise _wrong(f"{who} writes {self._name(output)} over {self._name(other)}")
        written = {index: self._written(index, pieces, who) for index in outputs}
        for index in inputs:  # scratch memory, which nothing has written
            if index not in self._numbers and operator.name not in _COMPILED:
                self._write(index, self._new(index, self._sizes[index], who))
        for index, numbers in written.items():
            self._write(index, numbers)

    def _may_overlap(
        self, operator: Operator, output: int, read: int, pieces: Sequence[Piece] | None
    ) -> bool:
        """Whether an operator may write an output over an input that it reads."""
        apart = self._offsets[output] - self._offsets[read]
        if operator.name in _COMPILED:
            return True
        if operator.name in _ELEMENTWISE:
            same = self._graph.tensors[output].shape == self._graph.tensors[read].shape
            return apart == 0 and same and self._sizes[output] == self._sizes[read]
        at = 0  # of each piece in the output
        for index, start, end in pieces or ():
            if index == read and apart + at == start:
                return True
            at += end - start
        return False

    def _written(self, output: int, pieces: Sequence[Piece] | None, who: str) -> Array:
        """Return the numbers of an output's bytes: of copies of inputs' bytes, or new ones."""
        if pieces is None:
            return self._new(output, self._sizes[output], who)
        copies = [  # of whole tensors too, so that none is kept for a piece of it
            self._numbers[index][start:end]
            if index in self._numbers
            else self._new(index, end - start, who)
            for index, start, end in pieces
        ]
        return np.concatenate(copies)

    def _placed(self, indices: Iterable[int]) -> list[int]:
        return [
            index
            for index in dict.fromkeys(indices)
            if index >= 0 and self._offsets[index] != ONLINE and self._sizes[index] > 0
        ]

    def _name(self, index: int) -> str:
        return _named(self._graph.tensors[index])

    def _new(self, index: int, size: int, who: str) -> Array:
        self._writers.append(f"{self._name(index)} of {who}")
        self._firsts.append(self._next)
        self._next += size
        if self._next > _MOST_BYTES:
            raise _wrong("its operators write more bytes than can be checked")
        return np.arange(self._firsts[-1], self._next, dtype=np.int32)

    def _write(self, index: int, numbers: Array) -> None:
        self._numbers[index] = numbers
        self._spend(self._sizes[index])
        self._at(index)[:] = numbers

    def _at(self, index: int) -> Array:
        return self._owner[self._offsets[index] : self._offsets[index] + self._sizes[index]]

    def _read(self, index: int, start: int, end: int, who: str) -> None:
        """Refuse where bytes that are read are not those that were written for the tensor."""
        if index not in self._numbers:
            return
        self._spend(self._sizes[index])
        found, expected = self._at(index)[start:end], self._numbers[index][start:end]
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
