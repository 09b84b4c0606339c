"""Arguments of losses and metrics: allowed values, for checks, errors and the JSON Schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shrink.base.errors import hint_for
from shrink.base.foreign import JsonObject

Value: TypeAlias = float | bool | str | tuple[float, ...] | None
_SCHEMAS: Mapping[str, JsonObject] = {
    "flag": {"type": "boolean"},
    "class": {"type": ["string", "integer"]},
    "whole": {"type": "integer"},
}
_WORDS = {
    "flag": "true or false",
    "class": "a class's name or number",
    "whole": "a whole number",
    "numbers": "a number or a list of numbers",
}


@dataclass(frozen=True)
class Argument:
    """An argument of a loss or a metric.

    Attributes:
        name: the key in a recipe's mapping, as in tf-keras.
        default: where it is left out; None for none.
        form: a number, or what else it is.
        low, high: the bounds of a number.
        is_open: whether a number cannot be a bound itself.
        choices: the texts that it can be.
        needed: whether it has to be given.
    """

    name: str
    default: float | bool | None = None
    form: Literal["number", "whole", "flag", "numbers", "class"] = "number"
    low: float = 0.0
    high: float = math.inf
    is_open: bool = False
    choices: tuple[str, ...] = ()
    needed: bool = False

    def checked(self, owner: str, value: object) -> Value:
        """Return a value that the argument of `owner` can have.

        Raises:
            ValueError: it cannot have this one.
        """
        if self.form == "whole" and isinstance(value, float) and value.is_integer():
            value = int(value)
        values = [value]
        if self.form == "numbers" and isinstance(value, list | tuple) and value:
            values, value = list(value), tuple(value)
        if not all(map(self._takes, values)):
            words = " or ".join(self.choices) or _WORDS.get(self.form, "a number")
            limits = [(self.low, "above" if self.is_open else "of at least")]
            limits += [(self.high, "below" if self.is_open else "of at most")]
            bounds = [f" {word} {end:g}" for end, word in limits if math.isfinite(end)]
            if len(bounds) == 2 and not self.is_open:
                bounds = [f" from {self.low:g} to {self.high:g}"]
            bounds = [] if self.choices or self.form in ("flag", "class") else bounds
            must = f"{words}{' and'.join(bounds)}"
            raise ValueError(f"{owner}.{self.name}: must be {must}, not {value!r}")
        return value  # type: ignore[return-value]  # one of the types that are taken

    def _takes(self, value: object) -> bool:
        if self.choices:
            return value in self.choices
        if isinstance(value, bool) or self.form == "flag":
            return isinstance(value, bool) and self.form == "flag"
        if self.form == "class":
            return isinstance(value, str | int) and value != ""
        if not isinstance(value, int if self.form == "whole" else int | float):
            return False
        is_inside = self.low < value < self.high if self.is_open else self.low <= value <= self.high
        return is_inside and math.isfinite(value)

    def json_schema(self) -> JsonObject:
        """Return the JSON Schema of its values."""
        if self.choices:
            return {"enum": list(self.choices)}
        schema: JsonObject = {"type": "number"} | _SCHEMAS.get(self.form, {})
        if self.form in ("flag", "class"):
            return schema
        minimum, maximum = "minimum", "maximum"
        if self.is_open:
            minimum, maximum = "exclusiveMinimum", "exclusiveMaximum"
        schema |= {minimum: self.low} if math.isfinite(self.low) else {}
        schema |= {maximum: self.high} if math.isfinite(self.high) else {}
        if self.form != "numbers":
            return schema
        return {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]}


def check_known(owner: str, given: Mapping[str, object], known: Mapping[str, object]) -> None:
    """Raise `ValueError` where a mapping has an argument that `owner` does not take."""
    for key in given:
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no arguments"
            near = hint_for(key, known) if known else ""
            near = f"; {near}" if near.startswith("did you mean") else ""
            raise ValueError(f"{owner}: unknown argument {key!r}; {takes}{near}")


FUNCTION_SCHEMA: JsonObject = {"type": "string", "pattern": r"\.py:[A-Za-z_]\w*(\(.*\))?$"}
"""Of a user's function with its arguments."""


def mapping_schema(properties: JsonObject) -> JsonObject:
    """Return the JSON Schema of a mapping with a name and these arguments."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": properties,
    }
