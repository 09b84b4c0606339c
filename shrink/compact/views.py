"""Which tensors can lie inside others, and for how long each of their bytes is needed.

A slice of rows lies inside of what it is cut from, the inputs of a concatenation of rows inside of
its output, and what is reshaped stays where it is: the kernels then copy bytes onto themselves. A
QUANTIZE between types of one size, as at a uint8 input, writes each value over the one it reads.
And a row that no later operator reads is free for others, though the rest of its tensor is not.

A block is a set of tensors whose places follow from one another; its cells are its bytes, each
with the operators from which to which they are needed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from ai_edge_litert import schema_py_generated as schema

from shrink.compact.cost import scratch_bytes
from shrink.compact.graph import Graph, Operator
from shrink.tflite.planner import ALIGNMENT_BYTES, aligned

BuiltinOperator = schema.BuiltinOperator
RESHAPES = {BuiltinOperator.RESHAPE, BuiltinOperator.SQUEEZE, BuiltinOperator.EXPAND_DIMS}
"""Operators that leave all bytes where they are."""


_MOST_GROWTH = 1.25
"""By rows that are wrong at the edges of a window, a block may always grow so far."""


class Cell(NamedTuple):
    """Bytes of a block, counted from its start, needed from one step to another.

    Step 0 stands before the operators; operator i runs in step i + 1.
    """

    start: int
    end: int
    first: int
    last: int


class Block(NamedTuple):
    """Tensors whose places follow from one another.

    Attributes:
        places: bytes from the block's start, by tensor.
        cells: which of its bytes are needed when.
        held: its tensors whole, from the first to the last operator that names them: what TFLite
            Micro believes to be taken when it finds a place for work memory.
        is_scratch: whether it is an operator's work memory, which no plan names.
    """

    places: Mapping[int, int]
    cells: Sequence[Cell]
    held: Sequence[Cell] = ()
    is_scratch: bool = False

    @property
    def size_bytes(self) -> int:
        """From the start of its first cell to the end of its last."""
        return max(cell.end for cell in self.cells)


class _Read(NamedTuple):
    start: int
    end: int
    step: int


class _Segment(NamedTuple):
    """Bytes of a tensor that were first written to another, or to itself."""

    start: int
    end: int
    origin: int
    origin_start: int


def copied_bytes(graph: Graph, operator: Operator) -> tuple[int, int] | None:
    """Return the bytes [start, end) of its first input that an operator copies as they stand.

    Returns:
        None for an operator that does anything else.
    """
    if operator.code.builtin in RESHAPES:
        return 0, graph.tensors[operator.inputs[0]].size_bytes
    if operator.code.builtin != BuiltinOperator.SLICE:
        return None
    source, begin, size = operator.inputs
    if not (graph.tensors[begin].constant and graph.tensors[size].constant):
        return None
    shape, cut = graph.tensors[source].shape, graph.tensors[operator.outputs[0]].shape
    narrowed = [axis for axis, (a, b) in enumerate(zip(shape, cut, strict=True)) if a != b]
    if not narrowed:
        return 0, graph.tensors[source].size_bytes
    axis = narrowed[0]
    if len(narrowed) > 1 or not _is_outermost(shape, axis):
        return None
    row = graph.tensors[source].size_bytes // shape[axis]
    start = int(graph.values(begin)[axis])
    return start * row, (start + cut[axis]) * row


def rewrites(graph: Graph, operator: Operator) -> bool:
    """Whether an operator may write each value of its output over the one of its input.

    Kernels of QUANTIZE read a value, or as many as fit a register, before they write it or them.
    """
    if operator.code.builtin != BuiltinOperator.QUANTIZE:
        return False
    source, output = (graph.tensors[index] for index in (operator.inputs[0], operator.outputs[0]))
    same = source.shape == output.shape and source.size_bytes == output.size_bytes
    return same and graph.is_activation(operator.inputs[0])


def concatenates_rows(graph: Graph, operator: Operator) -> bool:
    """Whether an operator writes its inputs, all of them activations, one behind the other."""
    if operator.code.builtin != BuiltinOperator.CONCATENATION or operator.options is None:
        return False
    shape = graph.tensors[operator.outputs[0]].shape
    plain = operator.options.fusedActivationFunction == schema.ActivationFunctionType.NONE
    axis = operator.options.axis % len(shape)
    activations = len(graph.activations(operator.inputs)) == len(operator.inputs)
    return plain and activations and _is_outermost(shape, axis)


def _is_outermost(shape: Sequence[int], axis: int) -> bool:
    return all(dimension == 1 for dimension in shape[:axis])


def lifetimes(graph: Graph) -> dict[int, tuple[int, int]]:
    """Return the first and the last step in which each activation is needed.

    Inputs are written in step 0, operator i runs in step i + 1, and outputs last to the end.
    """
    found = {index: [0, 0] for index in graph.inputs}
    for step, operator in enumerate(graph.operators, 1):
        for index in (*operator.outputs, *graph.activations(operator.inputs)):
            found.setdefault(index, [step, step])[1] = step
    for index in graph.activations(graph.outputs):
        found[index][1] = len(graph.operators)
    return {index: (first, last) for index, (first, last) in found.items()}


def live_bytes(blocks: Sequence[Block], steps: int) -> list[int]:
    """Return the bytes that are needed in each of the steps, and of step 0."""
    change = [0] * (steps + 2)
    for block in blocks:
        for cell in block.cells:
            change[cell.first] += cell.end - cell.start
            change[cell.last + 1] -= cell.end - cell.start
    total, found = 0, []
    for value in change[:-1]:
        total += value
        found.append(total)
    return found


def blocks_of(graph: Graph) -> list[Block]:
    """Return the blocks of a graph, whose order of operators is final; each activation is in one.

    A window that shares rows with the window before it does not lie over them: a chain of such
    windows would move through the arena as it goes. Rows that are kept are copied.
    """
    return _Blocks(graph).blocks()


def scratch_blocks(graph: Graph) -> list[Block]:
    """Return the work memory of each operator that takes some."""
    sizes = [scratch_bytes(graph, operator) for operator in graph.operators]
    return [
        Block({}, [Cell(0, aligned(size), step, step)], is_scratch=True)
        for step, size in enumerate(sizes, 1)
        if size
    ]


class _Blocks:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._life = lifetimes(graph)
        self._reads = self._all_reads()
        self._origins = self._all_origins()
        self._rewrites = {
            step: (operator.inputs[0], operator.outputs[0])
            for step, operator in enumerate(graph.operators, 1)
            if rewrites(graph, operator)
        }
        self._block_of = {index: index for index in self._life}
        self._blocks = {index: {index: 0} for index in self._life}
        self._cells = {index: self._cells_of({index: 0}) or [] for index in self._life}

    def blocks(self) -> list[Block]:
        """Return the blocks: tensors that lie in others in theirs, and those that roll."""
        written = {o.outputs[0]: o for o in self._graph.operators if o.outputs}
        placed: set[int] = set()
        for operator in self._graph.operators:
            if concatenates_rows(self._graph, operator):
                place = 0
                for index in operator.inputs:
                    free = index in written and index not in placed
                    if free and not self._graph.tensors[index].loose:
                        self._joined(operator.outputs[0], index, place)
                        placed.add(index)
                    place += self._graph.tensors[index].size_bytes
        for operator in self._graph.operators:
            copied = copied_bytes(self._graph, operator)
            if copied is not None and self._graph.is_activation(operator.inputs[0]):
                source, output = operator.inputs[0], operator.outputs[0]
                if self._graph.tensors[output].loose:
                    continue
                self._joined(source, output, copied[0], _MOST_GROWTH)
        for source, output in self._rewrites.values():
            self._joined(source, output, 0)
        return [self._block(root) for root in self._blocks] + scratch_blocks(self._graph)

    def _block(self, root: int) -> Block:
        start = min(self._blocks[root].values())
        places = {index: place - start for index, place in self._blocks[root].items()}
        cells = [Cell(c.start - start, c.end - start, c.first, c.last) for c in self._cells[root]]
        sizes = {index: aligned(self._graph.tensors[index].size_bytes) for index in places}
        held = [Cell(p, p + sizes[index], *self._life[index]) for index, p in places.items()]
        return Block(places, cells, held)

    def _joined(self, one: int, other: int, distance: int, growth: float = math.inf) -> bool:
        """Join two blocks, the second tensor so far behind the first, where nothing is in the way.

        Args:
            one: a tensor.
            other: a tensor.
            distance: in bytes.
            growth: how much longer than the longer of the two they may be together.

        Returns:
            Whether they are joined.
        """
        root, gone = self._block_of[one], self._block_of[other]
        shift = self._blocks[root][one] + distance - self._blocks[gone][other]
        if root == gone:
            return shift == 0
        moved = {index: place + shift for index, place in self._blocks[gone].items()}
        together = self._blocks[root] | moved
        own = max(self._length(self._blocks[root]), self._length(moved))
        if shift % ALIGNMENT_BYTES:
            return False  # optimised kernels count on aligned tensors, and on aligned work memory,
            # which TFLite Micro puts behind a tensor's end wherever that is
        if self._length(together) > growth * own:
            return False
        cells = self._cells_of(together)
        if cells is None:
            return False
        self._blocks[root], self._cells[root] = together, cells
        del self._blocks[gone], self._cells[gone]
        self._block_of.update(dict.fromkeys(moved, root))
        return True

    def _length(self, places: Mapping[int, int]) -> int:
        ends = (p + self._graph.tensors[index].size_bytes for index, p in places.items())
        return max(ends) - min(places.values())

    def _cells_of(self, places: Mapping[int, int]) -> list[Cell] | None:
        """Return the cells of tensors at these places; None where they would overwrite another."""
        cuts: set[int] = set()
        for index, place in places.items():
            cuts.update((place, place + self._graph.tensors[index].size_bytes))
            cuts.update(place + edge for read in self._reads[index] for edge in read[:2])
            cuts.update(place + segment.start for segment in self._origins[index])
        edges = sorted(cuts)
        needs: list[list[tuple[int, int, int, int]]] = [[] for _ in edges]
        for index, place in places.items():
            self._add_needs(index, place, edges, needs)
        rewriting = {
            step
            for step, (source, output) in self._rewrites.items()
            if source in places and places.get(output) == places[source]
        }
        cells: list[Cell] = []
        for start, end, need in zip(edges, edges[1:], needs, strict=False):
            merged = _merged(sorted(need), rewriting)
            if merged is None:
                return None
            cells += [Cell(start, end, first, last) for first, last in merged]
        return _neighbours_joined(cells)

    def _add_needs(
        self,
        index: int,
        place: int,
        edges: Sequence[int],
        needs: list[list[tuple[int, int, int, int]]],
    ) -> None:
        first, last = self._life[index]
        lasts = index in self._graph.outputs
        for segment in self._origins[index]:
            begin = bisect_left(edges, place + segment.start)
            for number in range(begin, bisect_left(edges, place + segment.end)):
                at = edges[number] - place
                until = last if lasts else max([first, *self._readers(index, at)])
                source = at - segment.start + segment.origin_start
                needs[number].append((first, until, segment.origin, source))

    def _readers(self, index: int, byte: int) -> Iterator[int]:
        return (read.step for read in self._reads[index] if read.start <= byte < read.end)

    def _all_reads(self) -> dict[int, list[_Read]]:
        reads: dict[int, list[_Read]] = {index: [] for index in self._life}
        for step, operator in enumerate(self._graph.operators, 1):
            copied = copied_bytes(self._graph, operator)
            for index in self._graph.activations(operator.inputs):
                whole = (0, self._graph.tensors[index].size_bytes)
                reads[index].append(_Read(*(copied or whole), step))
        return reads

    def _all_origins(self) -> dict[int, list[_Segment]]:
        """Return, for each tensor, where each of its bytes was computed."""
        found = {index: self._itself(index) for index in self._graph.inputs}
        for operator in self._graph.operators:
            copied = copied_bytes(self._graph, operator)
            if copied is not None and self._graph.is_activation(operator.inputs[0]):
                found[operator.outputs[0]] = _cut(found[operator.inputs[0]], *copied)
            elif concatenates_rows(self._graph, operator):
                found[operator.outputs[0]] = self._chained(found, operator.inputs)
            else:
                found.update((index, self._itself(index)) for index in operator.outputs)
        return found

    def _itself(self, index: int) -> list[_Segment]:
        return [_Segment(0, self._graph.tensors[index].size_bytes, index, 0)]

    def _chained(
        self, found: Mapping[int, list[_Segment]], inputs: Sequence[int]
    ) -> list[_Segment]:
        chained, place = [], 0
        for index in inputs:
            chained += [_Segment(place + s[0], place + s[1], s[2], s[3]) for s in found[index]]
            place += self._graph.tensors[index].size_bytes
        return chained


def _cut(segments: Sequence[_Segment], start: int, end: int) -> list[_Segment]:
    found = []
    for segment in segments:
        low, high = max(segment.start, start), min(segment.end, end)
        if low < high:
            source = segment.origin_start + low - segment.start
            found.append(_Segment(low - start, high - start, segment.origin, source))
    return found


def _merged(
    needs: Sequence[tuple[int, int, int, int]], rewriting: Container[int]
) -> list[tuple[int, int]] | None:
    """Return the times in which a byte is needed; None where two contents want it at once.

    Args:
        needs: first step, last step and what is meant, sorted.
        rewriting: steps that read a byte last, and then write it anew.
    """
    found: list[tuple[int, int]] = []
    meant: tuple[int, int] | None = None
    for first, last, *content in needs:
        if found and first <= found[-1][1]:
            if meant != tuple(content):
                if first < found[-1][1] or first not in rewriting:
                    return None
                meant = (content[0], content[1])
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
            meant = (content[0], content[1])
    return found


def _neighbours_joined(cells: Sequence[Cell]) -> list[Cell]:
    found: list[Cell] = []
    for cell in sorted(cells, key=lambda c: (c.first, c.last, c.start)):
        if found and found[-1][2:] == cell[2:] and found[-1].end == cell.start:
            found[-1] = found[-1]._replace(end=cell.end)
        else:
            found.append(cell)
    return found
