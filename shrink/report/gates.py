"""Which limits a run keeps, and which it misses; of its own figures, or of a saved report's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base.errors import InternalError
from shrink.base.figures import Kind, Target, target_of
from shrink.contract.codec import from_plain
from shrink.contract.report import DataSet, GateResult, Report, Stage
from shrink.contract.result import Scores
from shrink.contract.tested import other_examples
from shrink.report.config import Gate
from shrink.report.deltas import exact_difference, score_interval
from shrink.report.slices import WorstSlice, worst_slice

_LARGEST_OF_ALL = (
    "training_peak_bytes",
    "training_peak_predicted_bytes",
    "training_peak_allocator_bytes",
    "training_peak_small_bytes",
    "training_host_peak_bytes",
    "stage_host_peak_bytes",
)
_UNFINISHED = "the run did not finish, so there may be more to come"


@dataclass(frozen=True)
class _Finding:
    """What a gate sees: a value and the stage it is of, or why there is none.

    Attributes:
        value: the figure itself; None where `reason` says why.
        stage: None for the whole run.
        beyond: with a confidence, whether the whole interval lies beyond the limit.
        limits: with a confidence, the interval.
        reference: with a ratio, the baseline's own figure, which the value is a share of.
        judged: false where there is nothing to decide on: the stage never ended, or was left out.
        left_out: whether the recipe has this stage, and the run was to stop before it.
        comparable: false of a saved report on other examples.
        slice: the slice that decides, of a gate on slices.
    """

    value: float | None
    stage: str | None
    reason: str | None = None
    beyond: bool | None = None
    limits: tuple[float, float] | None = None
    reference: float | None = None
    judged: bool = True
    left_out: bool = False
    comparable: bool = True
    slice: WorstSlice | None = None


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
    """Return one result per gate and stage that it looks at.

    Figures and metrics are those of each final stage, training peaks the largest of all stages,
    `duration_s` the sum; a gate's own `stage` comes before all that. A figure that is null misses
    its gate. The value that decides is the point value; with a confidence, a drop or rise misses
    only if its whole interval lies beyond the limit.

    A gate with a `ratio` looks at the same places; its value is the figure's share of the
    baseline's own. One with `against` looks there too, here and in the saved report; its value is
    how much worse the figure is than there, and its limit the most that it may be.

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
    by_name = {stage.name: stage for stage in stages}
    looked_at = finals if planned_finals is None else planned_finals
    results: list[GateResult] = []
    for name, gate in gates.items():
        target = target_of(name)
        if target is None:
            raise InternalError(f"no gate is called {name}")
        checker = _Checker(by_name, baseline, looked_at, scores, target, gate)
        if gate.against is None:
            findings = checker.shares() if gate.ratio is not None else checker.findings()
            results.extend(_result(name, gate, checker, finding) for finding in findings)
        else:
            then = _saved_values(checker, (saved or {}).get(name), data)
            for now, before in _pairs(checker.values(), then):
                results.append(_compared_result(name, gate, target, now, before))
    return results


def _saved_values(
    checker: _Checker, report: Report | None, data: DataSet | None
) -> list[_Finding] | _Finding:
    """Return the same figures of the saved report, or one that says why none is compared with.

    There is no report yet only where the gate says `missing: pass`.
    """
    name, figure = Path(str(checker.gate.against)).name, checker.target.figure
    if report is None:
        return _Finding(None, None, f"nothing to compare with: {name} is not there yet")
    other = other_examples(data, report.data) if figure.group == "metrics" else None
    if other is not None:
        why = f"{name} was measured on {other}: make it again on this data, then compare with that"
        return _Finding(None, None, why, comparable=False)
    stages = {stage.name: stage for stage in report.stages}
    finals = report.finals or list(stages)[-1:]
    return replace(checker, stages=stages, baseline=report.baseline, finals=finals).values()


def all_passed(stages: Sequence[Stage], gates: Sequence[GateResult]) -> bool:
    """Whether no stage failed and every gate that may fail the run passed."""
    missed = any(not gate.passed and gate.level == "fail" for gate in gates)
    return not missed and not any(stage.status == "failed" for stage in stages)


