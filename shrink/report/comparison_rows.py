"""Several runs side by side: a row for each branch, what differs, and what cannot be compared."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from shrink.base.errors import listed
from shrink.base.figures import COSTS, DURATION, FIGURES, LOSS, figure_of
from shrink.base.intervals import Bounds, student_quantile
from shrink.base.settings import SEED
from shrink.contract.comparison import (
    ComparedRow,
    Comparison,
    Front,
    RepeatedRow,
    RowStatus,
    Spread,
)
from shrink.contract.details import Limits
from shrink.contract.examples import tested_on
from shrink.contract.report import Failure, Report, Stage
from shrink.report.content import stage_figures, was_stopped
from shrink.report.slices import compared_slices

_CONFIDENCE = 0.95
_TRIAL = re.compile(r"(\d+): ")
"""What the rows of a search begin with: the number of the trial."""
_MOST_NAMED = 6


@dataclass(frozen=True)
class RunToCompare:
    """A run that is compared.

    Attributes:
        name: what it is called on the page.
        place: the run folder as compare.json names it.
        folder: where it is.
        report: None where there is none.
        settings: what was set of it, or what differs.
        combination: what it is a repeat of.
        error: why there is no report; None with it: the run has not begun.
        broken: limits of a search that it breaks; its rows are on no front.
    """

    name: str
    place: str
    folder: Path
    report: Report | None
    settings: Mapping[str, str]
    combination: str | None = None
    error: Failure | None = None
    broken: tuple[str, ...] = ()


def compare_runs(runs: Sequence[RunToCompare], titled: Comparison) -> Comparison:
    """Return the runs side by side, with fronts and warnings.

    Args:
        runs: in the order of the rows; at least one.
        titled: what they are, without rows.
    """
    rows = tuple(row for run in runs for row in _rows(run))
    repeats = tuple(_repeated(rows)) if titled.repeat else ()
    metric = _main_metric(rows)
    broken = {run.place for run in runs if run.broken}
    kept = {row.name for row in rows if row.run not in broken} | {one.name for one in repeats}
    return replace(
        titled,
        metric=metric,
        rows=rows,
        repeats=repeats,
        fronts=tuple(_fronts(shown_rows(rows, repeats), metric, kept))
        if len(_by_examples(rows)) < 2
        else (),
        warnings=(*titled.warnings, *_warnings(runs, rows, titled)),
    )


def _rows(run: RunToCompare) -> Iterator[ComparedRow]:
    row = ComparedRow(
        name=run.name,
        run=run.place,
        settings=run.settings,
        combination=run.combination,
        status=_status_without_report(run.error),
        error=run.error,
        figures={},
        intervals={},
        delta={},
    )
    if run.report is None:
        yield row
        return
    ends = run.report.ends
    for stage in ends:
        name = f"{run.name} / {stage.name}" if len(ends) > 1 else run.name
        yield _ended(replace(row, name=name), run.report, stage, run.broken)


def _ended(row: ComparedRow, report: Report, stage: Stage, broken: Sequence[str]) -> ComparedRow:
    """Return a row with what became of the last stage of a branch."""
    missed = [g for g in report.gates if not g.passed and g.judged and g.level == "fail"]
    gates = (gate.name for gate in missed if gate.stage in (None, stage.name))
    own = tuple(dict.fromkeys((*gates, *broken)))
    failed = next((one for one in report.stages if one.status == "failed"), None)
    ended = stage.status in ("done", "cached")
    return replace(
        row,
        stage=stage.name,
        recipe=report.recipe.name,
        status=_status(report, failed, ended, own),
        gates_missed=own,
        error=None if ended or failed is None else failed.error or Failure(),
        baseline=report.baseline,
        tested_on=tested_on(report, stage),
        examples=stage.examples,
        figures=_figures(stage),
        intervals=stage.intervals,
        delta={name: delta for name, delta in stage.delta.items() if delta is not None},
        artifact=stage.artifact,
        slices=tuple(compared_slices(stage)),
    )


def _status(report: Report, failed: Stage | None, ended: bool, missed: Sequence[str]) -> RowStatus:
    if not ended:
        return "stopped" if failed is not None and was_stopped(failed) else "failed"
    if missed:
        return "missed"
    return "passed" if report.gates else "finished"


def _status_without_report(error: Failure | None) -> RowStatus:
    if error is None:
        return "not run"
    return "stopped" if error.type in ("Interrupted", "Terminated") else "failed"


def _figures(stage: Stage) -> dict[str, float]:
    known = {*FIGURES, *(stage.metrics or {}), DURATION}
    return {name: value for name, value in stage_figures(stage).items() if name in known}


def _main_metric(rows: Sequence[ComparedRow]) -> str | None:
    """Return the metric that most rows have, the first of those that is not the loss."""
    counts: dict[str, int] = {}
    for row in rows:
        for name in row.figures:
            if figure_of(name).group == "metrics" and name != DURATION:
                counts[name] = counts.get(name, 0) + 1
    return max(counts, key=lambda name: (counts[name], name != LOSS), default=None)


AnyRow = ComparedRow | RepeatedRow


@dataclass(frozen=True)
class FrontPoint:
    """A row, or a combination of several seeds, in the plane of two figures.

    Attributes:
        low, high: the 95 % interval of `y`; `y` itself where there is none.
        number: of a trial of a search.
    """

    name: str
    label: str
    x: float
    y: float
    low: float
    high: float
    number: str = ""


def shown_rows(rows: Sequence[ComparedRow], repeats: Sequence[RepeatedRow]) -> list[AnyRow]:
    """Return the combinations of several seeds, and the runs that are none of their seeds."""
    return [*repeats, *(row for row in rows if not repeats or row.combination is None)]


def points_of(rows: Sequence[AnyRow], x: str, y: str) -> list[FrontPoint]:
    """Return where the rows that have both figures are; combinations at their means."""
    points = []
    for row in rows:
        across, up = row.figures.get(x), row.figures.get(y)
        if across is None or up is None:
            continue
        limits = up if isinstance(up, Spread) else cast("ComparedRow", row).intervals.get(y)
        settings, _, branch = row.name.partition(" / ")
        short = ", ".join(row.settings.values()) + (f" / {branch}" if branch else "")
        label = short if " = " in settings and row.settings else row.name
        if (trial := _TRIAL.match(row.name)) is not None:
            label = row.name[trial.end() :]
        point = point_at(row.name, label, _value(across), _value(up), limits)
        points.append(replace(point, number=trial[1]) if trial else point)
    return points


def point_at(
    name: str, label: str, x: float, y: float, limits: Limits | Spread | None
) -> FrontPoint:
    """Return a point; limits that are not known are the value itself."""
    low = y if limits is None or limits.low is None else min(limits.low, y)
    high = y if limits is None or limits.high is None else max(limits.high, y)
    return FrontPoint(name, label, x, y, low, high)


def _value(figure: float | Spread) -> float:
    return figure.mean if isinstance(figure, Spread) else figure


def front_points(points: Sequence[FrontPoint], x: str, y: str) -> list[FrontPoint]:
    """Return the points that no other beats in one figure without losing in the other.

    Points that are equal in both all stay. A worse `y` is kept only for an `x` that is better by
    more than its noise. They begin with the best `x`.
    """
    sign_x, sign_y = (1 if figure_of(name).larger_is_better else -1 for name in (x, y))
    front: list[FrontPoint] = []
    for point in sorted(points, key=lambda p: (sign_y * p.y, sign_x * p.x), reverse=True):
        last = front[-1] if front else None
        if (
            last is None
            or (point.x, point.y) == (last.x, last.y)
            or sign_x * (point.x - last.x) > _noise(x) * abs(last.x)
        ):
            front.append(point)
    return sorted(front, key=lambda p: -sign_x * p.x)


TIMING_NOISE = 0.1


def _noise(cost: str) -> float:
    """Return the relative difference up to which two values count as equal."""
    return TIMING_NOISE if figure_of(cost).group == "latency" else 0.0


def _fronts(rows: Sequence[AnyRow], metric: str | None, kept: Set[str]) -> Iterator[Front]:
    """Yield the front of the metric against each cost in which rows differ, of those to keep."""
    for cost in COSTS if metric is not None else ():
        points = points_of(rows, cost, str(metric))
        values = [point.x for point in points]
        able = [point for point in points if point.name in kept]
        same = max(_noise(cost), 1e-9)
        if able and len(points) > 1 and not math.isclose(min(values), max(values), rel_tol=same):
            on_front = front_points(able, cost, str(metric))
            yield Front(x=cost, y=str(metric), rows=tuple(point.name for point in on_front))


def spread_of(values: Sequence[float], bounds: Bounds | None = None) -> Spread:
    """Return mean, standard deviation of the sample, and the 95 % interval of the mean.

    Student's t (1908): mean ± t(n - 1) · deviation / √n, within the bounds of the figure. Equal
    values have no interval: it would have no width, as if the mean were exact.

    Args:
        values: one per run, at least one.
        bounds: the least and the largest value that the figure can have; None without bounds.
    """
    count, mean = len(values), statistics.fmean(values)
    if count < 2:
        return Spread(runs=count, mean=mean)
    deviation = statistics.stdev(values)
    if deviation == 0:
        return Spread(runs=count, mean=mean, deviation=0.0)
    half = student_quantile(count - 1, _CONFIDENCE) * deviation / math.sqrt(count)
    least, most = bounds or (-math.inf, math.inf)
    low, high = max(mean - half, least), min(mean + half, most)
    return Spread(runs=count, mean=mean, deviation=deviation, low=low, high=high)


def _repeated(rows: Sequence[ComparedRow]) -> Iterator[RepeatedRow]:
    """Yield a row for each combination and branch, in the order of their first runs."""
    combinations: dict[str, list[ComparedRow]] = {}
    for row in rows:
        if row.combination is not None:
            combinations.setdefault(row.combination, []).append(row)
    for name, repeats in combinations.items():
        stages = dict.fromkeys(row.stage for row in repeats if row.stage is not None)
        for stage in stages or (None,):
            # A run without a report is one of those that each of its branches should have.
            mine = [row for row in repeats if row.stage in (stage, None)]
            yield RepeatedRow(
                name=f"{name} / {stage}" if len(stages) > 1 else name,
                stage=stage,
                settings={k: v for k, v in mine[0].settings.items() if _is_shared(k, mine)},
                rows=tuple(row.name for row in mine),
                figures=_spreads(mine, lambda row: row.figures, lambda name: figure_of(name).range),
                delta=_spreads(mine, lambda row: {k: d.value for k, d in row.delta.items() if d}),
            )


def _is_shared(key: str, rows: Sequence[ComparedRow]) -> bool:
    return key != SEED and len({row.settings.get(key) for row in rows}) == 1


def _spreads(
    rows: Sequence[ComparedRow],
    of: Callable[[ComparedRow], Mapping[str, float]],
    bounds: Callable[[str], Bounds | None] = lambda _: None,
) -> dict[str, Spread]:
    names = dict.fromkeys(name for row in rows for name in of(row))
    return {
        name: spread_of([of(row)[name] for row in rows if name in of(row)], bounds(name))
        for name in names
    }


def _warnings(
    runs: Sequence[RunToCompare], rows: Sequence[ComparedRow], titled: Comparison
) -> Iterator[str]:
    yield from _other_examples(rows)
    reports = [(run.name, run.report) for run in runs if run.report is not None]
    machines = {
        stage.measured.machine for _, report in reports for stage in report.ends if stage.measured
    }
    if len(machines - {None}) > 1:
        yield "latency and memory of the host were measured on different machines: " + "; ".join(
            sorted(filter(None, machines))
        )
    if titled.jobs > 1:
        yield (
            f"{titled.jobs} runs ran in parallel, so their latencies were measured on a busy "
            "machine; `--jobs 1 --no-cache` measures them alone"
        )


def _other_examples(rows: Sequence[ComparedRow]) -> Iterator[str]:
    """Yield which runs or combinations were tested on other examples than the others."""
    tested = {(row.combination or row.name, row.tested_on) for row in rows if row.tested_on}
    if len(tested) > len({name for name, _ in tested}):
        yield (
            "each seed splits off other test examples, so the deviation over seeds includes that"
        )
    if len(groups := _by_examples(rows)) > 1:
        parts = " | ".join(listed(names, _MOST_NAMED) for names in groups)
        yield f"not tested on the same examples, so their metrics cannot be compared: {parts}"


def _by_examples(rows: Sequence[ComparedRow]) -> list[list[str]]:
    """Return the names of runs or combinations, grouped by the examples that they were tested on.

    A combination some of whose seeds are missing may have been tested on fewer than the others.
    """
    examples: dict[str, frozenset[str]] = {}
    for row in rows:
        if row.tested_on is not None:
            name = row.combination or row.name
            examples[name] = examples.get(name, frozenset()) | {row.tested_on}
    combinations = {row.combination for row in rows}
    largest = max(examples.values(), key=len, default=frozenset())
    groups: dict[frozenset[str], list[str]] = {}
    for name, own in examples.items():
        is_part = name in combinations and own < largest
        groups.setdefault(largest if is_part else own, []).append(name)
    return list(groups.values())
