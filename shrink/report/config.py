"""The `gates` section of a recipe: limits that the result must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from shrink.base.errors import did_you_mean, hint_for
from shrink.base.fields import UNIT_BYTES, Config, parse_bytes
from shrink.base.figures import (
    LOSS,
    TARGETS,
    WORST_SLICE,
    Kind,
    Target,
    target_of,
    target_patterns,
)
from shrink.base.foreign import Json, JsonObject
from shrink.base.metrics import METRICS, metric_of
from shrink.base.removal import replacement
from shrink.base.user_metric import key_of_entry

_DIFFERENCES: tuple[Kind, ...] = ("drop", "rise", "slice")


class Gate(Config):
    """One limit; the point value decides unless a confidence is given.

    A `ratio` is a share of what the figure is compared with. Alone, that is the baseline of the
    same run: `ratio: 0.5` allows at most half of its bytes, and for an accuracy at least half.

    With `against`, the limit is not on the figure but on how much worse it is than in a saved
    report: higher for sizes, memory, times and losses, lower for accuracies. Two runs share no
    scores, so only point values are compared.
    """

    limit: int | float = 0
    """The most that is allowed; for accuracies themselves, the least. With `against`, the most
    that the figure may be worse than there, in its own unit; 0 by default."""
    against: Annotated[str, Field(min_length=1)] | None = None
    """A saved `report.json`, or the folder of a finished run; relative to the recipe."""
    missing: Literal["pass", "fail"] | None = None
    """With `against`: what becomes of the gate while there is nothing saved to compare with, as on
    a first run; `fail` by default, which ends the command before anything is computed."""
    ratio: Annotated[float, Field(gt=0)] | None = None
    """In place of a limit: the most that the figure may be as a share of the baseline's, such as
    0.5; with `against`, the most that it may be worse, as a share of the saved value."""
    stage: str | None = None
    """The stage to look at, in place of the final stage of each branch."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] | None = None
    """Drops and rises: counts only when the whole interval at this confidence is beyond."""
    level: Literal["fail", "warn"] = "fail"
    """warn: a miss is reported, and the run still passes."""
    by: Annotated[str, Field(min_length=1)] | None = None
    """Of worst_slice_drop: the slicing to look at, `class` or a name of `data.slices`; by default
    all whose metric has the main metric's unit and direction."""


def parse_gates(value: Mapping[str, Json]) -> dict[str, Gate]:
    """Return the gates of a recipe's section, `NAME: LIMIT` or `NAME: {limit: LIMIT, ...}`.

    Raises:
        ValueError: an unknown name or key, a wrong unit, a limit that no result can have.
    """
    if not isinstance(value, Mapping):
        raise ValueError("gates is a mapping of names to limits")
    return {name: _parse_gate(name, settings) for name, settings in value.items()}


@dataclass(frozen=True)
class Unmeasured:
    """Why no stage will have the metric of a gate, and what to do about it."""

    reason: str
    hint: str


def why_unmeasured(gate: str, metrics: Sequence[str] | None) -> Unmeasured | None:
    """Return why the metric of a gate would be null in every stage, None if it may be measured.

    Args:
        gate: its name.
        metrics: entries of the recipe; None where they follow from model and data.
    """
    target = target_of(gate)
    if target is None or target.kind == "slice":
        return None
    if target.figure.group != "metrics" or target.figure.name == LOSS:
        return None
    name = target.figure.name
    keys = [key_of_entry(entry) for entry in metrics or ()]
    if name in keys:
        return None
    if metric_of(name) is None:
        if name in METRICS:
            return Unmeasured(
                f"{name} needs arguments", f"gates name them, too, such as {name}_0.05_1"
            )
        near = did_you_mean(name, (*keys, *METRICS))
        hint = f"did you mean {near}?" if near else hint_for(name, keys)
        return Unmeasured(f"there is no metric {name!r}", hint)
    if metrics is None:
        return None
    near = did_you_mean(name, keys)
    hint = (f"did you mean {near}? Else " if near else "") + f"add {name} to task.metrics"
    return Unmeasured(f"task.metrics has no {name}, so that no stage has it", hint)


