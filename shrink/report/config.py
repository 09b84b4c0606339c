"""The `gates` section of a recipe: limits that the result must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from shrink.recipe.fields import UNIT_BYTES, Config, parse_bytes
from shrink.recipe.suggest import hint_for
from shrink.report.figures import FIGURES, Figure, metric_figure, metric_names

DURATION = "duration_s"
Kind = Literal["figure", "drop", "rise", "duration"]


class Gate(Config):
    """One limit; the point value decides unless a confidence is given."""

    limit: int | float
    """The most that is allowed; for accuracies themselves, the least."""
    stage: str | None = None
    """The stage to look at, in place of the final stage of each branch."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] | None = None
    """Drops and rises: counts only when the whole interval at this confidence is beyond."""
    level: Literal["fail", "warn"] = "fail"
    """warn: a miss is reported, and the run still passes."""


@dataclass(frozen=True)
class Target:
    """What a gate's name means.

    Args:
        kind: a figure itself, a metric's drop or rise against the baseline, or the run's duration.
        figure: the figure that is looked at.
    """

    kind: Kind
    figure: Figure

    @property
    def is_minimum(self) -> bool:
        """Whether the limit is the least that is allowed."""
        return self.kind == "figure" and self.figure.larger_is_better


def _targets() -> dict[str, Target]:
    targets = {name: Target("figure", figure) for name, figure in FIGURES.items()}
    metrics = [metric_figure(name) for name in metric_names()]
    targets.update({metric.name: Target("figure", metric) for metric in metrics})
    for metric in metrics:
        kind: Kind = "drop" if metric.larger_is_better else "rise"
        targets[f"{metric.name}_{kind}"] = Target(kind, metric)
    targets[DURATION] = Target("duration", Figure(DURATION, "latency", "s"))
    return targets


TARGETS: dict[str, Target] = _targets()
"""Every legal name of a gate."""


def parse_gates(value: Mapping[str, Any]) -> dict[str, Gate]:
    """Return the gates of a recipe's section, `NAME: LIMIT` or `NAME: {limit: LIMIT, ...}`.

    Raises:
        ValueError: an unknown name or key, a wrong unit, a limit that no result can have.
    """
    if not isinstance(value, Mapping):
        raise ValueError("gates is a mapping of names to limits")
    return {name: _parse_gate(name, settings) for name, settings in value.items()}


def gates_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the section, with every legal name."""
    return {
        "description": "Limits that the result must keep; a missed one is exit code 1.",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _gate_schema(name, target) for name, target in TARGETS.items()},
    }


def _parse_gate(name: Any, value: Any) -> Gate:
    if not isinstance(name, str) or name not in TARGETS:
        raise ValueError(f"unknown gate {name!r}; {hint_for(str(name), TARGETS)}")
    if isinstance(value, Gate):
        value = value.model_dump()
    settings = dict(value) if isinstance(value, Mapping) else {"limit": value}
    if "limit" not in settings:
        raise ValueError(f"{name}: the key 'limit' is missing")
    target = TARGETS[name]
    settings["limit"] = _parse_limit(name, target, settings["limit"])
    if settings.get("confidence") is not None and target.kind not in ("drop", "rise"):
        raise ValueError(f"{name}: a confidence goes with a drop or a rise, such as accuracy_drop")
    try:
        return Gate.model_validate(settings)
    except ValidationError as error:
        raise ValueError("; ".join(_complaints(name, error))) from error


def _parse_limit(name: str, target: Target, limit: Any) -> int | float:
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
    if target.kind in ("figure", "duration") and limit < 0:
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


def _gate_schema(name: str, target: Target) -> dict[str, Any]:
    limit = _limit_schema(target)
    settings = Gate.model_json_schema()["properties"]
    allowed = {"limit", "stage", "level"}
    allowed |= {"confidence"} if target.kind in ("drop", "rise") else set()
    properties = {key: value for key, value in settings.items() if key in allowed}
    full = {
        "type": "object",
        "additionalProperties": False,
        "required": ["limit"],
        "properties": {**properties, "limit": limit},
    }
    return {"description": _describe(name, target), "anyOf": [limit, full]}


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
