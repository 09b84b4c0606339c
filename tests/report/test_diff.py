"""Differences between two runs."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from shrink.contract.result import StepResult
from tests.report.plain import diff_reports, render_diff_markdown, render_diff_terminal
from tests.report.toys import outcome, outcomes, report, with_result


def test_diff_reports_is_empty_when_nothing_changed() -> None:
    diff = diff_reports(report(gates={"loss": 1}), report(gates={"loss": 1}))
    assert diff["stages"] == diff["only_a"] == diff["only_b"] == diff["gates"] == []


def test_diff_reports_gives_values_and_ratios_and_no_intervals() -> None:
    train, prune, _ = outcomes()
    other = outcome("quantize", 97, 7_000, "prune", training=False)
    (stage,) = diff_reports(report(), report([train, prune, other]))["stages"]
    figures = {figure["name"]: figure for figure in stage["figures"]}
    assert stage["name"] == "quantize"
    assert figures["tflite_bytes"]["value"] == -7_000
    assert figures["tflite_bytes"]["ratio"] == 0.5
    assert figures["accuracy"]["value"] == 0.01
    assert "macs" not in figures


def test_diff_reports_has_null_changes_when_a_side_is_null() -> None:
    train, *rest = outcomes()
    blind = with_result(train, memory={**train.result.memory, "arena_bytes": None})
    (stage,) = diff_reports(report(), report([blind, *rest]))["stages"]
    assert stage["figures"] == [
        {"name": "arena_bytes", "a": 24_000, "b": None, "value": None, "ratio": None}
    ]


def test_diff_reports_lists_stages_of_one_run_only() -> None:
    train, prune, quantize = outcomes()
    a, b = report([train, prune], finals=("prune",)), report([train, replace(quantize)])
    diff = diff_reports(a, b)
    assert (diff["only_a"], diff["only_b"]) == (["prune"], ["quantize"])


def test_diff_reports_takes_cached_and_done_for_the_same() -> None:
    cached = [replace(stage, status="cached") for stage in outcomes()]
    assert diff_reports(report(), report(cached))["stages"] == []


def test_diff_reports_shows_a_stage_that_fails_now() -> None:
    train, prune, quantize = outcomes()
    failed = replace(quantize, status="failed", result=StepResult())
    diff = diff_reports(report(), report([train, prune, failed]))
    assert diff["stages"][0]["status"] == {"a": "done", "b": "failed"}
    assert diff["passed"] == {"a": True, "b": False}


def test_diff_reports_lists_gates_that_changed() -> None:
    a = report(gates={"tflite_bytes": 20_000, "loss": 1, "accuracy": 0.5})
    b = report(gates={"tflite_bytes": 10_000, "loss": 1, "p50_ms": 1})
    gates = {g["name"]: (g["a"], g["b"]) for g in diff_reports(a, b)["gates"]}
    assert set(gates) == {"tflite_bytes", "accuracy", "p50_ms"}
    assert gates["accuracy"][1] is None
    assert gates["p50_ms"][0] is None


def test_diff_reports_lists_a_gate_that_both_runs_miss() -> None:
    missed = {"tflite_bytes": 1_000, "loss": 1}
    diff = diff_reports(report(gates=missed), report(gates=missed))
    assert [gate["name"] for gate in diff["gates"]] == ["tflite_bytes"]
    lines = render_diff_markdown(diff).splitlines()
    assert "**both runs fail**" in lines
    assert len([line for line in lines if "missed (" in line]) == 1


def test_render_diff_says_of_a_gate_that_was_not_checked_that_it_was_not() -> None:
    a, b = report(gates={"tflite_bytes": 20_000}), report(gates={"tflite_bytes": 20_000})
    b["gates"][0] |= {"value": None, "passed": False, "judged": False, "reason": "not reached"}
    lines = render_diff_markdown(diff_reports(a, b)).splitlines()
    (told,) = [line for line in lines if "passed" in line and "in A" in line]
    assert "not checked (" in told
    assert "missed" not in told


@pytest.mark.parametrize("width", [60, 80, 200])
def test_render_diff_terminal_fits_the_width(width: int) -> None:
    train, prune, _ = outcomes()
    other = outcome("quantize", 97, 7_000, "prune", training=True)
    diff = diff_reports(report(gates={"loss": 1}), report([train, prune, other]))
    stream = io.StringIO()
    render_diff_terminal(diff, Console(file=stream, width=width))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "tflite_bytes" in text
    assert "gzip_bytes" not in text
    assert " more figures changed: --markdown lists them" in text
    assert "loss (quantize): passed (0.1 <= 1) in A, no gate in B" in " ".join(text.split())


def test_render_diff_markdown_shows_what_reviewers_ask_for_and_folds_the_rest() -> None:
    train, prune, _ = outcomes()
    other = outcome("quantize", 97, 70_000, "prune")
    gates = {"tflite_bytes": 60_000}
    text = render_diff_markdown(
        diff_reports(report(gates=gates), report([train, prune, other], gates=gates))
    )
    shown, _, folded = text.partition("<details>")
    assert shown.index("## gates") < shown.index("| quantize | tflite")
    assert "| quantize | accuracy |" in shown
    assert "gzip" not in shown
    assert "| quantize | gzip" in folded
    assert folded.rstrip().endswith("</details>")


def test_render_diff_shows_the_main_metric_and_figures_with_gates() -> None:
    train, *_ = outcomes()
    before = with_result(train, metrics={"loss": 0.1}, size={"gzip_bytes": 900, "file_bytes": 900})
    after = with_result(train, metrics={"loss": 0.3}, size={"gzip_bytes": 950, "file_bytes": 950})
    a, b = (report([one], gates={"gzip_bytes": 1000}, finals=("train",)) for one in (before, after))
    diff = diff_reports(a, b)
    stream = io.StringIO()
    render_diff_terminal(diff, Console(file=stream, width=80))
    shown, _, folded = render_diff_markdown(diff).partition("<details>")
    for name in ("loss", "gzip_bytes"):
        assert f"train  {name}" in stream.getvalue()
        assert f"| train | {name.replace('_', chr(92) + '_')} |" in shown
    assert "file" in folded
    assert "1 more figure changed: --markdown lists them" in stream.getvalue()


def test_render_diff_says_more_only_of_a_table_that_shows_some() -> None:
    train, *rest = outcomes()
    changed = with_result(train, size={**train.result.size, "gzip_bytes": 1})
    stream = io.StringIO()
    diff = diff_reports(report(), report([changed, *rest]))
    render_diff_terminal(diff, Console(file=stream, width=80))
    assert stream.getvalue().split("\n", 1)[0].strip() == "1 figure changed: --markdown lists them"


def test_render_diff_markdown_escapes_names() -> None:
    train, *_ = outcomes()
    hostile = replace(train, name="a|@octocat")
    diff = diff_reports(report([train]), report([hostile]))
    text = render_diff_markdown(diff)
    assert "- train: only in A" in text
    assert "a\\|@\u200boctocat: only in B" in text


def test_diff_reports_compares_the_only_results_whatever_their_names() -> None:
    train, prune, _ = outcomes()
    other = outcome("float16", 97, 28_000, "prune")
    diff = diff_reports(report(), report([train, prune, other], finals=("float16",)))
    assert diff["stages"][0]["name"] == "quantize / float16"
    rows = [line for line in render_diff_markdown(diff).splitlines() if line.startswith("|")]
    assert rows[2] == "| quantize / float16 | accuracy | 96.00 % | 97.00 % | +1.00 | \\- |"
    assert "| quantize / float16 | tflite\\_bytes | 14.0 KB | 28.0 KB | +14.0 KB | 2.00x |" in rows


def test_diff_reports_shows_all_results_where_there_are_several() -> None:
    train, *_ = outcomes()
    ends = [outcome(f"s{n}", 90 + n, 1000 * n, "train") for n in (5, 7)]
    diff = diff_reports(report(), report([train, *ends], finals=("s5", "s7")))
    lines = render_diff_markdown(diff).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| run | outcome | accuracy"))
    assert [line.split(" | ")[:3] for line in lines[start + 2 : start + 5]] == [
        ["| A", "FINISHED", "96.00 %"],
        ["| B / s5", "FINISHED", "95.00 %"],
        ["| B / s7", "FINISHED", "97.00 %"],
    ]


def test_diff_prints_no_difference_as_nothing() -> None:
    before, after = (
        [with_result(one, latency={"p50_ms": value}) for one in outcomes()]
        for value in (0.0201, 0.0200)
    )
    text = render_diff_markdown(diff_reports(report(before), report(after)))
    assert "20.1 µs | 20.0 µs | -0.10 µs" in text
    assert "-0.00" not in text


def test_diff_names_other_test_examples() -> None:
    known = {"fingerprint": "f", "test_examples": "one"}
    for data, expected in (
        (known, None),
        ({**known, "test_examples": "two"}, "other test examples"),
        ({**known, "fingerprint": "g"}, None),  # the same ones in another file
        ({"fingerprint": "g", "test_examples": "two"}, "other data"),
        ({"fingerprint": "g"}, "other data"),
        ({}, None),  # nothing is known
    ):
        diff = diff_reports({**report(), "data": known}, {**report(), "data": data})
        assert diff.get("examples") == expected
        reported = f"B was measured on {expected} than A: metrics and slices do not compare"
        assert (reported in render_diff_markdown(diff)) == (expected is not None)