@dataclass(frozen=True)
class _Checker:
    stages: Mapping[str, Stage]
    baseline: str
    finals: Sequence[str]
    scores: Mapping[str, Scores]
    target: Target
    gate: Gate

    def findings(self) -> list[_Finding]:
        """Return what the gate has to look at."""
        if self.gate.stage is None and self.target.kind == "duration":
            return [self._total_duration()]
        if self.gate.stage is None and self.target.figure.name in _LARGEST_OF_ALL:
            return [self._largest()]
        names = self.finals if self.gate.stage is None else (self.gate.stage,)
        if not names:
            return [_Finding(None, None, "no stage is complete")]
        return [self._at(name) for name in names]

    def values(self) -> list[_Finding]:
        """Return the plain figures behind it: of a drop or a rise, the metric itself."""
        kind: Kind = "duration" if self.target.kind == "duration" else "figure"
        return replace(self, target=Target(kind, self.target.figure)).findings()

    def shares(self) -> list[_Finding]:
        """Return what the gate has to look at, with the baseline's own figure."""
        base = self.stages.get(self.baseline)
        if base is None or base.status in ("failed", "skipped"):
            return [replace(finding, value=None, judged=False) for finding in self.findings()]
        reference = self._plain(self.baseline, base)
        return [_share(finding, reference) for finding in self.findings()]

    def _at(self, name: str) -> _Finding:
        stage = self.stages.get(name)
        if stage is None:
            why = f"stage {name} is not part of the run"
            return _Finding(None, name, why, judged=False, left_out=True)
        if stage.status in ("failed", "skipped"):
            return _Finding(None, name, f"stage {name} {_ending(stage)}", judged=False)
        if self.target.kind in ("drop", "rise"):
            return self._change(name, stage)
        if self.target.kind == "slice":
            return self._worst_slice(name, stage)
        return self._plain(name, stage)

    def _worst_slice(self, name: str, stage: Stage) -> _Finding:
        base = self.stages.get(self.baseline)
        if base is None or not base.slices:
            return _Finding(None, name, f"the baseline {self.baseline} has no slices")
        before, after = self.scores.get(self.baseline, {}), self.scores.get(name, {})
        worst = worst_slice(stage, base, self.gate, before, after)
        if isinstance(worst, str):
            return _Finding(None, name, worst)
        return _Finding(worst.value, name, worst.note, worst.beyond, worst.limits, slice=worst)

    def _plain(self, name: str, stage: Stage) -> _Finding:
        figure = self.target.figure.name
        value = stage.duration_s if self.target.kind == "duration" else stage.figure(figure)
        return _Finding(value, name, None if value is not None else _why_null(stage, figure))

    def _change(self, name: str, stage: Stage) -> _Finding:
        metric = self.target.figure.name
        value = stage.figure(metric)
        if value is None:
            return _Finding(None, name, _why_null(stage, metric))
        base = self.stages.get(self.baseline)
        base_value = base.figure(metric) if base else None
        if base_value is None:
            return _Finding(None, name, f"the baseline {self.baseline} has no {metric}")
        sign = -1 if self.target.figure.larger_is_better else 1
        change = exact_difference(value, base_value)
        return self._judged(_Finding(sign * change + 0.0, name), sign)

    def _judged(self, finding: _Finding, sign: int) -> _Finding:
        """Add the interval's verdict, where a confidence asks for one and scores allow it."""
        if self.gate.confidence is None or finding.stage == self.baseline:
            return finding
        metric = self.target.figure.name
        interval = score_interval(
            self.scores.get(self.baseline, {}).get(metric),
            self.scores.get(str(finding.stage), {}).get(metric),
            self.gate.confidence,
            self.target.figure.bounds,
        )
        if interval is None or interval.low is None or interval.high is None:
            reason = "no interval without scores of the same examples; the point value decides"
            return _Finding(finding.value, finding.stage, reason)
        low, high = sorted((sign * interval.low, sign * interval.high))
        beyond = low > self.gate.limit
        excused = finding.value is not None and low <= self.gate.limit < finding.value
        note = f"the interval is {interval.note}" if excused and interval.note else None
        return _Finding(finding.value, finding.stage, note, beyond, (low, high))

    def _largest(self) -> _Finding:
        figure = self.target.figure.name
        best = _Finding(None, None, f"no stage has {figure}")
        for name, stage in self.stages.items():
            if self.gate.ratio is not None and self.gate.against is None and name == self.baseline:
                continue  # a share of itself is 1, whatever the others take
            value = stage.figure(figure)
            if value is None and stage.training is not None:
                # It trained, so there is a peak that nobody knows; the others prove nothing.
                return _Finding(None, name, _why_null(stage, figure))
            if value is not None and (best.value is None or value > best.value):
                best = _Finding(value, name)
        return self._so_far(best)

    def _total_duration(self) -> _Finding:
        durations = [stage.duration_s for stage in self.stages.values()]
        known = [duration for duration in durations if duration is not None]
        if not known:
            return _Finding(None, None, "no stage has a duration")
        return self._so_far(_Finding(round(sum(known), 6), None))

    def _so_far(self, finding: _Finding) -> _Finding:
        """Return a figure of the whole run; of a run that did not end, only a miss is certain."""
        ended = all(stage.status not in ("failed", "skipped") for stage in self.stages.values())
        limited = self.gate.against is None and self.gate.ratio is None
        missed = limited and finding.value is not None and finding.value > self.gate.limit
        return finding if ended or missed else replace(finding, reason=_UNFINISHED, judged=False)


