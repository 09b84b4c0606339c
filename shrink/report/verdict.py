"""FINISHED, PASSED, FAILED or INTERRUPTED, and why."""

from __future__ import annotations

from typing import Literal

from shrink.contract.report import Ending, Report
from shrink.report.content import warnings_of, was_stopped
from shrink.report.gate_lines import missed_gates

Tone = Literal["good", "bad", "careful", "neutral"]
_MOST_NAMES = 3


def ending(report: Report) -> Ending:
    """Return how a run ended.

    `passed` and `failed` are for runs that had something to keep to: gates that were decided, or
    a stage that broke down. A run without either is `finished`, whatever its figures are, and one
    that was stopped from outside is `interrupted`.
    """
    failed = [stage for stage in report.stages if stage.status == "failed"]
    if any(map(was_stopped, failed)):
        return "interrupted"
    if failed or missed_gates(report) or not report.passed:
        return "failed"
    return "passed" if any(gate.judged for gate in report.gates) else "finished"


def tone(report: Report) -> Tone:
    """Return how an outcome is coloured: nothing with a warning is plainly good."""
    how = ending(report)
    if how == "failed":
        return "bad"
    if how == "interrupted" or warnings_of(report):
        return "careful"
    return "good" if how == "passed" else "neutral"


def verdict(report: Report) -> str:
    """Return the run's outcome in a few words, such as `FAILED: 1 of 3 gates missed: accuracy`."""
    how = ending(report)
    stopped = [stage.name for stage in report.stages if stage.status == "failed"]
    if how in ("interrupted", "failed") and stopped:
        return f"{how.upper()}: {', '.join(stopped)} did not finish"
    if how == "failed":
        return _missed(report)
    count = len(warnings_of(report))
    warned = f", {count} warning{'s' if count > 1 else ''}" if count else ""
    return f"{how.upper()}{_gates(report)}{warned}"


def _missed(report: Report) -> str:
    missed = missed_gates(report)
    if not missed:
        return "FAILED"
    names = list(dict.fromkeys(gate.name for gate in missed))
    shown = ", ".join(names[:_MOST_NAMES])
    rest = len(names) - _MOST_NAMES
    more = f" and {rest} more" if rest > 0 else ""
    return f"FAILED: {len(missed)} of {len(report.gates)} gates missed: {shown}{more}"


def _gates(report: Report) -> str:
    """Return what the word alone would hide: that there are no gates, or that some waited."""
    total = len(report.gates)
    if not total:
        return ", no gates"
    skipped = sum(not gate.judged for gate in report.gates)
    if not skipped:
        return ""
    return f", {skipped} of {total} gate{'s' if total > 1 else ''} not checked"
