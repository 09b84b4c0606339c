"""Operators of a graph that may run in row tiles, and what all tilings of them share."""

from __future__ import annotations

from shrink.compact.blocks import blocks_of
from shrink.compact.cost import graph_tail, macs_of, scratch_bytes, tail_of
from shrink.compact.graph import Graph
from shrink.compact.rows import RowRule, rule_of
from shrink.tflite.memory import aligned, lifetimes, live_bytes


class ImpossibleError(Exception):
    """A segment cannot run in these tiles."""


class GraphInfo:
    """What all segments of a graph share.

    Args:
        graph: the graph.

    Attributes:
        graph: its order of operators is final.
        rules: what each operator does to rows; None for one that cannot run on some of them.
        life: first and last step of each activation, see `memory.lifetimes`.
        peaks: bytes that are live while each operator runs, without tiles.
        macs: of each operator.
        tails: bytes of the arena that each operator and its output take for good.
        tail: and the whole graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.rules = [rule_of(graph, operator) for operator in graph.operators]
        self.life = lifetimes(graph)
        cells = (cell for block in blocks_of(graph) for cell in block.cells)
        self.peaks = live_bytes(cells, len(graph.operators))[1:]
        self.tails = [tail_of(graph, one) for one in graph.operators]
        self.tail = graph_tail(graph)
        self.macs = [macs_of(graph, operator) for operator in graph.operators]

    def crossing(self, number: int) -> int:
        """Return how many activations live on from before an operator to it or behind it."""
        return sum(first <= number < last for first, last in self.life.values())


class Segment:
    """Operators start .. end - 1 of a graph.

    Attributes:
        by_rows: inputs of each operator that are cut by rows.
        entries, exits: tensors from before it, and tensors that outlive it.
        lasting: entries and inner tensors that are needed behind it.
        bypass_bytes: of tensors that live while it runs, and that it does not name.
        least_bytes: live bytes that no tiling is below.
        height, row_bytes: by tensor.
        row_macs, row_scratch: for one row of each operator's output.
        last_read: tensors that each operator reads as the last one.

    Raises:
        ImpossibleError: an operator cannot run on some of the rows.
    """

    def __init__(self, info: GraphInfo, start: int, end: int) -> None:
        graph, life = info.graph, info.life
        self.graph, self.start, self.end = graph, start, end
        self.rules: list[RowRule] = []
        for rule in info.rules[start:end]:
            if rule is None:
                raise ImpossibleError
            self.rules.append(rule)
        operators = graph.operators[start:end]
        self.outputs = [operator.outputs[0] for operator in operators]
        inner = set(self.outputs)
        self.by_rows = [
            tuple(operator.inputs[number] for number in rule.inputs)
            for operator, rule in zip(operators, self.rules, strict=True)
        ]
        read = [t for o in operators for t in graph.activations(o.inputs) if t not in inner]
        self.entries = list(dict.fromkeys(read))
        self.lasting = {t for t in (*self.entries, *inner) if life[t][1] > end}
        self.lasting |= {t for t in graph.outputs if t in inner or t in self.entries}
        self.exits = [tensor for tensor in self.outputs if tensor in self.lasting]
        if self.outputs[-1] not in self.exits:
            raise ImpossibleError
        sizes = {t: aligned(graph.tensors[t].size_bytes) for t in life}
        self.bypass_bytes = sum(
            sizes[tensor]
            for tensor, (first, last) in life.items()
            if first <= start and last > end and tensor not in self.entries
        )
        entering = sum(sizes[tensor] for tensor in self.entries)
        leaving = sum(sizes[tensor] for tensor in self.lasting)
        self.least_bytes = self.bypass_bytes + max(entering, leaving)
        self.height = {t: (*graph.tensors[t].shape, 1, 1)[1] for t in (*self.entries, *inner)}
        self.row_bytes = {t: graph.tensors[t].size_bytes // h for t, h in self.height.items()}
        heights = [self.height[tensor] for tensor in self.outputs]
        self.row_macs = [m // h for m, h in zip(info.macs[start:end], heights, strict=True)]
        self.macs = sum(m * h for m, h in zip(self.row_macs, heights, strict=True))
        self.tails = info.tails[start:end]
        scratch = [scratch_bytes(graph, operator) for operator in operators]
        self.row_scratch = [s // h for s, h in zip(scratch, heights, strict=True)]
        self.last_read: list[list[int]] = [[] for _ in self.outputs]
        last = {tensor: number for number, read in enumerate(self.by_rows) for tensor in read}
        for tensor in self.outputs:
            if tensor in last:
                self.last_read[last[tensor]].append(tensor)

    @property
    def rows(self) -> int:
        """The height of the last operator's output."""
        return self.height[self.outputs[-1]]
