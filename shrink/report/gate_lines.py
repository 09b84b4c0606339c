"""The text of gates: what was compared, in the units of the tables, and what was missed."""

from __future__ import annotations

from shrink.base.figures import (
    FIGURES,
    Target,
    Unit,
    exact_value,
    figure_of,
    format_ratio,
    format_value,
    metric_figure,
    target_of,
    unit_hint,
)
from shrink.base.measurement import Note
from shrink.contract.report import GateResult, Report
from shrink.contract.slices import slice_text
from shrink.report.page import NULL, GateLine, Mark, capital

_ORDER: tuple[Mark, ...] = ("FAIL", "WARN", "SKIP", "PASS")
_MOST_SENTENCES = 3


def gate_lines(report: Report) -> list[GateLine]:
    """Return the gates, those that were missed first."""
    lines = [gate_line(gate) for gate in report.gates]
    return sorted(lines, key=lambda line: _ORDER.index(line.mark))


def missed_gates(report: Report) -> list[GateResult]:
    """Return the gates that make the run fail."""
    return [gate for gate in report.gates if _mark(gate) == "FAIL"]


def missed_sentences(report: Report) -> list[str]:
    """Return a sentence per missed gate, at most three, and how many more there are."""
    missed = missed_gates(report)
    sentences = [_missed_sentence(gate) for gate in missed[:_MOST_SENTENCES]]
    rest = len(missed) - len(sentences)
    more = f"{rest} more {'gates are' if rest > 1 else 'gate is'} missed."
    return [*sentences, more] if rest else sentences


def subject(name: str) -> str:
    """Return a figure's name as the subject of a sentence."""
    title = figure_of(name).title
    return f"The {name}" if name in FIGURES or "_" in title else capital(title or name)


def _mark(gate: GateResult) -> Mark:
    if not gate.judged:
        return "SKIP"
    if gate.passed:
        return "PASS"
    return "WARN" if gate.level == "warn" else "FAIL"


def gate_line(gate: GateResult) -> GateLine:
    """Return one gate of a report."""
    return GateLine(
        mark=_mark(gate),
        name=gate.name,
        comparison=_comparison(gate),
        stage=gate.stage or "all stages",
        reason=_reason(gate),
    )


def _reason(gate: GateResult) -> str:
    """Return what explains a result, without the figure's name where the gate has it already."""
    target = target_of(gate.name)
    figure = target.figure.name if target else gate.name
    absolute = gate.against is None and gate.relative_to is None
    if gate.reason is None and gate.value is not None and not gate.passed and absolute:
        is_size = target is not None and target.figure.unit == "bytes"
        return unit_hint(gate.value, gate.limit) if is_size else ""
    reason = gate.reason or Note()
    return reason.why if reason.figures == (figure,) else str(reason)


def _comparison(gate: GateResult) -> str:
    target = target_of(gate.name)
    unit: Unit = target.figure.unit if target else "none"
    where = ""
    if gate.slice is not None:
        where = f"{slice_text(str(gate.by), gate.slice)}: "
        unit = metric_figure(str(gate.metric)).unit
    if gate.against is not None:
        return where + _comparison_with_saved(gate, unit)
    if gate.relative_to is not None:
        return _comparison_with_baseline(gate, target, unit)
    is_change = target is not None and target.kind in ("drop", "rise", "slice")
    return where + _own(gate, target, _change_unit(unit) if is_change else unit)


def _own(gate: GateResult, target: Target | None, unit: Unit) -> str:
    """Return what a gate's own value is, and its limit."""
    value, limit = gate.value, gate.limit
    if value is None:
        return f"{_unknown(gate)}limit {_limit(limit, unit)}"
    value_text, limit_text = _pair(value, limit, unit)
    if gate.confidence is None or gate.low is None or gate.high is None:
        return f"{value_text} {_sign(gate, target)} {limit_text}"
    # The interval decided, so a sign between value and limit could read as a false statement.
    passing = "lies within" if gate.high <= limit else "reaches"
    verb = passing if gate.passed else "lies beyond"
    scale = 100 if unit == "points" else 1
    interval = f"[{scale * gate.low:.3g}, {scale * gate.high:.3g}]"
    return f"{value_text}, {100 * gate.confidence:g} % {interval} {verb} {limit_text}"


def _unknown(gate: GateResult) -> str:
    return "unknown, " if gate.judged else ""


def _sign(gate: GateResult, target: Target | None) -> str:
    """Return the true sign, so that a missed gate does not read as a false statement."""
    kept, missed = (">=", "<") if target and target.is_minimum else ("<=", ">")
    return kept if gate.passed else missed


def _comparison_with_saved(gate: GateResult, unit: Unit) -> str:
    """Return what a figure was in the saved report, what it is, and how much worse it may be."""
    measured, saved, worse_by = gate.current, gate.saved, gate.value
    if measured is None and saved is None:
        return f"nothing compared with {gate.against}"
    if saved is None:
        return f"now {_text(measured, unit)}, nothing to compare in {gate.against}"
    texts = _different(saved, measured, unit)
    both = f"{texts[0]} in {gate.against}, now {texts[1]}"
    if worse_by is None:
        return both
    if worse_by <= 0:
        return f"{both}: {'as good' if worse_by == 0 else 'better'}"
    sign = "<=" if gate.passed else ">"
    change, limit = _pair(worse_by, gate.limit, _change_unit(unit))
    return f"{both}: worse by {change} {sign} {limit}"


def _comparison_with_baseline(gate: GateResult, target: Target | None, unit: Unit) -> str:
    """Return a figure's share of the baseline's, and how much of it is allowed."""
    limit = f"{gate.limit:g}x of {gate.relative_to}"
    if gate.value is None:
        return f"{_unknown(gate)}limit {limit}"
    share = format_ratio(gate.value)
    if float(share.rstrip("x")) == gate.limit and gate.value != gate.limit:
        share = f"{gate.value:.6g}x"
    numbers = _different(gate.current, gate.reference, unit)
    return f"{share} ({numbers[0]} of {numbers[1]}) {_sign(gate, target)} {limit}"


def _missed_sentence(gate: GateResult) -> str:
    where = f" of {gate.stage}" if gate.stage else ""
    why = _reason(gate)
    if gate.value is None:
        return f"Gate {gate.name}{where} missed: {why or 'the figure is unknown'}."
    return f"Gate {gate.name}{where} missed: {_comparison(gate)}{why and f' ({why})'}."


def _change_unit(unit: Unit) -> Unit:
    return "points" if unit == "fraction" else unit


def _limit(limit: float, unit: Unit) -> str:
    """Return a limit as a recipe would say it: without digits that it does not have."""
    if limit == 0:
        return "0"
    return (
        exact_value(limit, unit) if unit in ("fraction", "points", "none") else _text(limit, unit)
    )


def _pair(value: float, limit: float, unit: Unit) -> tuple[str, str]:
    """Return value and limit with enough digits to tell them apart, where they differ."""
    first, second = _different(value, limit, unit)
    if value == limit or first == _text(value, unit):
        return first, _limit(limit, unit)
    # 14,000 > 13,999 B reads better than the unit twice.
    return first.removesuffix(" B") if unit == "bytes" else first, second


def _different(a: float | None, b: float | None, unit: Unit) -> tuple[str, str]:
    """Return both with enough digits to tell them apart, where they differ."""
    texts = _text(a, unit), _text(b, unit)
    if a is None or b is None or a == b or texts[0] != texts[1]:
        return texts
    return exact_value(a, unit), exact_value(b, unit)


def _text(value: float | None, unit: Unit) -> str:
    return NULL if value is None else format_value(value, unit)
