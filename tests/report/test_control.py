"""The table of a distillation with control: true."""

from __future__ import annotations

from typing import Any

import pytest

from shrink.base.intervals import Interval
from shrink.report.control import control_sentence, verdict
from tests.report.plain import control_tables, render_html
from tests.report.toys import outcomes, report, with_result

CONTROL = {
    "alone": {"accuracy": 0.5819, "loss": 1.25},
    "taught": {"accuracy": 0.6348, "loss": 1.0},
    "teacher": {"accuracy": 0.8319, "loss": None},
    "gain": {
        "accuracy": {"value": 0.0529, "low": 0.039, "high": 0.067},
        "loss": {"value": -0.25, "low": None, "high": None},
    },
}


def tables(control: Any) -> list[Any]:
    train, *rest = outcomes()
    return control_tables(report([with_result(train, details={"control": control}), *rest]))


def test_control_tables_show_alone_taught_teacher_and_difference() -> None:
    (found,) = tables(CONTROL)
    assert found.title == "train"
    assert found.heads == ("", "accuracy", "loss")
    assert found.rows == (
        ("student alone", "58.19 %", "1.25"),
        ("student taught", "63.48 %", "1"),
        ("teacher", "83.19 %", "-"),
        ("teaching brought", "+5.29 [+3.90, +6.70]", "-0.25 [-, -]"),
    )


def test_page_shows_the_table() -> None:
    train, *rest = outcomes()
    page = render_html(report([with_result(train, details={"control": CONTROL}), *rest]))
    assert "What the teacher brought" in page
    assert "+5.29 [+3.90, +6.70]" in page
    assert "What the teacher brought" not in render_html(report())


@pytest.mark.parametrize("control", [None, 1, {}, {"taught": 3}, {"taught": {}}])
def test_control_tables_ignore_what_is_none(control: Any) -> None:
    assert tables(control) == []


def test_control_tables_show_a_dash_for_what_is_missing() -> None:
    (found,) = tables({"taught": {"accuracy": "x"}, "gain": 1})
    assert {cell for row in found.rows for cell in row[1:]} == {"-", "- [-, -]"}


@pytest.mark.parametrize(
    ("name", "low", "high", "expected"),
    [
        ("accuracy", -0.01, 0.0554, "no proven difference"),
        ("accuracy", 0.0, 0.05, "no proven difference"),
        ("accuracy", -0.0411, -0.002, "worse"),
        ("accuracy", 0.002, 0.0411, "better"),
        ("loss", -0.3, -0.1, "better"),
        ("mean_absolute_error", 0.1, 0.3, "worse"),
        ("accuracy", None, None, None),
    ],
)
def test_verdict_is_the_rule_of_the_report(
    name: str, low: float | None, high: float | None, expected: str | None
) -> None:
    value = 0.0187 if low is None or high is None else (low + high) / 2
    assert verdict(name, Interval(value, low, high)) == expected


def test_control_sentence_speaks_in_points_and_proves_nothing_by_a_middle() -> None:
    gain = Interval(0.0187, -0.01, 0.0554)
    assert control_sentence("accuracy", 0.61, 0.6287, 0.8319, gain, 1200) == (
        "control: after 1,200 updates the student has accuracy 62.87 % with its teacher and "
        "61.00 % without (+1.87 points, 95 % interval -1.00 to +5.54: no proven difference); "
        "the teacher has 83.19 %"
    )
    text = control_sentence("loss", 1.0, 1.25, 0.5, Interval(0.25, None, None), 8)
    assert "(+0.25; there is no interval)" in text
