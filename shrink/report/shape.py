"""The keys and types that every report of schema_version 1 has; more keys may stand beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 1

_NUMBER = (int, float, type(None))
_TEXT_OR_NULL = (str, type(None))
_GROUP = (dict, type(None))

_REPORT: Mapping[str, Any] = {
    "passed": bool,
    "recipe": dict,
    "baseline": str,
    "environment": dict,
    "stages": list,
    "gates": list,
}
_STAGE: Mapping[str, Any] = {
    "name": str,
    "kind": str,
    "status": str,
    "duration_s": _NUMBER,
    "measured": _GROUP,
    "artifact": _TEXT_OR_NULL,
    "sha256": _TEXT_OR_NULL,
    "size": _GROUP,
    "memory": _GROUP,
    "metrics": _GROUP,
    "examples": _NUMBER,
    "delta": dict,
    "delta_previous": dict,
    "training": _GROUP,
    "latency": _GROUP,
    "skipped": list,
    "notes": list,
}
_GATE: Mapping[str, Any] = {"name": str, "limit": (int, float), "value": _NUMBER, "passed": bool}


def shape_problem(report: Mapping[str, Any]) -> str | None:
    """Return what a renderer would stumble over, such as `stages[2].size`, or None."""
    problem = _problem(report, _REPORT, "")
    for key, types in (("stages", _STAGE), ("gates", _GATE)):
        for index, item in enumerate(report[key] if problem is None else ()):
            problem = problem or _problem(item, types, f"{key}[{index}].")
    for index, stage in enumerate(report["stages"] if problem is None else ()):
        problem = problem or _figure_problem(stage, f"stages[{index}].")
    return problem


def _problem(value: Any, types: Mapping[str, Any], where: str) -> str | None:
    if not isinstance(value, dict):
        return f"{where.rstrip('.')} is not a mapping"
    for key, kind in types.items():
        if key not in value:
            return f"{where}{key} is missing"
        if not isinstance(value[key], kind):
            return f"{where}{key} has the wrong type"
    return None


def _figure_problem(stage: Mapping[str, Any], where: str) -> str | None:
    for group in ("size", "memory", "metrics", "latency"):
        for name, value in (stage[group] or {}).items():
            if not isinstance(value, _NUMBER):
                return f"{where}{group}.{name} is not a number"
    for name, delta in stage["delta"].items():
        values = delta.values() if isinstance(delta, dict) else [delta]
        if not all(isinstance(value, _NUMBER) for value in values):
            return f"{where}delta.{name} has the wrong type"
    return None
