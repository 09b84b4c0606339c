"""The report as Markdown: tables that stay tables, and text that stays text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from shrink.contract.result import StepResult
from shrink.report.markdown import escape, table
from tests.report.plain import render_markdown
from tests.report.toys import failure, outcomes, report, with_result

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


def test_table_escapes_cells() -> None:
    assert table(("h", "n"), [("a|b", "-1")]) == "| h | n |\n| --- | ---: |\n| a\\|b | -1 |"


def test_render_markdown_begins_with_what_got_smaller_and_what_it_cost() -> None:
    lines = render_markdown(report()).splitlines()
    assert lines[0] == "# digits: FINISHED, no gates"
    assert lines[2].startswith(
        "Stage quantize is 7.14 times smaller than train: 14.0 KB instead of"
    )


def test_render_markdown_has_the_terminals_content_and_the_environment() -> None:
    text = render_markdown(report(gates={"accuracy_drop": 0.02, "arena_bytes": "20KB"}))
    assert text.startswith("# digits: FAILED: 1 of 2 gates missed: arena\\_bytes\n")
    assert "| FAIL | arena\\_bytes | 24.0 KB &gt; 20.0 KB | quantize |" in text
    assert "-2.00 \\[-7.2, +2.3\\]" in text
    assert "- artifacts/02-quantize.tflite" in text
    assert "- tensorflow: 2.21" in text
    assert "- devices: CPU:0" in text


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
    built = report(stages, gates, finals=("train",), more=HOSTILE, packages={HOSTILE: HOSTILE})
    text = render_markdown(built)
    assert text.count("octocat") >= 10
    assert text.count("@octocat") == 0
    assert "<script>" not in text
    assert not re.search(r"(?<!\\)`", text)
    assert "\nnext" not in text


def test_render_markdown_is_short_when_there_is_nothing_to_say() -> None:
    text = render_markdown(report([], finals=()))
    assert "## Notes" not in text
    assert "## Gates" not in text
    assert "| stage" not in text
