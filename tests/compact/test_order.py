"""The order of operators with the lowest peak, against every order there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shrink.compact.graph import Graph
from shrink.compact.order import in_best_order
from shrink.compact.read import read_graph
from shrink.tflite.memory import aligned, lifetimes
from tests.compact.toys import Net


def tangled(seed: int) -> bytes:
    """Six operators of random widths on random earlier tensors, concatenated in the end."""
    rng = np.random.default_rng(seed)
    net = Net((1, 4, 4, 4), seed)
    made = [net.input]
    for _ in range(6):
        source = made[int(rng.integers(0, len(made)))]
        made.append(net.conv(source, int(rng.integers(1, 30)), (1, 1)))
    ends = [t for t in made[1:] if not any(t in list(o.inputs) for o in net.graph.operators)]
    return net.file(*ends)


def peak_of(graph: Graph) -> int:
    """The most bytes alive at once, by counting."""
    life = lifetimes(graph)
    steps = range(len(graph.operators) + 1)
    sizes = {t: aligned(graph.tensors[t].size_bytes) for t in life}
    return max(sum(sizes[t] for t, (a, b) in life.items() if a <= step <= b) for step in steps)


def runs(graph: Graph) -> bool:
    written = set(graph.inputs)
    for operator in graph.operators:
        if not written.issuperset(graph.activations(operator.inputs)):
            return False
        written.update(operator.outputs)
    return True


@pytest.mark.parametrize("seed", range(8))
def test_no_order_has_a_lower_peak(seed: int) -> None:
    graph = read_graph(tangled(seed))
    found = in_best_order(graph)
    others = (graph.with_operators(one) for one in itertools.permutations(graph.operators))
    lowest = min(peak_of(other) for other in others if runs(other))
    assert runs(found)
    assert set(found.operators) == set(graph.operators)
    assert peak_of(found) == lowest


def test_the_branch_that_frees_more_runs_first() -> None:
    net = Net((1, 4, 4, 1))
    wide = net.conv(net.input, 60, (1, 1))
    narrow = net.conv(net.input, 8, (1, 1))
    first = net.conv(narrow, 1, (1, 1))
    second = net.conv(wide, 1, (1, 1))
    graph = read_graph(net.file(net.concat([first, second])))
    found = in_best_order(graph)
    written = [operator.outputs[0] for operator in found.operators]
    assert written.index(second) == written.index(wide) + 1
    assert peak_of(found) < peak_of(graph)


def test_what_frees_more_runs_first_where_the_peak_is_the_same() -> None:
    """As in a residual block with a convolution for its shortcut: it lets go of the wide tensor."""
    net = Net((1, 4, 4, 1))
    wide = net.conv(net.input, 16, (1, 1))
    kept = net.conv(net.conv(wide, 8, (1, 1)), 8, (1, 1))
    shortcut = net.conv(wide, 8, (1, 1))
    graph = read_graph(net.file(net.add(kept, shortcut)))
    found = in_best_order(graph)
    written = [operator.outputs[0] for operator in found.operators]
    assert written.index(shortcut) < written.index(kept)
    assert peak_of(found) == peak_of(graph) == 16 * (16 + 8 + 8)
