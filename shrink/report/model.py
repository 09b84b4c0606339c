"""Builds the report from what the workers measured; its types are in `shrink.contract.report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shrink.base.errors import gravest_first
from shrink.base.figures import FIGURES, LOSS, figure_of, figures_of
from shrink.base.measurement import DOES_NOT_APPLY, Note
from shrink.contract.details import Deltas, Limits, metric_delta
from shrink.contract.report import (
    Report,
    Stage,
)
from shrink.contract.result import StageOutcome, StepResult
from shrink.report.config import Gate
from shrink.report.deltas import own_limits, stage_delta
from shrink.report.gates import all_passed, gate_results
from shrink.report.headline import Continuation, ending
from shrink.report.sanity import sanity_warnings
from shrink.report.slices import reported_slices

_TRAINING_FIGURES = tuple(name for name in FIGURES if name.startswith("training_"))


def build_report(
    run: Report,
    outcomes: Sequence[StageOutcome],
    gates: Mapping[str, Gate],
    *,
    saved: Mapping[str, Report] | None = None,
    planned_finals: Sequence[str] | None = None,
    chain: Continuation | None = None,
    tests_all: bool = False,
) -> Report:
    """Return the report of a run.

    A failed or skipped stage has null groups and empty differences;
    a failed one has an `error` too. The baseline's difference to itself is 0, its ratio 1, and its
    `delta_previous` is empty like that of any stage that starts from no other.

    Args:
        run: what is said of the run as a whole, without stages and gates.
        outcomes: the stages in the order of the plan.
        gates: the recipe's gates.
        saved: the reports that gates with `against` compare with, by the gate's name.
        planned_finals: the last stages of the whole recipe, where the run was to stop before them.
        chain: what the run goes on from, where that is not its own baseline.
        tests_all: whether `data.test_split` is 1.
    """
    stages = _stages(outcomes, run.baseline, chain)
    results = gate_results(
        stages,
        gates,
        baseline=run.baseline,
        finals=run.finals,
        scores={outcome.name: outcome.scores for outcome in outcomes},
        saved=saved,
        planned_finals=planned_finals,
        data=run.data,
    )
    suspicious = sanity_warnings(
        stages,
        baseline=run.baseline,
        finals=run.finals,
        gates=gates,
        scores=next((o.scores for o in outcomes if o.name == run.baseline), {}),
        previous={outcome.name: outcome.previous for outcome in outcomes},
        tests_all=tests_all,
    )
    # Each warning of a worker has the name that its stage has in this run.
    of_stages = [
        replace(warning, stage=outcome.name)
        for outcome in outcomes
        for warning in outcome.result.warnings
    ]
    report = replace(
        run,
        passed=all_passed(stages, results),
        chain=None if chain is None else chain.reported,
        stages=tuple(stages),
        gates=tuple(results),
        warnings=tuple(gravest_first([*run.warnings, *of_stages, *suspicious])),
    )
    return replace(report, outcome=ending(report))


def _stages(
    outcomes: Sequence[StageOutcome], baseline: str, chain: Continuation | None
) -> list[Stage]:
    """Return the stages with their differences, as far as they are complete."""
    alone = {outcome.name: _stage(outcome) for outcome in outcomes}
    scores = {outcome.name: outcome.scores for outcome in outcomes}
    complete = {outcome.name: outcome for outcome in outcomes if outcome.complete}

    def delta(outcome: StageOutcome, to: str | None) -> Deltas:
        other = alone.get(to or "")
        if other is None or not outcome.complete:
            return {}
        return stage_delta(alone[outcome.name], other, outcome.scores, scores[other.name])

    stages = []
    for outcome in outcomes:
        stage = replace(
            alone[outcome.name],
            delta=delta(outcome, baseline),
            delta_previous=delta(outcome, outcome.previous),
        )
        stage = replace(stage, notes=(*stage.notes, *_interval_notes(stage)))
        if outcome.complete and outcome.result.slices:
            stage = replace(
                stage,
                slices=reported_slices(
                    stage, outcome, complete.get(baseline), complete.get(outcome.previous or "")
                ),
            )
        if chain is not None and outcome.complete:
            stage = replace(stage, delta_origin=chain.delta(stage, outcome.scores))
        stages.append(stage)
    return stages


def _stage(outcome: StageOutcome) -> Stage:
    """Return a stage without its differences."""
    result = outcome.result
    stage = Stage(
        name=outcome.name,
        kind=outcome.kind,
        status=outcome.status,
        duration_s=outcome.duration_s,
        measured=result.measured,
        artifact=outcome.artifact,
        sha256=outcome.sha256,
        size=None,
        memory=None,
        metrics=None,
        examples=None,
        delta={},
        delta_previous={},
        training=None,
        latency=None,
        skipped=result.skipped,
        notes=result.notes,
        details=result.details,
        error=outcome.error if outcome.status == "failed" else None,
    )
    return _with_figures(stage, outcome) if outcome.complete else stage


def _with_figures(stage: Stage, outcome: StageOutcome) -> Stage:
    result = outcome.result
    latency = {"p50_ms": None, "p90_ms": None, "threads": None, **result.latency}
    stage = replace(
        stage,
        size={name: result.size.get(name) for name in figures_of("size")},
        memory={name: result.memory.get(name) for name in figures_of("memory")},
        metrics=result.metrics,
        intervals=_intervals(outcome),
        examples=result.examples,
        guess=result.guess,
        training=result.training,
        latency=latency,
    )
    return replace(stage, notes=(*stage.notes, *_missing_notes(stage, result)))


def _intervals(outcome: StageOutcome) -> dict[str, Limits]:
    """Return the 95 % interval of each metric itself: where it would lie on other examples."""
    metrics = outcome.result.metrics
    found = {name: own_limits(outcome.scores.get(name), name) for name in outcome.scores}
    return {name: limits for name, limits in found.items() if limits and name in metrics}


def _interval_notes(stage: Stage) -> list[Note]:
    """Return what the interval of the first metric's difference says of itself."""
    metric = next((name for name in stage.metrics or {} if name != LOSS), LOSS)
    delta = metric_delta(stage.delta, metric)
    note = delta.note if delta else None
    return [Note.about([metric], f"the 95 % interval of the difference is {note}")] if note else []


def _missing_notes(stage: Stage, result: StepResult) -> list[Note]:
    """Return notes for the null figures that the worker did not explain."""
    not_trained, not_measured = [], []
    for name in dict.fromkeys((*FIGURES, *result.metrics)):
        if stage.figure(name) is not None or stage.reason(name) or not figure_of(name).everywhere:
            continue
        if name in _TRAINING_FIGURES and stage.training is None:
            not_trained.append(name)
        else:
            not_measured.append(name)
    return [
        Note.about(names, why)
        for names, why in (
            (not_trained, f"{DOES_NOT_APPLY}, this stage trains nothing"),
            (not_measured, "was not measured"),
        )
        if names
    ]
