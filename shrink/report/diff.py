"""What changed between two runs: figures, stages and gates, matched by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shrink.base.figures import FIGURES, LOSS, figure_of, format_change, format_ratio
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.report import GateResult, Report, Stage
from shrink.report.content import NULL, stage_figures
from shrink.report.deltas import figure_delta
from shrink.report.gate_lines import gate_line
from shrink.report.markdown import escape, table

if TYPE_CHECKING:
    from rich.console import Console

_RESULT_FIGURES = ("tflite_bytes", "parameters", "macs", "arena_bytes", "p50_ms")
_NO_METRICS = (LOSS, "duration_s")
_OUTCOMES = {"PASS": "passed", "FAIL": "missed", "WARN": "missed", "SKIP": "not checked"}
_MISSING = "-"
_HEADS = ("stage", "figure", "A", "B", "change", "ratio")


def diff_reports(
    a: Report, b: Report, recipe_changes: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """Return what changed from report `a` to report `b`.

    Two runs share no per-example scores, so no difference of metrics has an interval: `low` and
    `high` are always null. A figure that is null in one run has a null `value` and `ratio`.

    Args:
        a: the report compared with.
        b: the other one.
        recipe_changes: what `shrink.recipe.recipe_diff` finds between their recipes.

    Returns:
        `recipes` and `passed` of both; `results`, stage and figures of every final stage of both;
        `result`, the difference of the only ones, where these have different names, else None;
        `recipe_changes` as given; `stages` in both that
        changed, each with `figures` of name, a, b, value, ratio, low and high; `only_a` and
        `only_b`, the names of stages in one run only; `gates` that changed, each with the results
        a and b (null: not there).
    """
    stages_a = {stage.name: stage for stage in a.stages}
    stages_b = {stage.name: stage for stage in b.stages}
    changed = [_stage_diff(stages_a[n], stages_b[n]) for n in stages_a if n in stages_b]
    results = {"a": _results(a), "b": _results(b)}
    return {
        "recipes": {"a": to_plain(a.recipe), "b": to_plain(b.recipe)},
        "results": results,
        "result": _only_result(a, b),
        "recipe_changes": list(recipe_changes),
        "passed": {"a": a.passed, "b": b.passed},
        "stages": [stage for stage in changed if stage["figures"] or _status_changed(stage)],
        "only_a": [name for name in stages_a if name not in stages_b],
        "only_b": [name for name in stages_b if name not in stages_a],
        "gates": _gate_diffs(a, b),
    }


def change_lines(changes: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the changes for people: a line each, and one for all that only one recipe has."""
    lines: dict[str, list[str]] = {}
    for one in changes:
        section, _, name = one["key"].rpartition(".")
        if section and (one["a"] == _MISSING or one["b"] == _MISSING):
            where, value = ("B", one["b"]) if one["a"] == _MISSING else ("A", one["a"])
            lines.setdefault(f"{section}, only in {where}: ", []).append(f"{name} {value}")
        else:
            lines[f"{one['key']}: {one['a']} in A, {one['b']} in B"] = []
    return [f"{start}{', '.join(items)}" for start, items in lines.items()]


def render_diff_terminal(diff: Mapping[str, Any], console: Console) -> None:
    """Print a difference on a rich console."""
    from shrink.report.terminal import Printer

    printer = Printer(console)
    for heads, rows in _tables(diff):
        printer.table([list(column) for column in zip(heads, *rows, strict=True)], left=2)
        printer.line("")
    printer.section("recipe", change_lines(diff["recipe_changes"]))
    printer.section("stages", _stage_lines(diff))
    printer.section("gates", _gate_lines(diff))
    printer.wrapped(_conclusion(diff), "")


