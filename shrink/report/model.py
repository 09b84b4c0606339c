"""The report: what every stage cost, as one JSON document (schema_version 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shrink.base.figures import FIGURES, LOSS, explains, figures_of, metric_figure
from shrink.base.intervals import mean_interval
from shrink.base.report_warning import ReportWarning, gravest_first
from shrink.report.config import Gate
from shrink.report.deltas import stage_delta
from shrink.report.gates import all_passed, check_gates
from shrink.report.headline import Chain
from shrink.report.read import SCHEMA_VERSION
from shrink.report.sanity import sanity_warnings
from shrink.report.verdict import StageOutcome, ending

_TRAINING_FIGURES = tuple(name for name in FIGURES if name.startswith("training_"))


def build_report(
    *,
    recipe_name: str,
    recipe_sha256: str,
    baseline: str,
    environment: Mapping[str, Any],
    outcomes: Sequence[StageOutcome],
    gates: Mapping[str, Gate],
    finals: Sequence[str],
    saved: Mapping[str, Mapping[str, Any]] | None = None,
    planned_finals: Sequence[str] | None = None,
    resolved_recipe: str | None = None,
    command: str | None = None,
    trust_model: bool = False,
    warnings: Sequence[ReportWarning] = (),
    chain: Chain | None = None,
    data: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the report as plain data that strict JSON can hold.

    Every stage has every key. A failed or skipped stage has null groups and empty differences;
    a failed one has an `error` too. The baseline's difference to itself is 0, its ratio 1, and its
    `delta_previous` is empty like that of any stage that starts from no other. A number that is
    not finite becomes null, with a note.

    Args:
        recipe_name: name of the recipe.
        recipe_sha256: hash of the resolved recipe.
        baseline: the stage that all others are compared with.
        environment: versions and devices.
        outcomes: the stages in the order of the plan.
        gates: the recipe's gates.
        finals: names of the last stage of each branch, of the artifacts that are the result.
        saved: the reports that gates with `against` compare with, by the gate's name.
        planned_finals: the last stages of the whole recipe, where the run was to stop before them.
        resolved_recipe: the resolved recipe as YAML.
        command: the command line that ran it.
        trust_model: whether model files were loaded whatever they hold (`--trust-model`).
        chain: what the run goes on from, where that is not its own baseline.
        data: the data set: its source, fingerprint, examples and classes.
        source: the `commit` of the repository that holds the recipe, None without one.
        warnings: about the run as a whole; those of the stages are in their results.
    """
    stages = [_stage(outcome) for outcome in outcomes]
    by_name = {stage["name"]: stage for stage in stages}
    scores = {outcome.name: outcome.scores for outcome in outcomes}
    for stage, outcome in zip(stages, outcomes, strict=True):
        for key, other in (("delta", baseline), ("delta_previous", outcome.previous)):
            stage[key] = _delta(stage, outcome, by_name.get(other or ""), scores)
        stage["notes"] += _interval_notes(stage)
        if chain is not None and outcome.complete:
            stage["delta_origin"] = chain.delta(stage, outcome.scores)
    results = check_gates(
        stages,
        gates,
        baseline=baseline,
        finals=finals,
        scores=scores,
        saved=saved,
        planned_finals=planned_finals,
    )
    of_stages = _stage_warnings(outcomes)
    suspicious = sanity_warnings(
        stages,
        baseline=baseline,
        finals=finals,
        gates=list(gates),
        previous={outcome.name: outcome.previous for outcome in outcomes},
    )
    report = {
        "schema_version": SCHEMA_VERSION,
        "passed": all_passed(stages, results),
        "recipe": {"name": recipe_name, "sha256": recipe_sha256},
        "resolved_recipe": resolved_recipe,
        "command": command,
        "trust_model": trust_model,
        "baseline": baseline,
        "chain": None if chain is None else _plain(chain.to_dict()),
        "finals": list(finals),
        "data": _plain(data),
        "source": _plain(source),
        "environment": _plain(environment),
        "stages": stages,
        "gates": results,
        "warnings": [w.to_dict() for w in gravest_first([*warnings, *of_stages, *suspicious])],
    }
    return {**report, "outcome": ending(report)}


