"""Scales, ticks and marks of the inline plots."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from shrink.report import svg


def test_scale_maps_its_ends_and_its_middle() -> None:
    linear, log = svg.Scale(10, 20), svg.Scale(1, 100, log=True)
    assert [linear(v) for v in (10, 15, 20)] == [0, 50, 100]
    assert [log(v) for v in (1, 10, 100)] == pytest.approx([0, 50, 100])


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (svg.Scale(0, 10), [0, 2, 4, 6, 8, 10]),
        (svg.Scale(0.981, 0.999), [0.985, 0.99, 0.995]),
        (svg.Scale(-3, 3), [-2, 0, 2]),
        (svg.Scale(0.5, 150, log=True), [1, 3, 10, 30, 100]),
        (svg.Scale(3e4, 5e5, log=True), [50_000, 100_000, 200_000, 500_000]),
    ],
)
def test_ticks_are_round_and_inside(scale: svg.Scale, expected: list[float]) -> None:
    assert scale.ticks() == pytest.approx(expected)


def test_ticks_stay_few_when_the_axis_spans_many_decades() -> None:
    assert 2 <= len(svg.Scale(1e-9, 1e9, log=True).ticks(4)) <= 6


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-1.0, 1e9], [1e-99, 1.0], [0.0, 1e-12]])
def test_scale_of_holds_every_value_with_room(values: list[float]) -> None:
    scale = svg.scale_of(values)
    positions = [scale(value) for value in values]
    assert all(0 < position < 100 for position in positions)
    assert all(math.isfinite(tick) for tick in scale.ticks())


@pytest.mark.parametrize("values", [[1e-300, 1.0], [-1e308, 1e308], [5e-324, 1e308]])
def test_scale_of_survives_the_ends_of_floats(values: list[float]) -> None:
    scale = svg.scale_of(values)
    assert all(-1e-9 <= scale(value) <= 100 + 1e-9 for value in values)
    assert all(math.isfinite(tick) for tick in scale.ticks())


def test_scale_of_is_logarithmic_when_values_span_a_factor_of_twenty() -> None:
    assert svg.scale_of([1, 21]).log
    assert not svg.scale_of([1, 19]).log
    assert not svg.scale_of([0, 100]).log


def test_line_thins_long_series_and_keeps_both_ends() -> None:
    drawn = svg.line([(i / 100, 50) for i in range(10_001)], "curve")
    points = ElementTree.fromstring(drawn).attrib["points"].split()
    assert len(points) <= 402
    assert (points[0], points[-1]) == ("0.00,50.00", "100.00,50.00")


def test_image_is_well_formed_with_any_text() -> None:
    hostile = "<script>\"'&]]>\x00"
    inner = svg.text(1, 2, hostile, "label") + svg.dot(1, 2, "dot", hostile)
    root = ElementTree.fromstring(svg.image("p", 100, hostile, hostile, inner))
    assert [child.tag for child in root] == ["title", "desc", "text", "circle"]
    assert {child.text for child in root if child.text} == {"<script>\"'&]]>\ufffd"}


@pytest.mark.parametrize(
    "values", [[311e3, 416e3], [0.931, 0.997], [0.5], [-3.0, 1e9], [0.0], [1e-20, 3e-20]]
)
@pytest.mark.parametrize("log", [True, False])
def test_covering_begins_and_ends_with_a_tick_and_holds_all(values: list[float], log: bool) -> None:
    scale = svg.covering(values, log=log)
    ticks = scale.ticks(4)
    assert scale.low <= min(values) <= max(values) <= scale.high
    assert scale.low < scale.high
    assert (ticks[0], ticks[-1]) == pytest.approx((scale.low, scale.high))
    assert len(ticks) <= 7


def test_covering_does_not_reach_far_beyond_its_values() -> None:
    log = svg.covering([51e3, 416e3], log=True)
    assert (log.low, log.high, log.log) == (5e4, 5e5, True)
    linear = svg.covering([0.931, 0.997])
    assert (linear.low, linear.high) == pytest.approx((0.92, 1.0))
