"""Gates: checks figures against limits, or against a saved report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shrink.base.errors import InternalError
from shrink.base.figures import LOSS, Figure, Target, metric_figure, target_of
from shrink.base.measurement import Note
from shrink.contract.examples import other_examples
from shrink.contract.report import DataSet, GateResult, Report, Stage
from shrink.contract.result import Scores
from shrink.contract.slices import FEWEST_EXAMPLES, Slice, Slicing, slice_evidence, slice_text
from shrink.report.config import Gate
from shrink.report.deltas import exact_difference, score_interval
from shrink.report.slices import same_slice, worsening


@dataclass(frozen=True)
class _Value:
    """A figure, and the stage it is of, or why there is none.

    Attributes:
        stage: None for the whole run.
        judged: false where there is nothing to decide on: the stage never ended, or was left out.
        left_out: whether the recipe has this stage, and the run was to stop before it.
        growing: whether it is of a run that did not finish, so that it may become larger.
    """

    value: float | None
    stage: str | None
    reason: str | None = None
    judged: bool = True
    left_out: bool = False
    growing: bool = False


@dataclass(frozen=True)
class _Run:
    """The stages of a run, and what intervals are computed from, by stage, then by metric."""

    stages: Mapping[str, Stage]
    baseline: str
    finals: Sequence[str]
    scores: Mapping[str, Scores]

    def values(self, target: Target, gate: Gate) -> list[_Value]:
        """Return the figure of each stage that a gate is about; of a drop, the metric itself."""
        figure = target.figure.name
        if gate.stage is None and target.kind == "duration":
            durations = [s.duration_s for s in self.stages.values() if s.duration_s is not None]
            if not durations:
                return [_Value(None, None, "no stage has a duration")]
            return [_Value(round(sum(durations), 6), None, growing=self._is_unfinished())]
        if gate.stage is None and target.figure.largest:
            # A share of the baseline's own figure is 1, whatever the others take.
            skip = self.baseline if gate.ratio is not None and gate.against is None else None
            return [self._largest(figure, skip)]
        names = self.finals if gate.stage is None else (gate.stage,)
        if not names:
            return [_Value(None, None, "no stage is complete")]
        return [self.at(name, target) for name in names]

    def at(self, name: str, target: Target) -> _Value:
        """Return the figure of one stage."""
        stage, figure = self.stages.get(name), target.figure.name
        if stage is None:
            why = f"stage {name} is not part of the run"
            return _Value(None, name, why, judged=False, left_out=True)
        if stage.status in ("failed", "skipped"):
            ending = "failed" if stage.status == "failed" else "was skipped"
            return _Value(None, name, f"stage {name} {ending}", judged=False)
        if target.kind == "slice":
            return _Value(None, name)
        value = stage.duration_s if target.kind == "duration" else stage.figure(figure)
        return _Value(value, name, None if value is not None else _why_null(stage, figure))

    def _largest(self, figure: str, skip: str | None) -> _Value:
        best = _Value(None, None, f"no stage has {figure}")
        for name, stage in self.stages.items():
            if name == skip:
                continue
            value = stage.figure(figure)
            if value is None and stage.training is not None:
                # It trained, so there is a peak that nobody knows; the others prove nothing.
                return _Value(None, name, _why_null(stage, figure))
            if value is not None and (best.value is None or value > best.value):
                best = _Value(value, name)
        return replace(best, growing=self._is_unfinished())

    def _is_unfinished(self) -> bool:
        return any(stage.status in ("failed", "skipped") for stage in self.stages.values())


def gate_results(
    stages: Sequence[Stage],
    gates: Mapping[str, Gate],
    *,
    baseline: str,
    finals: Sequence[str],
    scores: Mapping[str, Scores],
    saved: Mapping[str, Report] | None = None,
    planned_finals: Sequence[str] | None = None,
    data: DataSet | None = None,
) -> list[GateResult]:
    """Return one result per gate and stage that it is about.

    Figures and metrics are those of each final stage, training peaks the largest of all stages,
    `duration_s` the sum; a gate's own `stage` comes before all that. A figure that is null misses
    its gate. The value that decides is the point value; with a confidence, a drop or rise misses
    only if its whole interval lies beyond the limit.

    The value of a gate with a `ratio` is the figure's share of the baseline's own. With `against`
    it is how much worse the figure is than in the saved report, and its limit the most that it
    may be.

    Nothing is decided where a stage did not end, where `--until` left it out, or where there is
    nothing saved yet and the gate says that this passes. A gate on a metric is missed where the
    saved report is of other data or other test examples.

    Args:
        stages: the report's stages.
        gates: by name.
        baseline: name of the stage that drops and rises start from.
        finals: names of the last stage of each branch.
        scores: what intervals are computed from, by stage, then by metric.
        saved: the reports that gates with `against` compare with, by the gate's name; one that is
            not there yet is left out.
        planned_finals: the same as `finals` of the whole recipe, where the run was to stop before
            its end.
        data: of the run.
    """
    ends = finals if planned_finals is None else planned_finals
    run = _Run({stage.name: stage for stage in stages}, baseline, ends, scores)
    results: list[GateResult] = []
    for name, gate in gates.items():
        target = target_of(name)
        if target is None:
            raise InternalError(f"no gate is called {name}")
        values = run.values(target, gate)
        saved_values: list[_Value | None] = [None] * len(values)
        if gate.against is not None:
            saved_values = [*_saved_values(gate, target, values, (saved or {}).get(name), data)]
        for now, then in zip(values, saved_values, strict=True):
            result = _result(name, gate, now)
            is_over = now.value is not None and gate.ratio is None and now.value > gate.limit
            if now.growing and (gate.against is not None or not is_over):
                why = "the run did not finish, so there may be more to come"
                if gate.ratio is not None and gate.against is None:
                    result = _share(result, target, run)
                result = _because(result, why, judged=False)
            elif then is not None:
                result = _worse_than_saved(result, gate, target, now, then)
            elif gate.ratio is not None:
                result = _share(result, target, run)
            elif target.kind == "slice":
                result = _worst_slice(result, gate, run)
            elif target.kind in ("drop", "rise"):
                result = _change(result, gate, target.figure, run)
            else:
                result = replace(result, passed=_keeps(result, target))
            results.append(result)
    return results


def all_passed(stages: Sequence[Stage], gates: Sequence[GateResult]) -> bool:
    """Whether no stage failed and every gate that may fail the run passed."""
    missed = any(not gate.passed and gate.level == "fail" for gate in gates)
    return not missed and not any(stage.status == "failed" for stage in stages)


def _result(name: str, gate: Gate, now: _Value) -> GateResult:
    """Return a result that is not decided yet."""
    against = None if gate.against is None else Path(gate.against).name
    return GateResult(
        name=name,
        limit=gate.limit if gate.ratio is None or against else gate.ratio,
        value=None if against else now.value,
        passed=False,
        stage=now.stage,
        level="warn" if now.left_out else gate.level,
        reason=None if now.reason is None else Note.read(now.reason),
        judged=now.judged,
        against=against,
    )


def _because(result: GateResult, why: str, **changes: Any) -> GateResult:
    return replace(result, reason=Note.read(why), **changes)


def _keeps(result: GateResult, target: Target) -> bool:
    if result.value is None or not result.judged:
        return False
    return result.value >= result.limit if target.is_minimum else result.value <= result.limit


def _share(result: GateResult, target: Target, run: _Run) -> GateResult:
    """Return the figure's share of the baseline's own."""
    base, value = run.stages.get(run.baseline), result.value
    shared = replace(result, value=None, relative_to=run.baseline)
    if base is None or base.status in ("failed", "skipped"):
        return replace(shared, judged=False)
    if value is None or not result.judged:
        return shared
    reference = run.at(run.baseline, target)
    if reference.value is None:
        why = f"the baseline {run.baseline} has none to compare with: {reference.reason}"
        return _because(shared, why)
    if reference.value == 0:
        why = f"the baseline {run.baseline} has 0, so a ratio to it is undefined"
        return _because(shared, why)
    shared = replace(shared, current=value, reference=reference.value)
    shared = replace(shared, value=value / reference.value)
    return replace(shared, passed=_keeps(shared, target))


def _change(result: GateResult, gate: Gate, metric: Figure, run: _Run) -> GateResult:
    """Return how much worse a metric is than the baseline's."""
    base, stage = run.stages.get(run.baseline), str(result.stage)
    before = base.figure(metric.name) if base else None
    if result.value is None:
        return result
    if before is None:
        why = f"the baseline {run.baseline} has no {metric.name}"
        return _because(result, why, value=None)
    changed = replace(result, value=_worse_by(metric, result.value, before))
    confidence = None if stage == run.baseline else gate.confidence
    return _with_interval(changed, gate, metric, run, metric.name, confidence)


