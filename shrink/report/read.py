"""Reads a report.json, of this version or an earlier one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shrink.base.errors import InputError

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

_WARNING: Mapping[str, Any] = {
    "stage": _TEXT_OR_NULL,
    "code": str,
    "message": str,
    "hint": _TEXT_OR_NULL,
}

_OPTIONAL: Mapping[str, Any] = {
    "finals": list,
    "warnings": list,
    "outcome": str,
    "chain": _GROUP,
    "delta_origin": dict,
    "details": _GROUP,
    "data": _GROUP,
    "source": _GROUP,
    "guess": _GROUP,
    "command": _TEXT_OR_NULL,
    "resolved_recipe": _TEXT_OR_NULL,
    "error": _GROUP,
    "stage": _TEXT_OR_NULL,
    "level": str,
    "reason": _TEXT_OR_NULL,
    "confidence": _NUMBER,
    "low": _NUMBER,
    "against": _TEXT_OR_NULL,
    "current": _NUMBER,
    "saved": _NUMBER,
    "relative_to": _TEXT_OR_NULL,
    "reference": _NUMBER,
    "judged": bool,
    "high": _NUMBER,
}
"""Keys that only some reports, stages or gates have."""


def shape_problem(report: Any) -> str | None:
    """Return what a renderer would stumble over, such as `stages[2].size`, or None."""
    return next(_problems(report), None)


def _problems(report: Any) -> Iterator[str]:
    # A generator that is asked for its first item only: what comes later may rely on it.
    yield from _wrong_keys(report, _REPORT, "")
    if not all(isinstance(name, str) for name in report.get("finals", [])):
        yield "finals is not a list of names"
    if report.get("chain"):
        yield from _wrong_keys(report["chain"], {"origin": dict, "same_examples": bool}, "chain.")
    for index, stage in enumerate(report["stages"]):
        yield from _wrong_keys(stage, _STAGE, f"stages[{index}].")
        yield from _wrong_figures(stage, f"stages[{index}].")
    for index, warning in enumerate(report.get("warnings", [])):
        yield from _wrong_keys(warning, _WARNING, f"warnings[{index}].")
    for index, gate in enumerate(report["gates"]):
        yield from _wrong_keys(gate, _GATE, f"gates[{index}].")
        if gate.get("level", "fail") not in ("fail", "warn"):
            yield f"gates[{index}].level is neither fail nor warn"


def _wrong_keys(value: Any, types: Mapping[str, Any], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where.rstrip('.') or 'the document'} is not a mapping"
    for key, kind in types.items():
        if key not in value:
            yield f"{where}{key} is missing"
        if not isinstance(value[key], kind):
            yield f"{where}{key} has the wrong type"
    for key in _OPTIONAL.keys() & value.keys():
        if not isinstance(value[key], _OPTIONAL[key]):
            yield f"{where}{key} has the wrong type"


def _wrong_figures(stage: Mapping[str, Any], where: str) -> Iterator[str]:
    for group in ("size", "memory", "metrics", "latency"):
        for name, value in (stage[group] or {}).items():
            if not isinstance(value, _NUMBER):
                yield f"{where}{group}.{name} is not a number"
    for key in ("delta", "delta_previous", "delta_origin"):
        for name, delta in stage.get(key, {}).items():
            if not _is_delta(delta):
                yield f"{where}{key}.{name} is not a difference"


def _is_delta(delta: Any) -> bool:
    if not isinstance(delta, dict):
        return delta is None
    known = isinstance(delta.get("value"), int | float)
    numbers = all(isinstance(delta[key], _NUMBER) for key in delta if key != "note")
    return known and numbers and isinstance(delta.get("note", ""), str)


def read_report(path: Path) -> dict[str, Any]:
    """Read a report from a `report.json` or from the run folder that holds one.

    Raises:
        InputError: it is missing, unreadable, no report, or of another schema version.
    """
    file = path / "report.json" if path.is_dir() else path
    try:
        report = json.loads(
            file.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite
        )
    except FileNotFoundError as error:
        raise InputError(
            "there is no report here", subject=file, hint="name the folder of a finished run"
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", subject=file) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", subject=file) from error
    if not isinstance(report, dict) or "schema_version" not in report:
        raise InputError("is not a report of shrink", subject=file)
    if report["schema_version"] != SCHEMA_VERSION:
        raise InputError(
            f"has schema version {report['schema_version']!r}, and this shrink reads "
            f"{SCHEMA_VERSION}",
            subject=file,
            hint="use the version of shrink that wrote it, or run the recipe again",
        )
    if (problem := shape_problem(report)) is not None:
        raise InputError(f"is not a report of shrink: {problem}", subject=file)
    return report


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
