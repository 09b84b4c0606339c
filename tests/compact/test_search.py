"""The search for tilings: its own bound, its limit of work, and the same result every time."""

from __future__ import annotations

import pytest

from shrink.compact import search
from shrink.compact.cost import graph_macs, graph_tail
from shrink.compact.graph import Graph
from shrink.compact.plan import Planned, plan_below
from shrink.compact.read import read_graph
from shrink.compact.search import Found, Search
from shrink.compact.segment import GraphInfo
from tests.compact.toys import chain


def planned(graph: Graph, limit: int) -> Planned | None:
    tail = graph_tail(graph)
    found = plan_below(graph, 20, limit - tail)
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