def gates_json_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of the section, with every legal name.

    What a gate may be depends on its kind and unit alone: that stands in `$defs`, once.
    """
    definitions: JsonObject = {}

    def reference(target: Target) -> JsonObject:
        signed = "Signed" if target.figure.can_be_negative and target.kind == "figure" else ""
        unit = target.figure.unit.title().replace("_", "")
        title = f"Gate{target.kind.title()}{unit}{signed}"
        definitions.setdefault(title, _gate_schema(target))
        return {"$ref": f"#/$defs/{title}"}

    patterns = {pattern: reference(target) for pattern, target in target_patterns().items()}
    return {
        "description": "Limits that the result must keep; a missed one is exit code 1.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {"description": _describe(name, target), **reference(target)}
            for name, target in TARGETS.items()
        },
        "patternProperties": patterns,
        "$defs": definitions,
    }


def _parse_gate(name: Json, value: Json) -> Gate:
    target = target_of(name) if isinstance(name, str) else None
    if not isinstance(name, str) or target is None:
        if instead := replacement(f"gates.{name}"):
            raise ValueError(f"the gate {name!r} was removed: {instead}")
        raise ValueError(f"unknown gate {name!r}; {hint_for(str(name), TARGETS)}")
    if isinstance(value, Gate):
        value = value.model_dump()
    settings = dict(value) if isinstance(value, Mapping) else {"limit": value}
    compared = settings.get("against") is not None
    _check_keys(name, target, settings)
    relative = compared or settings.get("ratio") is not None
    if not relative or settings.setdefault("limit", 0) != 0:
        settings["limit"] = _parse_limit(name, target, settings["limit"], compared)
    if settings.get("by") is not None and target.kind != "slice":
        raise ValueError(f"{name}: the key 'by' goes with {WORST_SLICE}")
    if settings.get("confidence") is not None and target.kind not in _DIFFERENCES:
        raise ValueError(f"{name}: a confidence goes with a drop or a rise, such as accuracy_drop")
    try:
        return Gate.model_validate(settings)
    except ValidationError as error:
        texts = []
        for detail in error.errors(include_url=False):
            key = str(detail["loc"][0]) if detail["loc"] else ""
            if detail["type"] == "extra_forbidden":
                texts.append(f"{name}: unknown key {key!r}; {hint_for(key, Gate.model_fields)}")
            else:
                text = detail["msg"].removeprefix("Input should be ")
                texts.append(f"{name}.{key}: must be {text}, not {detail['input']!r}")
        raise ValueError("; ".join(texts)) from error


def _check_keys(name: str, target: Target, settings: Mapping[str, Json]) -> None:
    """Refuse keys that do not go together; what they hold is looked at later."""
    compared, ratio = settings.get("against") is not None, settings.get("ratio")
    if not compared and ratio is None and "limit" not in settings:
        raise ValueError(f"{name}: the key 'limit' is missing")
    if ratio is not None and settings.get("limit"):
        raise ValueError(f"{name}: give a limit or a ratio, not both")
    if target.kind == "slice" and compared:
        raise ValueError(
            f"{name}: against was removed for slices; leave it out to compare with the baseline, "
            "or use accuracy_drop with against"
        )
    if target.kind == "slice" and ratio is not None:
        raise ValueError(f"{name}: takes a limit, in the metric's own unit, and no ratio")
    if not compared and ratio is not None:
        # Refuse a share of the baseline's figure where it has none, or of nothing.
        if target.kind in ("drop", "rise"):
            raise ValueError(
                f"{name}: is a difference to the baseline already, so it takes a limit; "
                f"a ratio goes with {target.figure.name}"
            )
        if target.kind == "duration":
            raise ValueError(f"{name}: takes a limit; a ratio of it goes with against only")
    if not compared and settings.get("missing") is not None:
        raise ValueError(f"{name}: missing goes with against, the report that may not be there")
    if compared and settings.get("confidence") is not None:
        raise ValueError(f"{name}: a confidence does not go with against: two runs share no scores")


def _parse_limit(name: str, target: Target, limit: Json, compared: bool) -> int | float:
    unit = target.figure.unit
    if unit in ("bytes", "count") and isinstance(limit, float) and 0 < limit < 1:
        raise ValueError(f"{name}: {_meant_as_share(name, limit, unit, compared)}")
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
    own = target.kind in ("figure", "duration") and not target.figure.can_be_negative
    if (compared or own) and limit < 0:
        raise ValueError(f"{name}: the limit must not be below 0")
    return limit


def _meant_as_share(name: str, limit: float, unit: str, compared: bool) -> str:
    what = "bytes" if unit == "bytes" else "a count"
    of = "the saved value" if compared else "the baseline's"
    return f"the limit is {what}, not a share; for {limit:g} of {of} write {{ratio: {limit:g}}}"


def _not_a_number(limit: Json, unit: str) -> str:
    what = {
        "fraction": "a fraction such as 0.02",
        "count": "a plain number",
        "ms": "a plain number, of milliseconds",
        "s": "a plain number, of seconds",
    }.get(unit, "a plain number")
    if isinstance(limit, str) and limit.strip()[:1].isdigit():
        return f"wrong unit: the limit must be {what}, not {limit!r}"
    return f"the limit must be {what}, not {limit!r}"


def _gate_schema(target: Target) -> JsonObject:
    """Return what a gate may be: a limit, or the keys that its kind has."""
    limit = _limit_schema(target)
    keys: JsonObject = {**Gate.model_json_schema()["properties"], "limit": limit}
    needs = {"missing": ["against"]}
    unknown = ["by"] if target.kind != "slice" else ["against", "missing", "ratio"]
    if target.kind not in _DIFFERENCES:
        unknown.append("confidence")
    if target.kind not in ("figure", "slice"):
        needs["ratio"] = ["against"]  # a share of the baseline's own means nothing there
    properties = {name: key for name, key in keys.items() if name not in unknown}
    one_of = [{"required": [name]} for name in ("limit", "ratio", "against") if name in properties]
    mapping = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "dependentRequired": {key: rest for key, rest in needs.items() if key in properties},
        "anyOf": one_of,
    }
    return {"anyOf": [limit, mapping]}


_ZERO = {"const": 0}


def _limit_schema(target: Target) -> JsonObject:
    unit = target.figure.unit
    if unit == "bytes":
        units = "|".join(UNIT_BYTES)
        return {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": rf"^\d+(\.\d+)? ?({units})$"},
            ]
        }
    own = target.kind in ("figure", "duration") and not target.figure.can_be_negative
    lowest = 0 if own else -1
    if unit == "fraction":
        return {"type": "number", "minimum": lowest, "maximum": 1}
    if unit == "count":
        return {"anyOf": [_ZERO, {"type": "number", "minimum": 1}]}
    return {"type": "number", "minimum": 0} if lowest == 0 else {"type": "number"}


def _describe(name: str, target: Target) -> str:
    figure = target.figure.name
    if target.kind == "drop":
        way = "fall below" if target.figure.larger_is_better else "rise above"
        return f"The most that {figure} may {way} the baseline."
    if target.kind == "rise":
        return f"The most that {figure} may rise above the baseline."
    if target.kind == "slice":
        return "The most that the main metric may be worse in any slice of the test examples."
    bound = "least" if target.is_minimum else "most"
    what = "the run's duration in seconds" if target.kind == "duration" else name
    return f"The {bound} that {what} may be."