def render_diff_markdown(diff: Mapping[str, Any]) -> str:
    """Return a difference as GitHub flavoured Markdown, for a comment on a pull request."""
    parts = [f"**{escape(_conclusion(diff))}**"]
    parts += [table(heads, rows) for heads, rows in _tables(diff)]
    for title, lines in (
        ("Recipe", change_lines(diff["recipe_changes"])),
        ("Stages", _stage_lines(diff)),
        ("Gates", _gate_lines(diff)),
    ):
        if lines:
            parts += [f"### {title}", "\n".join(f"- {escape(line)}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def _stage_diff(a: Stage, b: Stage) -> dict[str, Any]:
    metrics = dict.fromkeys((*(a.metrics or {}), *(b.metrics or {})))
    figures = [
        _figure_diff(name, a.figure(name), b.figure(name))
        for name in (*metrics, *FIGURES)
        if a.figure(name) != b.figure(name)
    ]
    return {"name": a.name, "status": {"a": a.status, "b": b.status}, "figures": figures}


def _figure_diff(name: str, a: float | None, b: float | None) -> dict[str, Any]:
    delta = figure_delta(b, a)
    value, ratio = (delta.value, delta.ratio) if delta else (None, None)
    known = {"name": name, "a": a, "b": b, "value": value, "ratio": ratio}
    return {**known, "low": None, "high": None}


def _status_changed(stage: Mapping[str, Any]) -> bool:
    """Whether a stage ended differently; cached and done are the same end."""
    ends = {"cached": "done"}
    a, b = stage["status"]["a"], stage["status"]["b"]
    return ends.get(a, a) != ends.get(b, b)


def _gate_diffs(a: Report, b: Report) -> list[dict[str, Any]]:
    gates_a = {(gate.name, gate.stage): gate for gate in a.gates}
    gates_b = {(gate.name, gate.stage): gate for gate in b.gates}
    changed = []
    for key in dict.fromkeys((*gates_a, *gates_b)):
        before, after = gates_a.get(key), gates_b.get(key)
        if _gate_outcome(before) != _gate_outcome(after):
            pair = {"a": to_plain(before), "b": to_plain(after)}
            changed.append({"name": key[0], "stage": key[1], **pair})
    return changed


def _gate_outcome(gate: GateResult | None) -> tuple[object, ...] | None:
    """Return what makes a gate a different one; its value alone is a figure's change."""
    if gate is None:
        return None
    return (gate.passed, gate.limit, gate.level, gate.confidence)


def _results(report: Report) -> list[dict[str, Any]]:
    return [{"stage": s.name, "figures": stage_figures(s)} for s in report.ends]


def _only_result(a: Report, b: Report) -> dict[str, Any] | None:
    """Return the difference of two runs' only results, which have different names."""
    if len(a.ends) != 1 or len(b.ends) != 1:
        return None
    (before,), (after,) = a.ends, b.ends
    names = before.name, after.name
    if names[0] == names[1]:
        return None
    return {**_stage_diff(before, after), "name": " / ".join(names)}


def _tables(diff: Mapping[str, Any]) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Return heads and rows of every table, what the runs came to first."""
    tables = [(heads, rows) for heads, rows in (_result_table(diff),) if rows]
    rows = _figure_rows(diff)
    return [*tables, (_HEADS, rows)] if rows else tables


def _result_table(diff: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return every result of both runs, where they are not the same stages; else no rows."""
    results = [(run, one) for run in ("a", "b") for one in diff["results"][run]]
    names = [{one["stage"] for one in diff["results"][run]} for run in ("a", "b")]
    if names[0] == names[1] or diff["result"] is not None:
        return (), []
    every = dict.fromkeys(name for _, one in results for name in one["figures"])
    metrics = [n for n in every if figure_of(n).group == "metrics" and n not in _NO_METRICS]
    shown = [*metrics[:1], *(name for name in _RESULT_FIGURES if name in every)]
    rows = [
        (
            one["stage"],
            run.upper(),
            *(figure_of(name).text(one["figures"].get(name)) for name in shown),
        )
        for run, one in results
    ]
    return ("result", "run", *shown), rows


def _figure_rows(diff: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row per figure that changed, those of the results first."""
    only = [diff["result"]] if diff["result"] is not None else []
    finals = {one["stage"] for run in ("a", "b") for one in diff["results"][run]}
    stages = sorted(diff["stages"], key=lambda stage: stage["name"] not in finals)
    return [_figure_row(s["name"], change) for s in [*only, *stages] for change in s["figures"]]


def _figure_row(stage: str, change: Mapping[str, Any]) -> tuple[str, ...]:
    figure, value = figure_of(change["name"]), change["value"]
    return (
        stage,
        figure.name,
        figure.text(change["a"]),
        figure.text(change["b"]),
        NULL if value is None else format_change(value, figure.unit),
        format_ratio(change["ratio"]) if figure.group != "metrics" else NULL,
    )


def _stage_lines(diff: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{stage['name']}: {stage['status']['a']} in A, {stage['status']['b']} in B"
        for stage in diff["stages"]
        if _status_changed(stage)
    ]
    lines += [f"{name}: only in A" for name in diff["only_a"]]
    return lines + [f"{name}: only in B" for name in diff["only_b"]]


def _gate_lines(diff: Mapping[str, Any]) -> list[str]:
    return [
        f"{gate['name']} ({gate['stage'] or 'all stages'}): "
        f"{_gate_text(gate['a'])} in A, {_gate_text(gate['b'])} in B"
        for gate in diff["gates"]
    ]


def _gate_text(gate: Mapping[str, Any] | None) -> str:
    if gate is None:
        return "no gate"
    line = gate_line(from_plain(GateResult, gate, unknown="drop"))
    return f"{_OUTCOMES[line.mark]} ({line.comparison})"


def _conclusion(diff: Mapping[str, Any]) -> str:
    words = {True: "passes", False: "fails"}
    a, b = diff["passed"]["a"], diff["passed"]["b"]
    ends = f"both runs {'pass' if a else 'fail'}" if a == b else f"A {words[a]}, B {words[b]}"
    if not (diff["stages"] or diff["only_a"] or diff["only_b"] or diff["gates"]):
        return f"no figure, stage or gate changed; {ends}"
    compared = [*diff["stages"], *([diff["result"]] if diff["result"] is not None else [])]
    groups = {figure_of(f["name"]).group for stage in compared for f in stage["figures"]}
    if "metrics" not in groups:
        return ends
    return f"{ends}; changes of metrics come without intervals, as two runs share no scores"
