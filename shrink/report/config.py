"""The `gates` section of a recipe: limits that the result must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from shrink.base.errors import did_you_mean, hint_for
from shrink.base.fields import UNIT_BYTES, Config, parse_bytes
from shrink.base.figures import (
    LOSS,
    TARGETS,
    WORST_SLICE,
    Target,
    TargetKind,
    target_of,
)
from shrink.base.foreign import Json, JsonObject
from shrink.base.metrics import FUNCTION_ENDINGS, METRICS, metric_of
from shrink.base.removal import replacement
from shrink.base.user_metric import key_of_entry

DIFFERENCES: tuple[TargetKind, ...] = ("drop", "rise", "slice")


class Gate(Config):
    """One limit; the point value decides unless a confidence is given.

    A `ratio` is a share of what the figure is compared with. Alone, that is the baseline of the
    same run: `ratio: 0.5` allows at most half of its bytes, and for an accuracy at least half.

    With `against`, the limit is not on the figure but on how much worse it is than in a saved
    report: higher for sizes, memory, times and losses, lower for accuracies. Two runs share no
    scores, so only point values are compared.
    """

    limit: int | float = 0
    """The largest value allowed; for metrics where higher is better, the smallest. With
    `against`: how much worse than the saved value it may be, in its own unit; 0 by default."""
    against: Annotated[str, Field(min_length=1)] | None = None
    """A saved `report.json`, or the folder of a finished run; relative to the recipe."""
    missing: Literal["pass", "fail"] | None = None
    """With `against`, if there is nothing saved to compare with, as on a first run; fail
    (default): end the command before anything is computed; pass: skip the gate."""
    ratio: Annotated[float, Field(gt=0)] | None = None
    """Instead of a limit: the largest value allowed, as a share of the baseline's, such as 0.5;
    with `against`, how much worse it may be, as a share of the saved value."""
    stage: str | None = None
    """The stage whose figure is limited; by default the last stage of each branch."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] | None = None
    """Drops and rises: the gate is missed only if the whole interval at this confidence is
    beyond the limit."""
    level: Literal["fail", "warn"] = "fail"
    """warn: a miss is reported, and the run still passes."""
    by: Annotated[str, Field(min_length=1)] | None = None
    """worst_slice_drop: the slicing to check, `class` or a name of `data.slices`; by default
    all whose metric has the main metric's unit and direction."""


def parse_gates(value: Mapping[str, Json]) -> dict[str, Gate]:
    """Return the gates of a recipe's section, `NAME: LIMIT` or `NAME: {limit: LIMIT, ...}`.

    Raises:
        ValueError: an unknown name, a wrong unit, a limit that no result can have; pydantic's
            `ValidationError` for an unknown key or a value of the wrong type.
    """
    if not isinstance(value, Mapping):
        raise ValueError("gates is a mapping of names to limits")
    return {name: _parse_gate(name, settings) for name, settings in value.items()}


def why_unmeasured(gate: str, metrics: Sequence[str] | None) -> tuple[str, str] | None:
    """Return why no stage has the metric of a gate, and a hint; None if it may be measured.

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
            return f"{name} needs arguments", f"gates name them, too, such as {_example(name)}"
        near = did_you_mean(name, (*keys, *METRICS))
        hint = f"did you mean {near}?" if near else hint_for(name, keys)
        return f"there is no metric {name!r}", hint
    if metrics is None:
        return None
    near = did_you_mean(name, keys)
    hint = (f"did you mean {near}? Else " if near else "") + f"add {name} to task.metrics"
    return f"task.metrics has no {name}, so that no stage has it", hint


def _example(name: str) -> str:
    """Return a key of a metric that needs arguments, such as false_accepts_per_hour_0.05_1."""
    texts = [name]
    for one in METRICS[name].parameters:
        if one.form == "class":
            texts += ["good"] if one.needed else []
        else:
            texts.append(str(one.default or (0.05 if one.high == 1 else 1)))
    return "_".join(texts)


def gates_json_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of the section, with every legal name.

    Units, and keys that do not go together, are for the reader of recipes alone.
    """
    size = {"type": "string", "pattern": rf"^\d+(\.\d+)? ?({'|'.join(UNIT_BYTES)})$"}
    keys: JsonObject = Gate.model_json_schema()["properties"]
    keys["limit"] |= {"anyOf": [{"type": "number"}, size]}
    mapping = {
        "type": "object",
        "additionalProperties": False,
        "properties": keys,
        "anyOf": [{"required": [name]} for name in ("limit", "ratio", "against")],
    }
    reference = {"$ref": "#/$defs/GateLimit"}
    takes = "|".join(name for name, info in METRICS.items() if info.parameters)
    endings = "|".join(FUNCTION_ENDINGS)
    return {
        "description": "Limits that the result must keep; a missed one is exit code 1.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {"description": _describe(name, target), **reference}
            for name, target in TARGETS.items()
        },
        "patternProperties": {
            rf"^({takes})_.+$": reference,
            rf"^[a-z0-9_]+({endings})(_drop|_rise)?$": reference,
        },
        "$defs": {"GateLimit": {"anyOf": [{"type": "number"}, size, mapping]}},
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
    if settings.get("confidence") is not None and target.kind not in DIFFERENCES:
        raise ValueError(f"{name}: a confidence goes with a drop or a rise, such as accuracy_drop")
    return Gate.model_validate(settings)


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
