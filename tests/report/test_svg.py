"""Scales, ticks and marks of the inline plots."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import pytest

from shrink.report import svg
from tests.report.plain import markup


def test_an_axis_maps_its_ends_and_its_middle() -> None:
    linear, log = svg.axis([0, 20], "x"), svg.axis([1, 100], "x")
    assert [linear(v) for v in (0, 10, 20)] == [0, 50, 100]
    assert [log(v) for v in (1, 10, 100)] == pytest.approx([0, 50, 100])
    assert log.title == "x, logarithmic"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0, 10), [0, 2.5, 5, 7.5, 10]),
        ((0.981, 0.999), [0.98, 0.985, 0.99, 0.995, 1.0]),
        ((-3, 3), [-4, -2, 0, 2, 4]),
        ((0.5, 150), [0.1, 1, 10, 100, 1000]),
        ((2, 45), [2, 5, 10, 20, 50]),
        ((3e4, 7e5), [30_000, 100_000, 300_000, 1_000_000]),
    ],
)
def test_ticks_are_round_and_hold_all_values(
    values: tuple[float, float], expected: list[float]
) -> None:
    assert svg.axis(values, "x").marks == pytest.approx(expected)


@pytest.mark.parametrize("values", [[1e-300, 1.0], [-1e308, 1e308], [5e-324, 1e308]])
def test_an_axis_survives_the_ends_of_floats(values: list[float]) -> None:
    axis = svg.axis(values, "x")
    assert all(-1e-9 <= axis(value) <= 100 + 1e-9 for value in values)
    assert all(math.isfinite(tick) for tick in axis.marks)


def plot(curves: dict[str, list[svg.Point]], text: str = "", **marks: Any) -> svg.Plot:
    x, y = svg.axis([0, 100], "x"), svg.axis([0, 100], "y")
    return svg.Plot(text, text, "p", x, y, curves, **marks)


def test_numbers_stand_at_their_marks_which_share_a_text_where_they_cover_each_other() -> None:
    x = y = svg.axis([0, 100], "x", log=False)
    names = [((10, 20), "1", "a"), ((60, 80), "2", "b"), ((11, 22), "7", "c"), ((90, 50), "9", "d")]
    labels, said = svg.numbered_labels(x, y, names)
    places = [(one.x, one.y, one.text) for one in labels]
    assert places == [(10, 20, "1, 7"), (60, 80, "2"), (90, 50, "9")]
    assert said == "1 a; 2 b; 7 c; 9 d."


def test_a_plot_is_well_formed_with_any_text() -> None:
    hostile = "<script>\"'&]]>\x00"
    label, dot = svg.Label(1, 2, hostile, "label"), svg.Dot(1, 2, "dot", hostile)
    drawn = markup(plot({"curve": [(0, 0), (1, 1)]}, hostile, labels=(label,), dots=(dot,)))
    root = ElementTree.fromstring(drawn)
    found = {"".join(one.itertext()) for one in root.iter() if one.tag in ("desc", "title", "text")}
    assert found >= {"<script>\"'&]]>\ufffd", "<script>\"'&]]>\ufffd: y by x"}
    assert not [one for one in root.iter() if one.tag == "script"]


@pytest.mark.parametrize(
    "values", [[311e3, 416e3], [0.931, 0.997], [0.5], [-3.0, 1e9], [0.0], [1e-20, 3e-20]]
)
@pytest.mark.parametrize("log", [True, False])
def test_an_axis_begins_and_ends_with_a_tick(values: list[float], log: bool) -> None:
    axis = svg.axis(values, "x", log=log)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert axis.low < axis.high
    assert (axis.marks[0], axis.marks[-1]) == (axis.low, axis.high)
    assert len(axis.marks) <= 8
