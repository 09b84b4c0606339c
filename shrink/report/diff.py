"""What changed between two runs: a comparison of two, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shrink.base.figures import (
    COSTS,
    FIGURES,
    LOSS,
    figure_of,
    format_change,
    format_ratio,
)
from shrink.contract.codec import left_out
from shrink.contract.comparison import Comparison
from shrink.contract.examples import other_examples
from shrink.contract.record import record
from shrink.contract.report import GateResult, RecipeName, Report, Stage, Status
from shrink.report import page
from shrink.report.comparison import comparison_table
from shrink.report.comparison_rows import RunToCompare, compare_runs
from shrink.report.deltas import figure_delta
from shrink.report.gate_lines import gate_line
from shrink.report.page import NULL, Block, Fold, Lines, Medium, Page, Table, sections_of
from shrink.report.slices import compared_slices_table

if TYPE_CHECKING:
    from rich.console import Console

_OUTCOMES = {"PASS": "passed", "FAIL": "missed", "WARN": "missed", "SKIP": "not checked"}
_MOST_SLICES = 10
_HEADS = ("stage", "figure", "A", "B", "change", "ratio")


@record
class FigureChange:
    """A figure in both runs; two runs share no scores, so there is never an interval."""

    name: str
    a: float | None
    b: float | None
    value: float | None
    ratio: float | None


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
class Changes:
    """What changed from a report `a` to a report `b`.

    Attributes:
        recipes, passed: of `a` and of `b`.
        results: the comparison of their results; the runs are `A` and `B`.
        recipe_changes: what `shrink.recipe.recipe_diff` finds.
        stages: those in both that changed; the only results of both runs are one stage, whatever
            their names.
        only_a, only_b: names of stages in one run only.
        gates: those that changed or that `b` misses.
        gated: the figures that have a gate in either run.
        examples: how the test examples differ, "other data" or "other test examples".
    """

    recipes: Mapping[str, RecipeName]
    results: Comparison
    recipe_changes: tuple[RecipeChange, ...]
    passed: Mapping[str, bool]
    stages: tuple[StageChange, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    gates: tuple[GateChange, ...]
    gated: tuple[str, ...]
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
    pairs = [(n, stage, stages_b[n]) for n, stage in stages_a.items() if n in stages_b]
    if len(a.ends) == len(b.ends) == 1 and a.ends[0].name != b.ends[0].name:
        pairs.insert(0, (f"{a.ends[0].name} / {b.ends[0].name}", a.ends[0], b.ends[0]))
    changed = [_stage_diff(*pair) for pair in pairs]
    runs = [RunToCompare(name, name, Path(name), one, {}) for name, one in (("A", a), ("B", b))]
    return Changes(
        recipes={"a": a.recipe, "b": b.recipe},
        results=compare_runs(runs, Comparison(rows=(), title="results")),
        recipe_changes=tuple(recipe_changes),
        passed={"a": a.passed, "b": b.passed},
        stages=tuple(stage for stage in changed if stage.figures or stage.ended_otherwise),
        only_a=tuple(name for name in stages_a if name not in stages_b),
        only_b=tuple(name for name in stages_b if name not in stages_a),
        gates=tuple(_gate_diffs(a, b)),
        gated=tuple(dict.fromkeys(gate.name for gate in (*a.gates, *b.gates))),
        examples=other_examples(b.data, a.data),
    )


def change_lines(changes: Sequence[RecipeChange]) -> list[str]:
    """Return the changes for people: a line each, and one for all that only one recipe has."""
    lines: dict[str, list[str]] = {}
    for one in changes:
        section, _, name = one.key.rpartition(".")
        if section and NULL in (one.a, one.b):
            where, value = ("B", one.b) if one.a == NULL else ("A", one.a)
            lines.setdefault(f"{section}, only in {where}: ", []).append(f"{name} {value}")
        else:
            lines[f"{one.key}: {one.a} in A, {one.b} in B"] = []
    return [f"{start}{', '.join(items)}" for start, items in lines.items()]


def render_diff_terminal(diff: Changes, console: Console) -> None:
    """Print a difference on a rich console."""
    page.print_page(_page(diff, "terminal"), console)


def render_diff_markdown(diff: Changes) -> str:
    """Return a difference as GitHub flavoured Markdown, for a comment on a pull request."""
    return page.to_markdown(_page(diff, "markdown"))


def _page(diff: Changes, medium: Medium) -> Page:
    sections = sections_of(_blocks(diff, medium))
    return Page("shrink diff", "", _conclusion(diff), "neutral", sections)


def _blocks(diff: Changes, medium: Medium) -> Iterator[tuple[str, Iterable[Block]]]:
    lines = [
        f"{gate.name} ({gate.stage or 'all stages'}): "
        f"{_gate_text(gate.a)} in A, {_gate_text(gate.b)} in B"
        for gate in diff.gates
    ]
    gates = ("gates", [_list(lines)])
    if medium == "markdown":
        yield gates
    ends = {run: [r.stage for r in diff.results.rows if r.run == run] for run in ("A", "B")}
    if ends["A"] != ends["B"] and max(map(len, ends.values())) > 1:
        yield "", [comparison_table(diff.results)]
    results = {
        *ends["A"],
        *ends["B"],
        " / ".join(map(str, (*ends["A"], *ends["B"]))),
    }
    stages = sorted(diff.stages, key=lambda one: one.name not in results)
    rows = [(stage, change) for stage in stages for change in stage.figures]
    main = {*COSTS[:4], diff.results.metric, *diff.gated}
    first = [
        (stage, change)
        for stage, change in rows
        if stage.name in results and (change.name in main or _is_metric(change.name))
    ]
    rest = [row for row in rows if row not in first]
    more = "more " if first else ""
    others = f"{len(rest)} {more}figure{'s' * (len(rest) > 1)} changed"
    if medium == "terminal":
        listed = [f"{others}: --markdown lists them"] if rest else []
        yield "", [_figure_table(first), *listed]
    else:
        yield "", [_figure_table(first), Fold(others, (_figure_table(rest),))]
    yield "recipe", [_list(change_lines(diff.recipe_changes))]
    yield "stages", [_list(_stage_lines(diff))]
    if (slices := compared_slices_table(diff.results, _MOST_SLICES, changed=True)) is not None:
        yield "slices", [slices]
    if medium == "terminal":
        yield gates


def _list(lines: Sequence[str]) -> Lines:
    return Lines(tuple(("", line) for line in lines))


def _is_metric(name: str) -> bool:
    return figure_of(name).group == "metrics" and name != LOSS


def _figure_table(rows: Sequence[tuple[StageChange, FigureChange]]) -> Table:
    has_metrics = any(figure_of(change.name).group == "metrics" for _, change in rows)
    caption = "Metrics have no intervals here: reports store no scores." if has_metrics else ""
    cells = tuple(_figure_row(stage.name, change) for stage, change in rows)
    return Table(_HEADS, cells, caption=caption, left=2)


def _stage_diff(name: str, a: Stage, b: Stage) -> StageChange:
    metrics = dict.fromkeys((*(a.metrics or {}), *(b.metrics or {})))
    figures = []
    for figure in (*metrics, *FIGURES):
        before, after = a.figure(figure), b.figure(figure)
        if before != after:
            delta = figure_delta(after, before)
            value, ratio = (delta.value, delta.ratio) if delta else (None, None)
            figures.append(FigureChange(name=figure, a=before, b=after, value=value, ratio=ratio))
    return StageChange(name=name, status={"a": a.status, "b": b.status}, figures=tuple(figures))


def _gate_diffs(a: Report, b: Report) -> list[GateChange]:
    gates_a = {(gate.name, gate.stage): gate for gate in a.gates}
    gates_b = {(gate.name, gate.stage): gate for gate in b.gates}
    changed = []
    for key in dict.fromkeys((*gates_a, *gates_b)):
        before, after = gates_a.get(key), gates_b.get(key)
        missed = after is not None and after.judged and not after.passed
        if missed or _gate_outcome(before) != _gate_outcome(after):
            changed.append(GateChange(name=key[0], stage=key[1], a=before, b=after))
    return changed


def _gate_outcome(gate: GateResult | None) -> tuple[object, ...] | None:
    """Return the fields by which a gate's change is shown; its value is shown as a figure."""
    if gate is None:
        return None
    return (gate.passed, gate.limit, gate.level, gate.confidence)


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
    return ends
