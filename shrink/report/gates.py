"""Which limits a run keeps, and which it misses; of its own figures, or of a saved report's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base.errors import InternalError
from shrink.base.figures import Target, target_of
from shrink.base.measured import Note
from shrink.contract.report import DataSet, GateResult, Report, Stage
from shrink.contract.result import Scores
from shrink.contract.tested import other_examples
from shrink.report.config import Gate
from shrink.report.deltas import exact_difference, score_interval
from shrink.report.slices import worst_slice

_LARGEST_OF_ALL = (
    "training_peak_bytes",
    "training_peak_predicted_bytes",
    "training_peak_allocator_bytes",
    "training_peak_small_bytes",
    "training_host_peak_bytes",
    "stage_host_peak_bytes",
)


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
        if gate.stage is None and figure in _LARGEST_OF_ALL:
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


def check_gates(
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
        if gate.against is not None:
            results += _compared(name, gate, target, values, (saved or {}).get(name), data)
            continue
        for now in values:
            result = _result(name, gate, now)
            if gate.ratio is not None:
                shared = _share(result, target, run)
                results.append(_unfinished(shared) if now.growing else shared)
            elif now.growing and not (now.value is not None and now.value > gate.limit):
                results.append(_unfinished(result))
            elif target.kind == "slice":
                results.append(_worst_slice(result, gate, run))
            elif target.kind in ("drop", "rise"):
                results.append(_change(result, gate, target, run))
            else:
                results.append(replace(result, passed=_keeps(result, target)))
    return results


def all_passed(stages: Sequence[Stage], gates: Sequence[GateResult]) -> bool:
    """Whether no stage failed and every gate that may fail the run passed."""
    missed = any(not gate.passed and gate.level == "fail" for gate in gates)
    return not missed and not any(stage.status == "failed" for stage in stages)


def _result(name: str, gate: Gate, now: _Value) -> GateResult:
    """Return a result that is not decided yet."""
    return GateResult(
        name=name,
        limit=gate.limit if gate.ratio is None else gate.ratio,
        value=now.value,
        passed=False,
        stage=now.stage,
        level="warn" if now.left_out else gate.level,
        reason=None if now.reason is None else Note.read(now.reason),
        judged=now.judged,
    )


def _keeps(result: GateResult, target: Target) -> bool:
    if result.value is None or not result.judged:
        return False
    return result.value >= result.limit if target.is_minimum else result.value <= result.limit


def _unfinished(result: GateResult) -> GateResult:
    """Return a figure of the whole run that did not finish: only a miss would be certain."""
    why = "the run did not finish, so there may be more to come"
    return replace(result, passed=False, judged=False, reason=Note.read(why))


def _share(result: GateResult, target: Target, run: _Run) -> GateResult:
    """Return the figure's share of the baseline's own."""
    base, value, reason = run.stages.get(run.baseline), result.value, result.reason
    judged = result.judged and base is not None and base.status not in ("failed", "skipped")
    reference = None
    if judged and value is not None:
        found = run.at(run.baseline, target)
        reference = found.value or None
        if found.value is None:
            why = f"the baseline {run.baseline} has none to compare with: {found.reason}"
            reason = Note.read(why)
        elif found.value == 0:
            reason = Note.read(f"the baseline {run.baseline} has 0, so a ratio to it is undefined")
    shared = replace(
        result,
        value=value / reference if value is not None and reference is not None else None,
        judged=judged,
        reason=reason,
        relative_to=run.baseline,
        current=value if reference is not None else None,
        reference=reference,
    )
    return replace(shared, passed=_keeps(shared, target))


def _change(result: GateResult, gate: Gate, target: Target, run: _Run) -> GateResult:
    """Return how much worse a metric is than the baseline's."""
    metric, stage = target.figure, str(result.stage)
    if result.value is None:
        return result
    base = run.stages.get(run.baseline)
    before = base.figure(metric.name) if base else None
    if before is None:
        why = f"the baseline {run.baseline} has no {metric.name}"
        return replace(result, value=None, reason=Note.read(why))
    sign = -1 if metric.larger_is_better else 1
    worse = sign * exact_difference(result.value, before) + 0.0
    changed = replace(result, value=worse, passed=worse <= gate.limit)
    if gate.confidence is None or stage == run.baseline:
        return changed
    evidence = run.scores.get(run.baseline, {}).get(metric.name)
    now = run.scores.get(stage, {}).get(metric.name)
    interval = score_interval(evidence, now, gate.confidence, metric.bounds)
    if interval is None or interval.low is None or interval.high is None:
        why = "no interval without scores of the same examples; the point value decides"
        return replace(changed, reason=Note.read(why))
    low, high = sorted((sign * interval.low, sign * interval.high))
    excused = low <= gate.limit < worse and interval.note is not None
    return replace(
        changed,
        passed=low <= gate.limit,
        reason=Note.read(f"the interval is {interval.note}") if excused else None,
        confidence=gate.confidence,
        low=low,
        high=high,
    )


