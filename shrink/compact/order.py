"""The order of operators in which the fewest bytes are live at once."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shrink.compact.blocks import writes_in_place
from shrink.compact.cost import scratch_bytes
from shrink.compact.graph import Graph
from shrink.tflite.memory import aligned

_MOST_STATES = 50_000
"""A graph with more sets of operators that may have run keeps its own order."""


class _Step(NamedTuple):
    """One more operator: its own peak, and the bytes that are live after it."""

    operator: int
    peak: int
    live: int
    done: int


def in_best_order(graph: Graph) -> Graph:
    """Return the graph with its operators in the order of the lowest peak.

    A state is the set of the operators that have run; Dijkstra's algorithm finds the path to the
    last one whose highest peak is the lowest. Where an operator neither raises the peak nor what
    is live after it, no other one need be tried in its place. Of two paths as low, the one that
    has run more operators goes on, in the order of the file. Then neighbours change places where
    less is live while they run: its peak does not tell how well an order can be tiled and planned.
    After too many states the order stays as it is.
    """
    search = _Search(graph)
    found = search.path()
    if found is None:
        return graph
    return graph.with_operators([graph.operators[i] for i in search.settled(*found)])


class _Search:
    """Sets of operators are the bits of integers."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._operators = graph, graph.operators
        self._kept = set(graph.outputs)
        written = {t: i for i, o in enumerate(graph.operators) for t in o.outputs}
        self._readers: defaultdict[int, int] = defaultdict(int)
        self._scratch = [aligned(scratch_bytes(graph, one)) for one in graph.operators]
        self._before = [0] * len(graph.operators)
        self._sizes = {t: aligned(graph.tensors[t].size_bytes) for t in (*written, *graph.inputs)}
        for number, operator in enumerate(graph.operators):
            for tensor in graph.activations(operator.inputs):
                self._readers[tensor] |= 1 << number
                if tensor in written:
                    self._before[number] |= 1 << written[tensor]
        self._begin = sum(self._sizes[tensor] for tensor in graph.inputs)

    def path(self) -> tuple[list[int], int] | None:
        """Return the operators in order and their peak; None after too many states."""
        everything = (1 << len(self._operators)) - 1
        best = {0: self._begin}
        came: dict[int, tuple[int, int]] = {}
        queue = [(self._begin, 0, 0, self._begin)]
        for _ in range(_MOST_STATES):
            peak, _, done, live = heapq.heappop(queue)
            if done == everything:
                return self._traced(came, done), peak
            if best[done] < peak:
                continue
            for step in self._steps(done, live, peak):
                highest = max(peak, step.peak)
                if highest < best.get(step.done, 1 << 62):
                    best[step.done] = highest
                    came[step.done] = (step.operator, done)
                    entry = (highest, -step.done.bit_count(), step.done, step.live)
                    heapq.heappush(queue, entry)
        return None

    def settled(self, order: Sequence[int], peak: int) -> list[int]:
        """Return an order whose neighbours have changed places where fewer bytes are then live.

        Args:
            order: of all operators.
            peak: that no operator may exceed.
        """
        order = list(order)
        for _ in order:
            done, live, moved = 0, self._begin, False
            for position in range(len(order) - 1):
                one, other = order[position : position + 2]
                if not self._before[other] >> one & 1:
                    now = self._two(one, other, done, live)
                    swapped = self._two(other, one, done, live)
                    if sum(swapped) < sum(now) and max(swapped) <= peak:
                        order[position : position + 2] = other, one
                        moved = True
                step = self._step(order[position], done, live)
                done, live = step.done, step.live
            if not moved:
                break
        return order

    def _two(self, one: int, other: int, done: int, live: int) -> tuple[int, int]:
        """Return the peaks of two operators, one after the other."""
        first = self._step(one, done, live)
        return first.peak, self._step(other, first.done, first.live).peak

    def _steps(self, done: int, live: int, peak: int) -> list[_Step]:
        steps = [self._step(number, done, live) for number in self._ready(done)]
        free = [step for step in steps if step.peak <= peak and step.live <= live]
        return free[:1] or steps

    def _ready(self, done: int) -> Iterator[int]:
        for number, before in enumerate(self._before):
            if not done >> number & 1 and before & ~done == 0:
                yield number

    def _step(self, number: int, done: int, live: int) -> _Step:
        operator = self._operators[number]
        after = done | 1 << number
        written = sum(self._sizes[tensor] for tensor in operator.outputs)
        freed = 0
        for tensor in {*operator.inputs, *operator.outputs}:
            held = tensor in self._sizes and tensor not in self._kept
            if held and not self._readers[tensor] & ~after:
                freed += self._sizes[tensor]
        in_place = written if writes_in_place(self._graph, operator) and freed >= written else 0
        peak = live + written - in_place + self._scratch[number]
        return _Step(number, peak, live + written - freed, after)

    def _traced(self, came: dict[int, tuple[int, int]], done: int) -> list[int]:
        path = []
        while done:
            number, done = came[done]
            path.append(number)
        return path[::-1]
