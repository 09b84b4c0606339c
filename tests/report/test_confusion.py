"""Confusion matrices in reports: the whole of few classes, pairs of many."""

from __future__ import annotations

from typing import Any

from shrink.contract.report_file import report_of
from shrink.report.tables import confusion_tables
from tests.report.plain import render_html, render_markdown
from tests.report.toys import outcomes, report, with_result

FEW = {
    "output": "kind",
    "labels": ["cat", "<dog>"],
    "counts": [[7.0, 2.5], [0.0, 4.0]],
    "confused": [{"true": "cat", "decided": "<dog>", "count": 2.5}],
}
MANY = {
    "output": "kind",
    "labels": [str(n) for n in range(21)],
    "counts": [[0.0] * 21] * 21,
    "confused": [{"true": "3", "decided": "5", "count": 12.0}],
}


def with_confusion(one: dict[str, Any]) -> dict[str, Any]:
    return report([with_result(each, details={"confusion": [one]}) for each in outcomes()])


def test_few_classes_have_the_whole_matrix() -> None:
    found = confusion_tables(report_of(with_confusion(FEW)))
    assert found[0].heads == ("true", "cat", "<dog>")
    assert found[0].rows == (("cat", "7", "2.5"), ("<dog>", "-", "4"))
    assert len(found) == len(outcomes())


def test_many_classes_have_the_pairs_that_are_confused_most() -> None:
    (found, *_) = confusion_tables(report_of(with_confusion(MANY)))
    assert found.heads == ("true", "predicted", "examples")
    assert found.rows == (("3", "5", "12"),)


def test_pages_show_the_table_and_escape_its_names() -> None:
    page = render_html(with_confusion(FEW))
    assert "Confusion matrix" in page
    assert "&lt;dog&gt;" in page
    assert "<dog>" not in page
    text = render_markdown(with_confusion(FEW))
    assert "| cat | 7 | 2.5 |" in text
    assert "Confusion matrix" not in render_html(report())
