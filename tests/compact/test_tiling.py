"""Tiles of rows through random graphs: outputs and plans, in every runtime."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.compact.graph import Graph, write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.rows import Window
from shrink.compact.schedule import Tiling
from shrink.compact.segment import GraphInfo, ImpossibleError, Segment
from tests.compact.random_tilings import in_tiles, random_tiling
from tests.compact.runs import allocates, outputs_of
from tests.compact.toys import Net, random_net


def assert_equal(content: bytes, graph: Graph) -> None:
    found = plan(graph, 100)
    assert outputs_of(write_graph(graph, found.offsets)) == outputs_of(content)


def check_random_tiles(seed: int, tries: int) -> None:
    content = random_net(seed)
    info = GraphInfo(read_graph(content))
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        if tiling := random_tiling(info, rng):
            assert_equal(content, in_tiles(info, [tiling]))


@pytest.mark.parametrize("seed", range(6))
def test_tiles_through_random_graphs_change_no_byte(seed: int) -> None:
    check_random_tiles(seed, tries=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 206))
def test_tiles_through_many_random_graphs_change_no_byte(seed: int) -> None:
    check_random_tiles(seed, tries=20)


def test_inputs_decide_outputs() -> None:
    """The control: these comparisons can fail."""
    one, other = random_net(0), random_net(1)
    assert outputs_of(one) != outputs_of(other)
    assert len(set(outputs_of(one)[-1])) == 2


def test_two_tilings_run_one_after_the_other() -> None:
    net = Net((1, 24, 12, 3))
    half = net.conv(net.conv(net.input, 8), 8, stride=2)
    content = net.file(net.conv(net.conv(half, 16), 4))
    info = GraphInfo(read_graph(content))
    tilings = [Tiling(0, 2, (4, 8)), Tiling(2, 4, (5,), upward=True)]
    assert_equal(content, in_tiles(info, tilings))


def test_a_skip_connection_leaves_and_enters_a_segment() -> None:
    net = Net((1, 16, 8, 4))
    skip = net.conv(net.input, 8)
    low = net.conv(net.pool(skip, 2, 2, average=False, padding=1), 8)
    content = net.file(net.conv(net.concat([skip, net.enlarge(low)]), 4))
    info = GraphInfo(read_graph(content))
    count = len(info.rules)
    for start, end in ((0, 2), (0, count), (2, count)):
        for kept in (frozenset[int](), frozenset(Segment(info, start, end).outputs)):
            assert_equal(content, in_tiles(info, [Tiling(start, end, (3, 6), kept)]))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (2, 2), (3, 2), (4, 2), (3, 1), (5, 3)])
def test_transposed_convolutions_run_in_tiles(kernel: int, stride: int, padding: int) -> None:
    for more in {0, 1 - stride if padding == 0 else stride - 1}:
        net = Net((1, 7, 5, 4))
        x = net.conv(net.input, 4)
        x = net.transposed(x, 6, kernel, stride, padding, more, bias=bool(more))
        content = net.file(net.conv(x, 4))
        info = GraphInfo(read_graph(content))
        assert info.rules[1] is not None
        middle = info.graph.operators[1].outputs[0]
        for kept in (frozenset[int](), frozenset([middle])):
            graph = in_tiles(info, [Tiling(0, 3, (2, 3, 6), kept)])
            assert_equal(content, graph)


def test_a_row_too_few_for_a_transposed_convolution_shows() -> None:
    """The control: a wrong window gives other bytes in every runtime."""
    net = Net((1, 7, 5, 4))
    content = net.file(net.transposed(net.conv(net.input, 4), 6, 3, 2))
    info = GraphInfo(read_graph(content))
    right = info.rules[1]
    assert right is not None

    def wrong(first: int, last: int) -> Window:
        window = right.window(first, last)
        if not window.start:
            return window
        return window._replace(start=window.start + 1, first=window.first + 2)

    info.rules[1] = right._replace(window=wrong)
    graph = in_tiles(info, [Tiling(0, 2, (6,))])
    for one, other in zip(outputs_of(write_graph(graph)), outputs_of(content), strict=True):
        assert one != other


def test_a_transposed_convolution_of_more_rows_than_its_padding_gives_runs_whole() -> None:
    net = Net((1, 7, 5, 4))
    graph = read_graph(net.file(net.transposed(net.input, 6, 3, 2, 0, more=4)))
    assert GraphInfo(graph).rules == [None]


def test_more_than_a_hundred_tiles_are_concatenated_by_tens_twice() -> None:
    net = Net((1, 101, 3, 2))
    content = net.file(net.conv(net.input, 4))
    graph = in_tiles(GraphInfo(read_graph(content)), [Tiling(0, 1, tuple(range(1, 101)))])
    joined = [len(o.inputs) for o in graph.operators if o.name == "CONCATENATION"]
    assert max(joined) <= 10
    assert sum(joined[:11]) == 101
    assert joined[11:] == [6, 5, 2]
    assert_equal(content, graph)


@pytest.mark.parametrize(("count", "runs"), [(10, True), (11, False)])
def test_tflite_micro_concatenates_ten_tensors_at_most(count: int, runs: bool) -> None:
    net = Net((1, 4, 4, 2))
    assert allocates(net.file(net.concat([net.input] * count)), 100_000) == runs


def test_an_operator_that_mixes_all_rows_cannot_run_in_tiles() -> None:
    net = Net((1, 8, 8, 4))
    pooled = net.pool(net.conv(net.input, 4), 3, 1, average=True, padding=0)
    info = GraphInfo(read_graph(net.file(net.same_scale(pooled, 1.0))))
    assert all(rule is not None for rule in info.rules)
    graph = read_graph(net.file(net.concat([pooled, pooled], axis=1)))
    with pytest.raises(ImpossibleError):
        Segment(GraphInfo(graph), 0, len(graph.operators))