def _worst_slice(result: GateResult, gate: Gate, run: _Run) -> GateResult:
    """Return how much worse the slice that lost most is than the same slice of the baseline."""
    if not result.judged:
        return result
    stage, base = run.stages[str(result.stage)], run.stages.get(run.baseline)
    if base is None or not base.slices:
        why = f"the baseline {run.baseline} has no slices"
        return replace(result, reason=Note.read(why))
    before, after = run.scores.get(run.baseline, {}), run.scores.get(stage.name, {})
    worst = worst_slice(stage, base, gate, before, after)
    if isinstance(worst, str):
        return replace(result, reason=Note.read(worst))
    beyond = worst.value > gate.limit if worst.beyond is None else worst.beyond
    low, high = worst.limits or (None, None)
    return replace(
        result,
        value=worst.value,
        passed=not beyond,
        reason=None if worst.note is None else Note.read(worst.note),
        confidence=None if low is None else gate.confidence,
        low=low,
        high=high,
        by=worst.by,
        slice=worst.name,
        metric=worst.metric,
    )


def _compared(
    name: str,
    gate: Gate,
    target: Target,
    values: Sequence[_Value],
    report: Report | None,
    data: DataSet | None,
) -> list[GateResult]:
    """Return how much worse figures are than those of a saved report.

    Stages are matched by name. Where either run has one value only, as for a training peak, which
    is the largest of all stages, or for a recipe without branches, names do not matter. A figure
    without a saved one is a miss, unless the gate says that a first run passes.
    """
    file, saved, why, excused = Path(str(gate.against)).name, list[_Value](), "", False
    other = other_examples(data, report.data) if report and _is_metric(target) else None
    if report is None:
        why, excused = f"nothing to compare with: {file} is not there yet", gate.missing == "pass"
    elif other is not None:
        why = f"{file} was measured on {other}: make it again on this data, then compare with that"
    else:
        stages = {stage.name: stage for stage in report.stages}
        finals = report.finals or list(stages)[-1:]
        saved = _Run(stages, report.baseline, finals, {}).values(target, gate)
    single = saved[0] if len(values) == len(saved) == 1 else None
    by_stage = {one.stage: one for one in saved}
    return [
        _worse_than_saved(_result(name, gate, now), gate, target, now, then, why, excused)
        for now in values
        for then in [single or by_stage.get(now.stage)]
    ]


def _is_metric(target: Target) -> bool:
    return target.figure.group == "metrics"


def _worse_than_saved(
    result: GateResult,
    gate: Gate,
    target: Target,
    now: _Value,
    then: _Value | None,
    why: str,
    excused: bool,
) -> GateResult:
    result = replace(result, value=None, limit=gate.limit, against=Path(str(gate.against)).name)
    if now.growing:
        return _unfinished(result)
    if now.value is None or not now.judged:
        return result
    if then is None or then.value is None or then.growing:
        if not why:
            found = f"it has no stage {now.stage} at an end"
            if then is not None and then.growing:
                found = "its run did not finish"
            elif then is not None and then.reason:
                found = then.reason
            why = f"nothing to compare with in the saved report: {found}"
            excused = gate.missing == "pass"
        reason = Note.read(why)
        return replace(result, current=now.value, passed=excused, judged=not excused, reason=reason)
    rise = exact_difference(now.value, then.value)
    worse_by = -rise + 0 if target.figure.larger_is_better else rise
    allowed = gate.limit if gate.ratio is None else gate.ratio * abs(then.value)
    return replace(
        result,
        limit=allowed,
        value=worse_by,
        passed=worse_by <= allowed,
        current=now.value,
        saved=then.value,
    )


def _why_null(stage: Stage, figure: str) -> str:
    """Return the stage's own note about a figure, or that there is none."""
    return stage.reason(figure) or f"the stage has no {figure}"
