"""Gates against a saved report: how much worse a figure is than it was there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.report.config import Gate
from shrink.report.deltas import exact_difference
from shrink.report.targets import Target


@dataclass(frozen=True)
class Value:
    """A figure of one stage, or of the whole run (`stage` None), or why there is none."""

    stage: str | None
    value: float | None
    reason: str | None = None
    judged: bool = True
    """False where there is nothing to decide on: the stage never ended, or was left out."""
    left_out: bool = False
    """Whether the recipe has this stage, and the run was to stop before it."""


@dataclass(frozen=True)
class Comparison:
    """How a figure compares with the saved one.

    Args:
        stage: the stage of this run.
        worse_by: in the figure's unit; below 0 where it is better, None where one is unknown.
        allowed: the most that it may be worse by.
        measured: the figure now.
        saved: the figure in the saved report.
        reason: why there is no difference.
        judged: false where nothing was decided.
        excused: whether that counts as passed, as the gate says that nothing saved yet passes.
        left_out: whether the run was to stop before the stage.
    """

    stage: str | None
    worse_by: float | None
    allowed: float
    measured: float | None = None
    saved: float | None = None
    reason: str | None = None
    judged: bool = True
    excused: bool = False
    left_out: bool = False


def compare(
    target: Target, gate: Gate, now: Sequence[Value], saved: Sequence[Value] | None
) -> list[Comparison]:
    """Return a comparison per value of this run.

    `saved` is None where there is no report yet, which only a gate with `missing: pass` allows.
    Stages are matched by name. Where either run has one value only, as for a training peak, which
    is the largest of all stages, or for a recipe without branches, names do not matter.
    """
    if saved is None:
        why = f"nothing to compare with: {Path(str(gate.against)).name} is not there yet"
        return [_nothing_saved(gate, value, why) for value in now]
    by_stage = {value.stage: value for value in saved}
    if len(now) == 1 and len(saved) == 1:
        by_stage = {now[0].stage: saved[0]}
    return [_compared(target, gate, value, by_stage.get(value.stage)) for value in now]


def _compared(target: Target, gate: Gate, now: Value, saved: Value | None) -> Comparison:
    if now.value is None or not now.judged:
        return _nothing_now(gate, now)
    if saved is None or saved.value is None:
        why = saved.reason if saved and saved.reason else f"it has no stage {now.stage} at an end"
        return _nothing_saved(gate, now, f"nothing to compare with in the saved report: {why}")
    rise = exact_difference(now.value, saved.value)
    worse_by = -rise + 0 if target.figure.larger_is_better else rise
    allowed = gate.limit if gate.ratio is None else gate.ratio * abs(saved.value)
    return Comparison(now.stage, worse_by, allowed, now.value, saved.value)


def _nothing_saved(gate: Gate, now: Value, reason: str) -> Comparison:
    """Return what becomes of a figure without another one: a miss, unless the gate excuses it."""
    if now.value is None or not now.judged:
        return _nothing_now(gate, now)
    excused = gate.missing == "pass"
    return Comparison(
        now.stage, None, gate.limit, now.value, None, reason, judged=not excused, excused=excused
    )


def _nothing_now(gate: Gate, now: Value) -> Comparison:
    return Comparison(
        now.stage,
        None,
        gate.limit,
        reason=now.reason,
        judged=now.judged,
        left_out=now.left_out,
    )
