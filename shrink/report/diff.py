"""What changed between two runs: figures, stages and gates, matched by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shrink.base.figures import (
    COSTS,
    FIGURES,
    LOSS,
    figure_of,
    format_change,
    format_ratio,
    metric_figure,
)
from shrink.contract.codec import left_out
from shrink.contract.record import record
from shrink.contract.report import GateResult, RecipeName, Report, Stage, Status
from shrink.contract.slices import slice_text
from shrink.contract.tested import other_examples
from shrink.report.content import NULL, stage_figures
from shrink.report.deltas import exact_difference, figure_delta
from shrink.report.gate_lines import gate_line
from shrink.report.text import escape, table

if TYPE_CHECKING:
    from rich.console import Console

_NO_METRICS = (LOSS, "duration_s")
_OUTCOMES = {"PASS": "passed", "FAIL": "missed", "WARN": "missed", "SKIP": "not checked"}
_MISSING = "-"
_HEADS = ("stage", "figure", "A", "B", "change", "ratio")


@record
class FigureChange:
    """A figure in both runs; two runs share no scores, so there is never an interval."""

    name: str
    a: float | None
    b: float | None
    value: float | None
    ratio: float | None
    low: float | None = None
    high: float | None = None


@record
class StageChange:
    """A stage of both runs: how it ended in `a` and in `b`, and the figures that changed."""

    name: str
    status: Mapping[str, Status]
    figures: tuple[FigureChange, ...]

    @property
    def ended_otherwise(self) -> bool:
        """Whether it ended differently; cached and done are the same end."""
        ends = {"done" if status == "cached" else status for status in self.status.values()}
        return len(ends) > 1


@record
class Result:
    """The figures of a final stage."""

    stage: str
    figures: Mapping[str, float]


@record
class GateChange:
    """A gate's result in both runs, None where it is not there."""

    name: str
    stage: str | None
    a: GateResult | None
    b: GateResult | None


@record
class RecipeChange:
    """A key of the resolved recipes, and what stands there as text; `-` where nothing does."""

    key: str
    a: str
    b: str


@record
class SliceChange:
    """A slice whose metric changed, in a stage of both runs."""

    stage: str
    by: str
    name: str
    metric: str
    a: float
    b: float
    value: float


@record
class Changes:
    """What changed from a report `a` to a report `b`.

    Attributes:
        recipes, results, passed: of `a` and of `b`; results are their final stages.
        result: the difference of the only results, where these have different names.
        recipe_changes: what `shrink.recipe.recipe_diff` finds.
        stages: those in both that changed.
        only_a, only_b: names of stages in one run only.
        gates: those that changed.
        slices: those that changed of stages in both, the one that lost most first.
        examples: how the test examples differ, "other data" or "other test examples".
    """

    recipes: Mapping[str, RecipeName]
    results: Mapping[str, tuple[Result, ...]]
    result: StageChange | None
    recipe_changes: tuple[RecipeChange, ...]
    passed: Mapping[str, bool]
    stages: tuple[StageChange, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    gates: tuple[GateChange, ...]
    slices: tuple[SliceChange, ...] = left_out(())
    examples: str | None = left_out(None)


def diff_reports(a: Report, b: Report, recipe_changes: Sequence[RecipeChange] = ()) -> Changes:
    """Return what changed from report `a` to report `b`.

    A figure that is null in one run has a null `value` and `ratio`.

    Args:
        a: the report compared with.
        b: the other one.
        recipe_changes: what `shrink.recipe.recipe_diff` finds between their recipes.
    """
    stages_a = {stage.name: stage for stage in a.stages}
    stages_b = {stage.name: stage for stage in b.stages}
    changed = [_stage_diff(stages_a[n], stages_b[n]) for n in stages_a if n in stages_b]
    return Changes(
        recipes={"a": a.recipe, "b": b.recipe},
        results={"a": _results(a), "b": _results(b)},
        result=_only_result(a, b),
        recipe_changes=tuple(recipe_changes),
        passed={"a": a.passed, "b": b.passed},
        stages=tuple(stage for stage in changed if stage.figures or stage.ended_otherwise),
        only_a=tuple(name for name in stages_a if name not in stages_b),
        only_b=tuple(name for name in stages_b if name not in stages_a),
        gates=tuple(_gate_diffs(a, b)),
        slices=tuple(_slice_diffs(stages_a, stages_b)),
        examples=other_examples(b.data, a.data),
    )


def change_lines(changes: Sequence[RecipeChange]) -> list[str]:
    """Return the changes for people: a line each, and one for all that only one recipe has."""
    lines: dict[str, list[str]] = {}
    for one in changes:
        section, _, name = one.key.rpartition(".")
        if section and _MISSING in (one.a, one.b):
            where, value = ("B", one.b) if one.a == _MISSING else ("A", one.a)
            lines.setdefault(f"{section}, only in {where}: ", []).append(f"{name} {value}")
        else:
            lines[f"{one.key}: {one.a} in A, {one.b} in B"] = []
    return [f"{start}{', '.join(items)}" for start, items in lines.items()]


def render_diff_terminal(diff: Changes, console: Console) -> None:
    """Print a difference on a rich console."""
    from shrink.report.text import Printer

    printer = Printer(console)
    for heads, rows in _tables(diff):
        printer.table([list(column) for column in zip(heads, *rows, strict=True)], left=2)
        printer.line("")
    printer.section("recipe", change_lines(diff.recipe_changes))
    printer.section("stages", _stage_lines(diff))
    printer.section("slices", _slice_lines(diff))
    printer.section("gates", _gate_lines(diff))
    printer.wrapped(_conclusion(diff), "")


def render_diff_markdown(diff: Changes) -> str:
    """Return a difference as GitHub flavoured Markdown, for a comment on a pull request."""
    parts = [f"**{escape(_conclusion(diff))}**", *_section("Gates", _gate_lines(diff))]
    heads, results = _result_table(diff)
    rows = _figure_rows(diff)
    finals = {one.stage for ends in diff.results.values() for one in ends}
    finals |= {diff.result.name} if diff.result else set()
    shown = [row for row in rows if row[0] in finals and _is_reviewed(row[1])]
    parts += [table(*one) for one in ((heads, results), (_HEADS, shown)) if one[1]]
    if rest := [row for row in rows if row not in shown]:
        folded = f"<details><summary>{len(rest)} more figures changed</summary>"
        parts += [folded, table(_HEADS, rest), "</details>"]
    for title, lines in (
        ("Recipe", change_lines(diff.recipe_changes)),
        ("Stages", _stage_lines(diff)),
        ("Slices", _slice_lines(diff)),
    ):
        parts += _section(title, lines)
    return "\n\n".join(parts) + "\n"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"### {title}", "\n".join(f"- {escape(line)}" for line in lines)] if lines else []


