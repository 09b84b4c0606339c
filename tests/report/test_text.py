"""The report on a terminal and as Markdown: widths, encodings, hostile text, what stands where."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shrink.base.intervals import wilson_limits
from shrink.contract.result import StepResult
from shrink.report.page import escape, printable
from tests.report.plain import render_markdown, render_report
from tests.report.toys import failure, outcomes, report, with_result

GATES = {
    "accuracy_drop": {"limit": 0.01, "confidence": 0.95},
    "arena_bytes": "20KB",
    "tflite_bytes": {"limit": 13_999, "level": "warn"},
    "training_peak_bytes": "2GB",
}


def shown(built: dict[str, Any], width: int = 80, folder: Path | None = None) -> str:
    stream = io.StringIO()
    render_report(built, Console(file=stream, width=width, force_terminal=False), folder)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_render_report_fits_the_width(width: int) -> None:
    text = shown(report(gates=GATES), width)
    assert max(map(len, text.splitlines())) <= width


def test_render_report_shows_what_matters_in_80_columns() -> None:
    head = next(line for line in shown(report()).splitlines() if line.startswith("stage"))
    assert head.split() == [
        *("stage", "accuracy", "points", "[95", "%]"),
        *("tflite", "ratio", "training", "arena", "p50"),
    ]


def test_render_report_shows_points_against_the_baseline_with_their_interval() -> None:
    train, _, quantize = shown(report()).splitlines()[3:6]
    assert "98.00 %" in train
    low, high = wilson_limits(98, 100, 1.959964)
    assert f"within [{100 * low:.1f}, {100 * high:.1f}]" in train
    assert "-2.00 [-7.2, +2.3]" in quantize
    assert "14.0 KB 0.14x" in quantize


def test_render_report_marks_gates_without_colour_the_missed_first() -> None:
    text = shown(report(gates=GATES))
    marks = [
        line.split()[:2] for line in text.splitlines() if line[2:6] in ("PASS", "FAIL", "WARN")
    ]
    assert marks == [
        ["FAIL", "arena_bytes"],
        ["WARN", "tflite_bytes"],
        ["PASS", "accuracy_drop"],
        ["PASS", "training_peak_bytes"],
    ]
    assert "\x1b" not in text


def test_render_report_ends_with_the_artifacts_path() -> None:
    folder = Path("runs") / ("long" * 30)
    last = shown(report(), 60, folder).splitlines()[-1]
    assert last == str(folder / "artifacts/02-quantize.tflite")


def test_render_report_shows_the_error_when_a_stage_failed() -> None:
    train, prune, quantize = outcomes()
    error = failure(message="the loss is NaN at step 3", hint="lower the learning rate")
    failed = replace(prune, status="failed", result=StepResult(), error=error, artifact=None)
    skipped = replace(quantize, status="skipped", result=StepResult(), artifact=None)
    text = shown(report([train, failed, skipped]))
    assert "FAILED: prune did not finish" in text
    assert "prune failed: the loss is NaN at step 3" in text
    assert "hint: lower the learning rate" in text
    assert text.splitlines()[-1] == "so far: artifacts/train.keras"


def test_render_report_shows_other_metrics_when_there_is_no_accuracy() -> None:
    stages = [with_result(s, metrics={"mean_squared_error": 0.25}) for s in outcomes()]
    text = shown(report(stages))
    assert "mean_squared_error" in text
    assert "0.25" in text


def test_render_report_counts_the_notes_unless_they_are_wanted() -> None:
    built = report([with_result(s, notes=[f"{s.name} was slow"]) for s in outcomes()], GATES)
    assert "was slow" not in shown(built)
    (line,) = [line for line in shown(built).splitlines() if "--notes" in line]
    stream = io.StringIO()
    render_report(built, Console(file=stream, width=400), with_notes=True)
    printed = stream.getvalue().partition("\nnotes\n")[2].partition("\n\n")[0]
    assert line == f"{len(printed.splitlines())} notes: add --notes, or open report.html"
    assert printed.count("was slow") == len(outcomes())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_render_report_writes_to_any_encoding(encoding: str) -> None:
    stages = [with_result(s, notes=["図 \x1b[2J [red]é[/red]"]) for s in outcomes()]
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    render_report(report(stages, GATES), Console(file=stream, width=80), with_notes=True)
    stream.flush()
    text = raw.getvalue().decode(encoding)
    assert "\x1b" not in text
    assert "[red]" in text
    assert ("図" in text) == (encoding == "utf-8")


def test_printable_replaces_controls_and_what_the_encoding_lacks() -> None:
    assert printable("a\tb\x1b[0m\u202eé", "ascii") == "a b?[0m??"


HOSTILE = "a|b `c` <script>x</script> @octocat [l](http://e) *b* _i_ #12 \x1b[0m\nnext"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a|b", r"a\|b"),
        ("`rm`", r"\`rm\`"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("@octocat", "@\u200boctocat"),
        ("#12", "\\#\u200b12"),
        ("[x](y)", r"\[x\](y)"),
        ("a\\|b", r"a\\\|b"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("1) item", r"1\) item"),
        ("a-b 1.5", "a-b 1.5"),
        ("two\nlines\x07", "two lines?"),
    ],
)
def test_escape_leaves_nothing_for_github_to_act_on(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_render_markdown_keeps_every_row_as_wide_as_its_head_when_text_is_hostile() -> None:
    train, prune, quantize = outcomes()
    stages = [replace(train, name=HOSTILE), replace(prune, previous=HOSTILE), quantize]
    text = render_markdown(report(stages, {"loss": 1}, baseline=HOSTILE))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert len(counts) == 2  # the table of stages and that of gates


def test_render_markdown_escapes_every_text_from_outside() -> None:
    train, prune, quantize = outcomes()
    skipped = [{"layer": HOSTILE, "reason": HOSTILE}]
    error = failure(message=HOSTILE, hint=HOSTILE)
    stages = [
        with_result(
            replace(train, status="cached", artifact=HOSTILE),
            measured={"at": "x", "machine": HOSTILE},
        ),
        with_result(prune, notes=[HOSTILE], skipped=skipped),
        replace(quantize, status="failed", result=StepResult(), error=error),
    ]
    gates = {"arena_bytes": {"limit": 1, "stage": HOSTILE}}
    built = report(stages, gates, finals=("train",), packages={HOSTILE: HOSTILE})
    text = render_markdown(built)
    assert text.count("octocat") >= 10
    assert text.count("@octocat") == 0
    assert "<script>" not in text
    assert not re.search(r"(?<!\\)`", text)
    assert "\nnext" not in text
