"""Operators of a graph that may run in bands of rows, and what all such bands share."""

from __future__ import annotations

from collections import defaultdict

from shrink.compact.cost import macs_of, scratch_bytes, tail_of
from shrink.compact.graph import Graph
from shrink.compact.rows import RowRule, rule_of
from shrink.compact.views import blocks_of, lifetimes, live_bytes
from shrink.tflite.planner import ALIGNMENT_BYTES, aligned


class Impossible(Exception):
    """A stretch cannot run in these bands."""


class Survey:
    """What all stretches of a graph share.

    Args:
        graph: the graph.
        litert: whether it is compacted for LiteRT.

    Attributes:
        graph: its order of operators is final.
        rules: what each operator does to rows; None for one that cannot run on some of them.
        life: first and last step of each activation, see `views.lifetimes`.
        blocks: as the graph stands.
        has_scratch: whether an operator takes work memory.
        uses: steps that read each activation.
        peaks: bytes that are live while each operator runs, as the graph stands.
        macs: of the whole graph.
        tails: what each operator and its output take for good.
    """

    def __init__(self, graph: Graph, *, litert: bool = False) -> None:
        self.graph = graph
        self.rules = [rule_of(graph, operator, litert=litert) for operator in graph.operators]
        self.life = lifetimes(graph)
        self.blocks = blocks_of(graph)
        self.has_scratch = any(block.is_scratch for block in self.blocks)
        self.uses: defaultdict[int, list[int]] = defaultdict(list)
        for step, operator in enumerate(graph.operators, 1):
            for tensor in graph.activations(operator.inputs):
                self.uses[tensor].append(step)
        self.peaks = live_bytes(self.blocks, len(graph.operators))[1:]
        self.tails = [tail_of(graph, operator) for operator in graph.operators]
        self._macs = [macs_of(graph, operator) for operator in graph.operators]
        self.macs = sum(self._macs)

    def rows(self, operator: int) -> int:
        """Return the height of an operator's output."""
        return self.graph.tensors[self.graph.operators[operator].outputs[0]].shape[1]

    def row_macs(self, operator: int) -> int:
        """Return the multiply-accumulates for one row of an operator's output."""
        output = self.graph.operators[operator].outputs[0]
        return self._macs[operator] // self.graph.tensors[output].shape[1]

    def crossing(self, place: int) -> int:
        """Return how many activations live on from before an operator to it or behind it."""
        return sum(first <= place < last for first, last in self.life.values())


class Stretch:
    """Operators start .. end - 1 of a graph, with what all schedules of them share.

    Raises:
        Impossible: an operator cannot run on some of the rows.
    """

    def __init__(self, survey: Survey, start: int, end: int) -> None:
        graph, life = survey.graph, survey.life
        self.graph, self.start, self.end = graph, start, end
        self.rules: list[RowRule] = []
        for rule in survey.rules[start:end]:
            if rule is None:
                raise Impossible
            self.rules.append(rule)
        operators = graph.operators[start:end]
        self.outputs = [operator.outputs[0] for operator in operators]
        inner = set(self.outputs)
        self.by_rows = [
            tuple(operator.inputs[place] for place in rule.inputs)
            for operator, rule in zip(operators, self.rules, strict=True)
        ]
        read = [t for o in operators for t in graph.activations(o.inputs) if t not in inner]
        self.entries = list(dict.fromkeys(read))
        self.outlasting = {t for t in (*self.entries, *inner) if life[t][1] > end}
        self.outlasting |= {t for t in graph.outputs if t in inner or t in self.entries}
        self.exits = [tensor for tensor in self.outputs if tensor in self.outlasting]
        if self.outputs[-1] not in self.exits:
            raise Impossible
        sizes = {t: aligned(graph.tensors[t].size_bytes) for t in life}
        self.bypass_bytes = sum(
            sizes[tensor]
            for tensor, (first, last) in life.items()
            if first <= start and last > end and tensor not in self.entries
        )
        entering = sum(sizes[tensor] for tensor in self.entries)
        leaving = sum(sizes[tensor] for tensor in self.outlasting)
        self.least_bytes = self.bypass_bytes + max(entering, leaving)
        tensors = (*self.entries, *self.outputs)
        self.height = {t: (*graph.tensors[t].shape, 1, 1)[1] for t in tensors}
        self.row_bytes = {t: graph.tensors[t].size_bytes // self.height[t] for t in tensors}
        self.aligned_rows = all(size % ALIGNMENT_BYTES == 0 for size in self.row_bytes.values())
        self.row_macs = [survey.row_macs(number) for number in range(start, end)]
        self.macs = sum(
            macs * self.height[t] for macs, t in zip(self.row_macs, self.outputs, strict=True)
        )
        self.tails = survey.tails[start:end]
        scratch = [scratch_bytes(graph, operator) for operator in operators]
        self.row_scratch = [
            size // self.height[t] for size, t in zip(scratch, self.outputs, strict=True)
        ]
        self.last_read: list[list[int]] = [[] for _ in self.outputs]
        for tensor in self.outputs:
            readers = [place for place, read in enumerate(self.by_rows) if tensor in read]
            if readers:
                self.last_read[readers[-1]].append(tensor)

    @property
    def rows(self) -> int:
        """The height of the last operator's output."""
        return self.height[self.outputs[-1]]
