"""The `gates` section of a recipe: limits that the result must keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from shrink.recipe.fields import UNIT_BYTES, Config, parse_bytes
from shrink.recipe.suggest import hint_for
from shrink.report.targets import TARGETS, Target


class Gate(Config):
    """One limit; the point value decides unless a confidence is given.

    With `against`, the limit is not on the figure but on how much worse it is than in a saved
    report: higher for sizes, memory, times and losses, lower for accuracies. Two runs share no
    scores, so only point values are compared.
    """

    limit: int | float = 0
    """The most that is allowed; for accuracies themselves, the least. With `against`, the most
    that the figure may be worse than there, in its own unit; 0 by default."""
    against: Annotated[str, Field(min_length=1)] | None = None
    """A saved `report.json`, or the folder of a finished run; relative to the recipe."""
    ratio: Annotated[float, Field(ge=0)] | None = None
    """With `against`, in place of a limit: the same as a share of the saved value, such as 0.05."""
    stage: str | None = None
    """The stage to look at, in place of the final stage of each branch."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] | None = None
    """Drops and rises: counts only when the whole interval at this confidence is beyond."""
    level: Literal["fail", "warn"] = "fail"
    """warn: a miss is reported, and the run still passes."""


def parse_gates(value: Mapping[str, Any]) -> dict[str, Gate]:
    """Return the gates of a recipe's section, `NAME: LIMIT` or `NAME: {limit: LIMIT, ...}`.

    Raises:
        ValueError: an unknown name or key, a wrong unit, a limit that no result can have.
    """
    if not isinstance(value, Mapping):
        raise ValueError("gates is a mapping of names to limits")
    return {name: _parse_gate(name, settings) for name, settings in value.items()}


def gates_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the section, with every legal name.

    What a gate may be depends on its kind and unit alone: that stands in `$defs`, once.
    """
    definitions: dict[str, Any] = {}
    properties = {}
    for name, target in TARGETS.items():
        title = f"Gate{target.kind.title()}{target.figure.unit.title()}"
        definitions.setdefault(title, _gate_schema(target))
        reference = {"$ref": f"#/$defs/{title}"}
        properties[name] = {"description": _describe(name, target), **reference}
    return {
        "description": "Limits that the result must keep; a missed one is exit code 1.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def _parse_gate(name: Any, value: Any) -> Gate:
    if not isinstance(name, str) or name not in TARGETS:
        raise ValueError(f"unknown gate {name!r}; {hint_for(str(name), TARGETS)}")
    if isinstance(value, Gate):
        value = value.model_dump()
    settings = dict(value) if isinstance(value, Mapping) else {"limit": value}
    compared = settings.get("against") is not None
    _check_keys(name, settings, compared)
    target = TARGETS[name]
    if not compared or settings.setdefault("limit", 0) != 0:
        settings["limit"] = _parse_limit(name, target, settings["limit"], compared)
    if settings.get("confidence") is not None and target.kind not in ("drop", "rise"):
        raise ValueError(f"{name}: a confidence goes with a drop or a rise, such as accuracy_drop")
    try:
        return Gate.model_validate(settings)
    except ValidationError as error:
        raise ValueError("; ".join(_complaints(name, error))) from error


def _check_keys(name: str, settings: Mapping[str, Any], compared: bool) -> None:
    """Refuse keys that do not go together; what they hold is looked at later."""
    if not compared and "limit" not in settings:
        raise ValueError(f"{name}: the key 'limit' is missing")
    if not compared and settings.get("ratio") is not None:
        raise ValueError(f"{name}: a ratio goes with against, the report that it is a share of")
    if settings.get("ratio") is not None and settings.get("limit"):
        raise ValueError(f"{name}: give a limit or a ratio, not both")
    if compared and settings.get("confidence") is not None:
        raise ValueError(f"{name}: a confidence does not go with against: two runs share no scores")


def _parse_limit(name: str, target: Target, limit: Any, compared: bool) -> int | float:
    unit = target.figure.unit
    if unit == "bytes":
        try:
            return parse_bytes(limit)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise ValueError(f"{name}: {_not_a_number(limit, unit)}")
    if not -float("inf") < limit < float("inf"):
        raise ValueError(f"{name}: the limit must be a finite number, not {limit}")
    if unit == "fraction" and not -1 <= limit <= 1:
        raise ValueError(f"{name}: is a fraction, so {limit:g} % is written {limit / 100:g}")
    if (compared or target.kind in ("figure", "duration")) and limit < 0:
        raise ValueError(f"{name}: the limit must not be below 0")
    return limit


def _not_a_number(limit: Any, unit: str) -> str:
    what = {
        "fraction": "a fraction such as 0.02",
        "count": "a plain number",
        "ms": "a plain number, of milliseconds",
        "s": "a plain number, of seconds",
    }.get(unit, "a plain number")
    if isinstance(limit, str) and limit.strip()[:1].isdigit():
        return f"wrong unit: the limit must be {what}, not {limit!r}"
    return f"the limit must be {what}, not {limit!r}"


def _complaints(name: str, error: ValidationError) -> list[str]:
    texts = []
    for detail in error.errors(include_url=False):
        key = str(detail["loc"][0]) if detail["loc"] else ""
        if detail["type"] == "extra_forbidden":
            texts.append(f"{name}: unknown key {key!r}; {hint_for(key, Gate.model_fields)}")
        else:
            text = detail["msg"].removeprefix("Input should be ")
            texts.append(f"{name}.{key}: must be {text}, not {detail['input']!r}")
    return texts


def _gate_schema(target: Target) -> dict[str, Any]:
    limit = _limit_schema(target)
    settings = Gate.model_json_schema()["properties"]
    common = {key: settings[key] for key in ("stage", "level")}
    confident = {"confidence": settings["confidence"]} if target.kind in ("drop", "rise") else {}
    plain = {"limit": limit, **common, **confident}
    least = {**limit, "minimum": 0} if "anyOf" not in limit else {"anyOf": [*limit["anyOf"], _ZERO]}
    saved = {"against": {"description": _AGAINST, "type": "string", "minLength": 1}, **common}
    return {
        "anyOf": [
            limit,
            _closed(plain, "limit"),
            _closed({**saved, "limit": least}, "against"),
            _closed({**saved, "ratio": {**_RATIO, "description": _SHARE}}, "against", "ratio"),
        ]
    }


_ZERO = {"const": 0}
_RATIO = {"type": "number", "minimum": 0}
_AGAINST = "A saved report.json or run folder, relative to the recipe; limits then hold for how "
_AGAINST += "much worse the figure may be than there."
_SHARE = "How much worse the figure may be, as a share of the saved value, such as 0.05."


def _closed(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": dict(properties),
    }


def _limit_schema(target: Target) -> dict[str, Any]:
    unit = target.figure.unit
    if unit == "bytes":
        units = "|".join(UNIT_BYTES)
        return {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": rf"^\d+(\.\d+)? ?({units})$"},
            ]
        }
    lowest = 0 if target.kind in ("figure", "duration") else -1
    if unit == "fraction":
        return {"type": "number", "minimum": lowest, "maximum": 1}
    return {"type": "number", "minimum": 0} if lowest == 0 else {"type": "number"}


def _describe(name: str, target: Target) -> str:
    figure = target.figure.name
    if target.kind == "drop":
        return f"The most that {figure} may fall below the baseline."
    if target.kind == "rise":
        return f"The most that {figure} may rise above the baseline."
    bound = "least" if target.is_minimum else "most"
    what = "the run's duration in seconds" if target.kind == "duration" else name
    return f"The {bound} that {what} may be."