def _share(finding: _Finding, reference: _Finding) -> _Finding:
    """Return the figure with the one that it is a share of, or why there is no share."""
    if finding.value is None:
        return finding
    if reference.value is None:
        why = f"the baseline {reference.stage} has none to compare with: {reference.reason}"
        return replace(finding, value=None, reason=why)
    if reference.value == 0:
        why = f"the baseline {reference.stage} has 0, of which there is no share"
        return replace(finding, value=None, reason=why)
    return replace(finding, reference=reference.value)


def _result(name: str, gate: Gate, checker: _Checker, finding: _Finding) -> GateResult:
    limit = gate.limit if gate.ratio is None else gate.ratio
    value = finding.value
    if value is not None and finding.reference is not None:
        value = value / finding.reference
    result: dict[str, object] = {
        "name": name,
        "limit": limit,
        "value": value,
        "passed": finding.judged and _keeps(value, limit, finding.beyond, checker.target),
        "stage": finding.stage,
        "level": "warn" if finding.left_out else gate.level,
    }
    if finding.reason is not None:
        result["reason"] = finding.reason
    if finding.limits is not None:
        result |= {
            "confidence": gate.confidence,
            "low": finding.limits[0],
            "high": finding.limits[1],
        }
    if finding.slice is not None:
        result |= {
            "by": finding.slice.by,
            "slice": finding.slice.name,
            "metric": finding.slice.metric,
        }
    if gate.ratio is not None:
        result |= {"relative_to": checker.baseline, "current": finding.value}
        result["reference"] = finding.reference
    return from_plain(GateResult, result if finding.judged else result | {"judged": False})


def _keeps(value: float | None, limit: float, beyond: bool | None, target: Target) -> bool:
    if value is None:
        return False
    if beyond is not None:
        return not beyond
    return value >= limit if target.is_minimum else value <= limit


def _pairs(
    now: Sequence[_Finding], saved: Sequence[_Finding] | _Finding
) -> list[tuple[_Finding, _Finding]]:
    """Return each figure of this run with the saved one, or with why there is none.

    Stages are matched by name. Where either run has one value only, as for a training peak, which
    is the largest of all stages, or for a recipe without branches, names do not matter.
    """
    if isinstance(saved, _Finding):
        return [(finding, saved) for finding in now]
    by_stage = {finding.stage: finding for finding in saved}
    if len(now) == 1 and len(saved) == 1:
        by_stage = {now[0].stage: saved[0]}
    return [(finding, _known(by_stage.get(finding.stage), finding)) for finding in now]


def _known(saved: _Finding | None, now: _Finding) -> _Finding:
    if saved is not None and saved.value is not None:
        return saved
    why = saved.reason if saved and saved.reason else f"it has no stage {now.stage} at an end"
    return _Finding(None, now.stage, f"nothing to compare with in the saved report: {why}")


def _compared_result(
    name: str, gate: Gate, target: Target, now: _Finding, saved: _Finding
) -> GateResult:
    """Return how much worse a figure is than the saved one; without that it is a miss.

    But where the gate says that this passes, as on a first run, or where the saved one is another
    thing by its definition, nothing is decided.
    """
    worse_by, allowed, reason, judged, excused = None, gate.limit, None, now.judged, False
    if now.value is None or not now.judged:
        reason = now.reason
    elif saved.value is None:
        excused = saved.judged and saved.comparable and gate.missing == "pass"
        reason = saved.reason
        judged = saved.judged and not excused
    else:
        rise = exact_difference(now.value, saved.value)
        worse_by = -rise + 0 if target.figure.larger_is_better else rise
        allowed = gate.limit if gate.ratio is None else gate.ratio * abs(saved.value)
    has_figures = now.value is not None and now.judged
    result: dict[str, object] = {
        "name": name,
        "limit": allowed,
        "value": worse_by,
        "passed": excused or (worse_by is not None and worse_by <= allowed),
        "stage": now.stage,
        "level": "warn" if now.left_out or not saved.judged else gate.level,
        "against": Path(str(gate.against)).name,
        "current": now.value if has_figures else None,
        "saved": saved.value if has_figures else None,
    }
    if reason is not None:
        result["reason"] = reason
    return from_plain(GateResult, result if judged else result | {"judged": False})


def _ending(stage: Stage) -> str:
    return "failed" if stage.status == "failed" else "was skipped"


def _why_null(stage: Stage, figure: str) -> str:
    """Return the stage's own note about a figure, or that there is none."""
    return stage.reason(figure) or f"the stage has no {figure}"
