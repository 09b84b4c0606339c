"""The search for tilings: its own bound, its limit of work, and the same result every time."""

from __future__ import annotations

import weakref

import pytest

from shrink.compact import search
from shrink.compact.cost import graph_macs, graph_tail
from shrink.compact.graph import Graph
from shrink.compact.plan import Planned, plan_below
from shrink.compact.read import read_graph
from shrink.compact.schedule import Schedule, Tiling
from shrink.compact.search import Found, Search
from shrink.compact.segment import GraphInfo, ImpossibleError, Segment
from tests.compact.toys import Net, chain


def planned(graph: Graph, limit: int) -> Planned | None:
    tail = graph_tail(graph)
    found = plan_below(graph, limit - tail, 20)
    return None if found is None else Planned(graph, found, found.size_bytes + tail)


def searched(extra: float) -> Found | None:
    info = GraphInfo(read_graph(chain(16)))
    return Search(info, int(extra * sum(info.macs)), planned).best()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_CHANGES", 60)


@pytest.mark.parametrize("extra", [0.1, 0.5])
def test_a_choice_keeps_to_its_work_and_takes_no_less_than_its_bound(extra: float) -> None:
    found, macs = searched(extra), graph_macs(read_graph(chain(16)))
    assert found is not None
    assert found.planned is not None
    assert found.candidate.tilings
    assert graph_macs(found.planned.graph) - macs == found.candidate.macs <= extra * macs
    assert found.planned.plan.size_bytes >= found.candidate.peak_bytes
    assert found.planned.plan.size_bytes < 2 * 16 * 8 * 24  # of the chain without tiles


def test_the_same_graph_gets_the_same_tiles() -> None:
    one, other = searched(0.1), searched(0.1)
    assert one is not None
    assert other is not None
    assert one.candidate == other.candidate


def test_what_cannot_be_placed_is_not_chosen() -> None:
    info = GraphInfo(read_graph(chain(16)))
    assert Search(info, sum(info.macs), lambda *_: None).best() is None


def long_chain() -> GraphInfo:
    net = Net((1, 64, 16, 4))
    x = net.input
    for _ in range(4):
        x = net.conv(net.conv(net.conv(x, 24, (1, 1)), 0, depthwise=True), 4, (1, 1))
    return GraphInfo(read_graph(net.file(x)))


def test_schedules_that_cannot_be_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Tiling] = []

    def impossible(_: Segment, tiling: Tiling, __: int) -> Schedule:
        made.append(tiling)
        raise ImpossibleError

    monkeypatch.setattr(search, "Schedule", impossible)
    monkeypatch.setattr(search, "_MOST_SCHEDULES", 20)
    assert Search(long_chain(), 0, planned).best() is None
    # The first pass tries up to four for the segment at which it stops; then come changes.
    assert 20 <= len(made) <= (20 + 4) + 20


def test_segments_are_short_and_do_not_outlive_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Segment] = weakref.WeakSet()
    lengths: set[int] = set()

    def noted(info: GraphInfo, start: int, end: int) -> Segment:
        segment = Segment(info, start, end)
        alive.add(segment)
        lengths.add(end - start)
        return segment

    monkeypatch.setattr(search, "Segment", noted)
    monkeypatch.setattr(search, "_LONGEST_SEGMENT", 4)
    info = long_chain()
    finding = Search(info, sum(info.macs), planned)
    assert finding.best() is not None
    assert lengths == {1, 2, 3, 4}
    assert not alive
