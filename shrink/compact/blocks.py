"""Which tensors can lie inside others, and for how long each of their bytes is needed.

A slice of rows lies inside of what it is cut from, the inputs of a concatenation of rows inside of
its output, and a reshaped tensor stays where it is: the kernels then copy bytes onto themselves. A
QUANTIZE between types of one size, as at a uint8 input, writes each value over the one it reads.
And a row that no later operator reads is free for others, though the rest of its tensor is not.

A block is a set of tensors whose places follow from one another; its cells are its bytes, each
with the operators from which to which they are needed.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from shrink.compact.cost import scratch_bytes
from shrink.tflite.memory import (
    ALIGNMENT_BYTES,
    Cell,
    Piece,
    aligned,
    copied_pieces,
    lifetimes,
)
from shrink.tflite.model import Operator, Subgraph


class Block(NamedTuple):
    """Tensors whose places follow from one another.

    Attributes:
        offsets: bytes from the block's start, by tensor.
        cells: which of its bytes are needed when.
        whole: cells of its tensors as TFLite Micro sees them when it finds a place for scratch
            memory: whole, from the first to the last operator that names them.
        is_scratch: whether it is an operator's scratch memory, which no plan names.
    """

    offsets: Mapping[int, int]
    cells: Sequence[Cell]
    whole: Sequence[Cell] = ()
    is_scratch: bool = False


class _Source(NamedTuple):
    """Bytes [start, end) of a tensor, and the tensor and byte where they were first written."""

    start: int
    end: int
    origin: int
    origin_start: int


_Need: TypeAlias = tuple[int, int, int, int]
"""First and last step; the tensor where the content was first written, and how many bytes further
from its start it lies there than here."""


class _Bytes(NamedTuple):
    """Bytes [start, end) of a block, and the contents that are needed there."""

    start: int
    end: int
    needs: Sequence[_Need]


def writes_in_place(graph: Subgraph, operator: Operator) -> bool:
    """Whether an operator may write each value of its output over the one of its input.

    Kernels of QUANTIZE read a value, or as many as fit a register, before they write it or them.
    """
    if operator.name != "QUANTIZE" or not graph.is_activation(operator.inputs[0]):
        return False
    source, output = (graph.tensors[index] for index in (operator.inputs[0], operator.outputs[0]))
    return source.shape == output.shape and source.size_bytes == output.size_bytes


def blocks_of(graph: Subgraph) -> list[Block]:
    """Return the blocks of a graph, whose order of operators is final; each activation is in one.

    A window that shares rows with the window before it does not lie over them: a chain of such
    windows would move through the arena as it goes. Rows that are kept are copied.
    """
    return _BlockBuilder(graph).blocks()


def scratch_blocks(graph: Subgraph) -> list[Block]:
    """Return the scratch memory of each operator that takes some."""
    sizes = [scratch_bytes(graph, operator) for operator in graph.operators]
    return [
        Block({}, [(0, aligned(size), step, step)], is_scratch=True)
        for step, size in enumerate(sizes, 1)
        if size
    ]


class _BlockBuilder:
    def __init__(self, graph: Subgraph) -> None:
        self._graph = graph
        self._life = lifetimes(graph)
        self._sizes = [tensor.size_bytes for tensor in graph.tensors]
        self._pieces = [self._activations_copied(operator) for operator in graph.operators]
        self._reads = self._all_reads()
        self._sources = self._all_sources()
        self._in_place = {
            step: (operator.inputs[0], operator.outputs[0])
            for step, operator in enumerate(graph.operators, 1)
            if writes_in_place(graph, operator)
        }
        self._block_of = {index: index for index in self._life}
        self._blocks = {index: {index: 0} for index in self._life}
        self._bytes = {index: list(self._bytes_of(index)) for index in self._life}

    def blocks(self) -> list[Block]:
        """Return the blocks, after all tensors that can lie in others were placed there."""
        tensors = self._graph.tensors
        written = {index for operator in self._graph.operators for index in operator.outputs[:1]}
        placed: set[int] = set()
        copies = list(zip(self._graph.operators, self._pieces, strict=True))
        for operator, pieces in copies:
            if operator.name == "CONCATENATION":
                offset = 0
                for index, start, end in pieces or ():
                    if index in written and index not in placed and not tensors[index].no_alias:
                        self._join(operator.outputs[0], index, offset)
                        placed.add(index)
                    offset += end - start
        for operator, pieces in copies:
            if operator.name != "CONCATENATION" and pieces is not None:
                output, (source, start, _) = operator.outputs[0], pieces[0]
                if not tensors[output].no_alias:
                    self._join(source, output, start)
        for source, output in self._in_place.values():
            self._join(source, output, 0)
        return [self._block(root) for root in self._blocks] + scratch_blocks(self._graph)

    def _activations_copied(self, operator: Operator) -> list[Piece] | None:
        pieces = copied_pieces(self._graph, operator)
        known = pieces is not None and all(self._graph.is_activation(i) for i, _, _ in pieces)
        return pieces if known else None

    def _block(self, root: int) -> Block:
        start = min(self._blocks[root].values())
        offsets = {index: offset - start for index, offset in self._blocks[root].items()}
        in_place = self._written_over(offsets)
        cells = [
            (a - start, b - start, first, last)
            for a, b, needs in self._bytes[root]
            for first, last in _united(needs, in_place) or ()
        ]
        whole = [(p, p + aligned(self._sizes[i]), *self._life[i]) for i, p in offsets.items()]
        return Block(offsets, _neighbours_joined(cells), whole)

    def _join(self, one: int, other: int, distance: int) -> None:
        """Join two tensors' blocks, unless bytes that are needed would be overwritten.

        Args:
            one: a tensor.
            other: a tensor that begins `distance` bytes behind the first one's beginning.
            distance: in bytes.
        """
        root, gone = self._block_of[one], self._block_of[other]
        shift = self._blocks[root][one] + distance - self._blocks[gone][other]
        # Optimised kernels count on aligned tensors, and on aligned scratch memory, which TFLite
        # Micro puts behind a tensor's end wherever that is.
        if root == gone or shift % ALIGNMENT_BYTES:
            return
        moved = {index: offset + shift for index, offset in self._blocks[gone].items()}
        together = self._blocks[root] | moved
        own = self._bytes[root]
        added = [
            _Bytes(a + shift, b + shift, [(u, v, origin, by - shift) for u, v, origin, by in needs])
            for a, b, needs in self._bytes[gone]
        ]
        first = bisect_right(own, added[0].start, key=lambda each: each.end)
        last = bisect_left(own, added[-1].end, key=lambda each: each.start)
        united = _overlaid(own[first:last], added)
        in_place = self._written_over(together)
        if all(_united(one.needs, in_place) is not None for one in united):
            own[first:last] = united
            self._blocks[root] = together
            del self._blocks[gone], self._bytes[gone]
            self._block_of.update(dict.fromkeys(moved, root))

    def _written_over(self, offsets: Mapping[int, int]) -> set[int]:
        """Return the steps that write over what they read, of tensors at these offsets."""
        return {
            step
            for step, (source, output) in self._in_place.items()
            if source in offsets and offsets.get(output) == offsets[source]
        }

    def _bytes_of(self, index: int) -> Iterator[_Bytes]:
        """Yield the bytes of a tensor, cut where another source or another reader begins."""
        reads, sources = self._reads[index], self._sources[index]
        edges = {0, self._sizes[index], *(source.start for source in sources)}
        for low, high, _ in reads:
            edges |= {low, high}
        first, last = self._life[index]
        number = 0
        for start, end in itertools.pairwise(sorted(edges)):
            until = last
            if index not in self._graph.outputs:
                until = max([first, *(step for low, high, step in reads if low <= start < high)])
            number += start >= sources[number].end
            source = sources[number]
            by = source.origin_start - source.start
            yield _Bytes(start, end, [(first, until, source.origin, by)])

    def _all_reads(self) -> dict[int, list[tuple[int, int, int]]]:
        """Return, for each tensor, bytes [start, end) and a step that reads them."""
        reads: dict[int, list[tuple[int, int, int]]] = {index: [] for index in self._life}
        for step, operator in enumerate(self._graph.operators, 1):
            pieces = {index: (start, end) for index, start, end in self._pieces[step - 1] or ()}
            for index in self._graph.activations(operator.inputs):
                reads[index].append((*pieces.get(index, (0, self._sizes[index])), step))
        return reads

    def _all_sources(self) -> dict[int, list[_Source]]:
        """Return, for each tensor, where each of its bytes was computed."""
        found = {index: [_Source(0, self._sizes[index], index, 0)] for index in self._graph.inputs}
        for operator, pieces in zip(self._graph.operators, self._pieces, strict=True):
            if pieces is None:
                for index in operator.outputs:
                    found[index] = [_Source(0, self._sizes[index], index, 0)]
                continue
            offset, copied = 0, list[_Source]()
            for index, start, end in pieces:
                for source in found[index]:
                    low, high = max(source.start, start), min(source.end, end)
                    if low < high:
                        origin = source.origin_start + low - source.start
                        at = offset + low - start
                        copied.append(_Source(at, at + high - low, source.origin, origin))
                offset += end - start
            found[operator.outputs[0]] = copied
        return found


def _overlaid(one: Sequence[_Bytes], other: Sequence[_Bytes]) -> list[_Bytes]:
    """Return the bytes of two blocks, cut at the edges of both, with the needs of both."""
    edges = sorted({edge for each in (*one, *other) for edge in each[:2]})
    needs: list[list[_Need]] = [[] for _ in edges]
    for start, end, needed in (*one, *other):
        for number in range(bisect_left(edges, start), bisect_left(edges, end)):
            needs[number] += needed
    pairs = zip(itertools.pairwise(edges), needs, strict=False)
    return [_Bytes(start, end, sorted(needed)) for (start, end), needed in pairs if needed]


def _united(needs: Sequence[_Need], in_place: Container[int]) -> list[tuple[int, int]] | None:
    """Return the times in which a byte is needed; None where two contents want it at once.

    Args:
        needs: sorted.
        in_place: steps that read a byte last, and then write it anew.
    """
    found: list[tuple[int, int]] = []
    content: tuple[int, int] | None = None
    for first, last, *other in needs:
        if found and first <= found[-1][1]:
            if content != (other[0], other[1]) and (first < found[-1][1] or first not in in_place):
                return None
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
        content = (other[0], other[1])
    return found


def _neighbours_joined(cells: Sequence[Cell]) -> list[Cell]:
    found: list[Cell] = []
    for cell in sorted(cells, key=lambda c: (c[2], c[3], c[0])):
        if found and found[-1][2:] == cell[2:] and found[-1][1] == cell[0]:
            found[-1] = (found[-1][0], cell[1], *cell[2:])
        else:
            found.append(cell)
    return found