def _stage_warnings(outcomes: Sequence[StageOutcome]) -> list[ReportWarning]:
    """Return what the workers warned of, each with the name that its stage has in this run."""
    return [
        replace(ReportWarning.of(value), stage=outcome.name)
        for outcome in outcomes
        for value in outcome.result.get("warnings") or ()
    ]


def _stage(outcome: StageOutcome) -> dict[str, Any]:
    stage: dict[str, Any] = {
        "name": outcome.name,
        "kind": outcome.kind,
        "status": outcome.status,
        "duration_s": outcome.duration_s,
        "measured": _plain(outcome.measured),
        "artifact": outcome.artifact,
        "sha256": outcome.sha256,
        "size": None,
        "memory": None,
        "metrics": None,
        "intervals": {},
        "examples": None,
        "guess": None,
        "delta": {},
        "delta_previous": {},
        "training": None,
        "latency": None,
        "skipped": _plain(outcome.result.get("skipped") or []),
        "notes": [str(note) for note in outcome.result.get("notes") or []],
        "details": _plain(outcome.result.get("details")),
    }
    if outcome.complete:
        stage |= _groups(outcome.result)
        stage["intervals"] = _intervals(outcome)
        stage["notes"] += _missing_notes(stage, outcome.result)
    if outcome.status == "failed":
        stage["error"] = _plain(outcome.error)
    return stage


def _intervals(outcome: StageOutcome) -> dict[str, Any]:
    """Return the 95 % interval of each metric itself: where it would lie on other examples."""
    usable = {n: s for n, s in outcome.scores.items() if s and all(map(math.isfinite, s))}
    found = {n: mean_interval(s, bounds=metric_figure(n).bounds) for n, s in usable.items()}
    return {name: interval.to_dict() for name, interval in found.items()}


def _interval_notes(stage: Mapping[str, Any]) -> list[str]:
    """Return what the interval of the first metric's difference says of itself."""
    metric = next((name for name in stage["metrics"] or {} if name != LOSS), LOSS)
    note = (stage["delta"].get(metric) or {}).get("note")
    return [f"{metric}: the 95 % interval of the difference is {note}"] if note else []


def _groups(result: Mapping[str, Any]) -> dict[str, Any]:
    groups: dict[str, Any] = {
        group: {name: _plain((result.get(group) or {}).get(name)) for name in figures_of(group)}
        for group in ("size", "memory")
    }
    groups["metrics"] = _plain(dict(result.get("metrics") or {}))
    groups["examples"] = result.get("examples")
    groups["guess"] = _plain(result.get("guess"))
    groups["training"] = _plain(result.get("training"))
    latency = _plain(result.get("latency"))
    groups["latency"] = {"p50_ms": None, "p90_ms": None, "threads": None} | (latency or {})
    return groups


def _missing_notes(stage: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    """Return notes for the null figures that the worker did not explain."""
    not_finite, not_trained, not_measured = [], [], []
    for name, value, given in _null_candidates(stage, result):
        if value is not None or any(explains(note, name) for note in stage["notes"]):
            continue
        if given is not None:
            not_finite.append(name)
        elif name in _TRAINING_FIGURES and stage["training"] is None:
            not_trained.append(name)
        else:
            not_measured.append(name)
    return [
        f"{', '.join(names)}: {why}"
        for names, why in (
            (not_finite, "the measured value is not a finite number"),
            (not_trained, "does not apply, this stage trains nothing"),
            (not_measured, "was not measured"),
        )
        if names
    ]


def _null_candidates(
    stage: Mapping[str, Any], result: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """Return name, reported value and the worker's value of every figure."""
    found = []
    for name, figure in FIGURES.items():
        given = (result.get(figure.group) or {}).get(name)
        found.append((name, stage[figure.group][name], given))
    metrics = result.get("metrics") or {}
    return [*found, *((name, stage["metrics"][name], given) for name, given in metrics.items())]


def _delta(
    stage: Mapping[str, Any],
    outcome: StageOutcome,
    other: Mapping[str, Any] | None,
    scores: Mapping[str, Mapping[str, Sequence[float]]],
) -> dict[str, Any]:
    if other is None or not outcome.complete:
        return {}
    return stage_delta(stage, other, outcome.scores, scores[other["name"]])


def _plain(value: Any) -> Any:
    """Return `value` with numbers that JSON cannot hold as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