def _is_reviewed(name: str) -> bool:
    """Whether a figure of a result is shown, not folded: metrics and the four main costs."""
    return name in COSTS[:4] or (figure_of(name).group == "metrics" and name not in _NO_METRICS)


def _stage_diff(a: Stage, b: Stage) -> StageChange:
    metrics = dict.fromkeys((*(a.metrics or {}), *(b.metrics or {})))
    figures = (
        _figure_diff(name, a.figure(name), b.figure(name))
        for name in (*metrics, *FIGURES)
        if a.figure(name) != b.figure(name)
    )
    status = {"a": a.status, "b": b.status}
    return StageChange(name=a.name, status=status, figures=tuple(figures))


def _figure_diff(name: str, a: float | None, b: float | None) -> FigureChange:
    delta = figure_delta(b, a)
    value, ratio = (delta.value, delta.ratio) if delta else (None, None)
    return FigureChange(name=name, a=a, b=b, value=value, ratio=ratio)


def _gate_diffs(a: Report, b: Report) -> list[GateChange]:
    gates_a = {(gate.name, gate.stage): gate for gate in a.gates}
    gates_b = {(gate.name, gate.stage): gate for gate in b.gates}
    changed = []
    for key in dict.fromkeys((*gates_a, *gates_b)):
        before, after = gates_a.get(key), gates_b.get(key)
        if _gate_outcome(before) != _gate_outcome(after):
            changed.append(GateChange(name=key[0], stage=key[1], a=before, b=after))
    return changed


def _slice_diffs(a: Mapping[str, Stage], b: Mapping[str, Stage]) -> list[SliceChange]:
    changed = []
    for name, before in a.items():
        there = {(one.by, one.metric): one for one in (b[name].slices if name in b else ())}
        for slicing in before.slices:
            other = there.get((slicing.by, slicing.metric))
            for row in slicing.slices:
                after = other.slice(row.name) if other else None
                then = row.metrics.get(slicing.metric)
                now = after.metrics.get(slicing.metric) if after else None
                if then is not None and now is not None and then != now:
                    changed.append(
                        SliceChange(
                            stage=name,
                            by=slicing.by,
                            name=row.name,
                            metric=slicing.metric,
                            a=then,
                            b=now,
                            value=exact_difference(now, then),
                        )
                    )
    return sorted(changed, key=_worsening, reverse=True)


def _worsening(one: SliceChange) -> float:
    return -one.value if metric_figure(one.metric).larger_is_better else one.value


def _gate_outcome(gate: GateResult | None) -> tuple[object, ...] | None:
    """Return the fields by which a gate's change is shown; its value is shown as a figure."""
    if gate is None:
        return None
    return (gate.passed, gate.limit, gate.level, gate.confidence)