def _worse_by(figure: Figure, now: float, then: float) -> float:
    rise = exact_difference(now, then)
    return (-rise if figure.larger_is_better else rise) + 0


def _with_interval(
    result: GateResult,
    gate: Gate,
    metric: Figure,
    run: _Run,
    evidence: str,
    confidence: float | None,
) -> GateResult:
    """Decide on how much worse a metric is: by its value, or with a confidence by its interval.

    Args:
        result: with the value.
        gate: of the result.
        metric: that got worse.
        run: with the scores behind intervals.
        evidence: their name.
        confidence: of this interval; None without one.
    """
    worse = result.value or 0.0
    decided = replace(result, passed=worse <= gate.limit)
    if confidence is None:
        return decided
    before, after = (run.scores.get(s, {}).get(evidence) for s in (run.baseline, str(result.stage)))
    interval = score_interval(before, after, confidence, metric.bounds)
    if interval is None or interval.low is None or interval.high is None:
        note = interval.note if interval else None
        why = (
            f"{note or 'no interval without scores of the same examples'}; the point value decides"
        )
        return _because(decided, why)
    sign = -1 if metric.larger_is_better else 1
    low, high = sorted((sign * interval.low, sign * interval.high))
    excused = low <= gate.limit < worse and interval.note is not None
    return replace(
        decided,
        passed=low <= gate.limit,
        reason=Note.read(f"the interval is {interval.note}") if excused else None,
        confidence=gate.confidence,
        low=low,
        high=high,
    )


