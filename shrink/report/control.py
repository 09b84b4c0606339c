"""What a teacher brought: the student alone, the student taught, and the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shrink.report.content import NULL, Report
from shrink.report.figures import format_change, format_value, metric_figure
from shrink.report.numbers import is_number

_ROWS = (("student alone", "alone"), ("student taught", "taught"), ("teacher", "teacher"))


@dataclass(frozen=True)
class ControlTable:
    """Test figures of one distillation with `control: true`; the first cell of a row names it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def control_tables(report: Report) -> list[ControlTable]:
    """Return a table for each stage whose student was trained without its teacher, too."""
    found = []
    for stage in report["stages"]:
        control = _mapping((stage.get("details") or {}).get("control"))
        if names := list(_mapping(control.get("taught"))):
            rows = [(head, *_metrics(_mapping(control.get(key)), names)) for head, key in _ROWS]
            rows.append(("teaching brought", *_gains(_mapping(control.get("gain")), names)))
            found.append(ControlTable(str(stage["name"]), ("", *names), tuple(rows)))
    return found


def _metrics(values: Mapping[str, Any], names: list[str]) -> list[str]:
    return [
        format_value(values[name], metric_figure(name).unit)
        if is_number(values.get(name))
        else NULL
        for name in names
    ]


def _gains(gains: Mapping[str, Any], names: list[str]) -> list[str]:
    return [_gain(name, _mapping(gains.get(name))) for name in names]


def _gain(name: str, gain: Mapping[str, Any]) -> str:
    unit = metric_figure(name).unit
    texts = [
        format_change(gain[key], unit) if is_number(gain.get(key)) else NULL
        for key in ("value", "low", "high")
    ]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