def _results(report: Report) -> tuple[Result, ...]:
    return tuple(Result(stage=one.name, figures=stage_figures(one)) for one in report.ends)


def _only_result(a: Report, b: Report) -> StageChange | None:
    """Return the difference of two runs' only results, which have different names."""
    if len(a.ends) != 1 or len(b.ends) != 1:
        return None
    (before,), (after,) = a.ends, b.ends
    if before.name == after.name:
        return None
    return replace(_stage_diff(before, after), name=f"{before.name} / {after.name}")


def _tables(diff: Changes) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Return heads and rows of every table, what the runs came to first."""
    tables = [(heads, rows) for heads, rows in (_result_table(diff),) if rows]
    rows = _figure_rows(diff)
    return [*tables, (_HEADS, rows)] if rows else tables


def _result_table(diff: Changes) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return every result of both runs, where they are not the same stages; else no rows."""
    results = [(run, one) for run, ends in diff.results.items() for one in ends]
    names = [{one.stage for one in ends} for ends in diff.results.values()]
    if names[0] == names[1] or diff.result is not None:
        return (), []
    every = dict.fromkeys(name for _, one in results for name in one.figures)
    metrics = [n for n in every if figure_of(n).group == "metrics" and n not in _NO_METRICS]
    shown = [*metrics[:1], *(name for name in COSTS if name in every)]
    rows = [
        (
            one.stage,
            run.upper(),
            *(figure_of(name).text(one.figures.get(name)) for name in shown),
        )
        for run, one in results
    ]
    return ("result", "run", *shown), rows


def _figure_rows(diff: Changes) -> list[tuple[str, ...]]:
    """Return a row per figure that changed, those of the results first."""
    only = [diff.result] if diff.result is not None else []
    finals = {one.stage for ends in diff.results.values() for one in ends}
    stages = sorted(diff.stages, key=lambda stage: stage.name not in finals)
    return [_figure_row(s.name, change) for s in [*only, *stages] for change in s.figures]


def _figure_row(stage: str, change: FigureChange) -> tuple[str, ...]:
    figure = figure_of(change.name)
    return (
        stage,
        figure.name,
        figure.text(change.a),
        figure.text(change.b),
        NULL if change.value is None else format_change(change.value, figure.unit),
        format_ratio(change.ratio) if figure.group != "metrics" else NULL,
    )


def _stage_lines(diff: Changes) -> list[str]:
    lines = [
        f"{stage.name}: {stage.status['a']} in A, {stage.status['b']} in B"
        for stage in diff.stages
        if stage.ended_otherwise
    ]
    lines += [f"{name}: only in A" for name in diff.only_a]
    return lines + [f"{name}: only in B" for name in diff.only_b]


def _slice_lines(diff: Changes) -> list[str]:
    """Return of each stage the slice that lost most, and how many changed."""
    lines, seen = [], set[str]()
    for one in diff.slices:
        if one.stage in seen or _worsening(one) <= 0:
            continue
        seen.add(one.stage)
        figure = metric_figure(one.metric)
        count = sum(other.stage == one.stage for other in diff.slices)
        lines.append(
            f"{one.stage}: {slice_text(one.by, one.name)} lost most: {one.metric} "
            f"{figure.text(one.a)} in A, {figure.text(one.b)} in B "
            f"({format_change(one.value, figure.unit)}); {count} slices changed"
        )
    return lines


def _gate_lines(diff: Changes) -> list[str]:
    return [
        f"{gate.name} ({gate.stage or 'all stages'}): "
        f"{_gate_text(gate.a)} in A, {_gate_text(gate.b)} in B"
        for gate in diff.gates
    ]


def _gate_text(gate: GateResult | None) -> str:
    if gate is None:
        return "no gate"
    line = gate_line(gate)
    return f"{_OUTCOMES[line.mark]} ({line.comparison})"


def _conclusion(diff: Changes) -> str:
    words = {True: "passes", False: "fails"}
    a, b = diff.passed["a"], diff.passed["b"]
    ends = f"both runs {'pass' if a else 'fail'}" if a == b else f"A {words[a]}, B {words[b]}"
    if diff.examples is not None:
        return (
            f"{ends}; B was measured on {diff.examples} than A: metrics and slices do not compare"
        )
    if not (diff.stages or diff.only_a or diff.only_b or diff.gates):
        return f"no figure, stage or gate changed; {ends}"
    compared = [*diff.stages, *([diff.result] if diff.result is not None else [])]
    groups = {figure_of(change.name).group for stage in compared for change in stage.figures}
    if "metrics" not in groups:
        return ends
    return f"{ends}; metric changes have no intervals, because the runs share no scores by example"