def _worst_slice(result: GateResult, gate: Gate, run: _Run) -> GateResult:
    """Return how much worse the slice that lost most is than the same slice of the baseline.

    With a confidence, the intervals of the m slices are those at 1 - (1 - confidence) / m. The
    slice whose interval lies farthest decides; one without an interval counts by its point value.
    """
    if not result.judged:
        return result
    stage, base = run.stages[str(result.stage)], run.stages.get(run.baseline)
    if base is None or not base.slices:
        why = f"the baseline {run.baseline} has no slices"
        return _because(result, why)
    rows = list(_gated_slices(stage, gate))
    for slicing, row in rows:
        then, metric = same_slice(base, slicing, row.name), slicing.metric
        if then is None or then.examples < FEWEST_EXAMPLES:
            continue
        if row.metrics.get(metric) is None and then.metrics.get(metric) is not None:
            where, why = slice_text(slicing.by, row.name), f": {row.reason}" if row.reason else ""
            note = f"{where} had a value in {base.name}, and has none{why}"
            return _because(result, note)
    unlike = [
        f"{one.by} is not checked, as {one.metric} has another unit or direction than the main "
        f"metric: `by: {one.by}` checks it"
        for one in stage.slices
        if gate.by is None and one.by not in {slicing.by for slicing, _ in rows}
        if any(row.examples >= FEWEST_EXAMPLES for row in one.slices)
    ]
    compared = [(slicing, row, row.delta) for slicing, row in rows if row.delta is not None]
    if not compared:
        return _because(result, "; ".join(unlike) or _why_none(stage, gate))
    count, found = len(compared), []
    level = None if gate.confidence is None else 1 - (1 - gate.confidence) / count
    for slicing, row, delta in compared:
        metric = slicing.metric
        one = replace(result, by=slicing.by, slice=row.name, metric=metric)
        one = replace(one, value=worsening(metric, delta))
        evidence = slice_evidence(slicing.by, row.name)
        found.append(_with_interval(one, gate, metric_figure(metric), run, evidence, level))
    farthest = max(found, key=lambda one: (one.value if one.low is None else one.low) or 0.0)
    worst = max(found, key=lambda one: one.value or 0.0) if farthest.passed else farthest
    corrected = f"the interval is corrected for {count} slices" if count > 1 else ""
    unlisted = sum({slicing.by: slicing.unlisted for slicing, _ in rows}.values())
    hidden = f"{unlisted:,} smaller slices are not measured" if unlisted else ""
    notes = filter(None, (worst.reason if worst.low is None else corrected, hidden, *unlike))
    return replace(worst, reason=Note.read(text) if (text := "; ".join(notes)) else None)


def _gated_slices(stage: Stage, gate: Gate) -> Iterator[tuple[Slicing, Slice]]:
    """Yield the slices with enough examples, of the slicings that a gate is about."""
    names = list(stage.metrics or ())
    main = metric_figure(next((name for name in names if name != LOSS), LOSS))
    for slicing in stage.slices:
        figure = metric_figure(slicing.metric)
        alike = (figure.unit, figure.larger_is_better) == (main.unit, main.larger_is_better)
        if slicing.by == gate.by if gate.by is not None else alike:
            yield from ((slicing, r) for r in slicing.slices if r.examples >= FEWEST_EXAMPLES)


def _why_none(stage: Stage, gate: Gate) -> str:
    known = [one.by for one in stage.slices]
    if not known:
        return f"{stage.name} has no slices"
    if gate.by is not None and gate.by not in known:
        return f"there is no slicing {gate.by}; there is {', '.join(known)}"
    return f"no slice has {FEWEST_EXAMPLES} examples and a difference to the baseline"


def _saved_values(
    gate: Gate,
    target: Target,
    values: Sequence[_Value],
    report: Report | None,
    data: DataSet | None,
) -> Iterator[_Value]:
    """Yield what each value is compared with; without a value the reason why there is none.

    Stages are matched by name. Where either run has one value only, as for a training peak, which
    is the largest of all stages, or for a recipe without branches, names do not matter. Such a
    reason is `judged` where no gate may pass in spite of it.
    """
    file, is_metric = Path(str(gate.against)).name, target.figure.group == "metrics"
    other = other_examples(data, report.data) if report and is_metric else None
    saved: list[_Value] = []
    if report is not None:
        stages = {stage.name: stage for stage in report.stages}
        finals = report.finals or list(stages)[-1:]
        saved = _Run(stages, report.baseline, finals, {}).values(target, gate)
    single = saved[0] if len(values) == len(saved) == 1 else None
    by_stage = {one.stage: one for one in saved}
    for now in values:
        then, why = single or by_stage.get(now.stage), ""
        if report is None:
            why = f": {file} is not there yet"
        elif then is None:
            why = f" in the saved report: it has no stage {now.stage} at an end"
        elif then.growing:
            why = " in the saved report: its run did not finish"
        elif then.value is None:
            why = f" in the saved report: {then.reason}"
        if other is not None:
            note = f"{file} was measured on {other}: make it again on this data, then compare with "
            yield _Value(None, None, f"{note}that")
        elif why or then is None:
            yield _Value(None, None, f"nothing to compare with{why}", judged=False)
        else:
            yield then


def _worse_than_saved(
    result: GateResult, gate: Gate, target: Target, now: _Value, then: _Value
) -> GateResult:
    if now.value is None or not now.judged:
        return result
    if then.value is None:
        excused = gate.missing == "pass" and not then.judged
        why = str(then.reason)
        return _because(result, why, current=now.value, passed=excused, judged=not excused)
    worse = _worse_by(target.figure, now.value, then.value)
    allowed = gate.limit if gate.ratio is None else gate.ratio * abs(then.value)
    return replace(
        result,
        limit=allowed,
        value=worse,
        passed=worse <= allowed,
        current=now.value,
        saved=then.value,
    )


def _why_null(stage: Stage, figure: str) -> str:
    """Return the stage's own note about a figure, or that there is none."""
    return stage.reason(figure) or f"the stage has no {figure}"
