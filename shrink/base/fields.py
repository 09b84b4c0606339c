"""The field types that recipes are made of: strict numbers, byte sizes with units, fractions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import (
    CoreSchema,
    PydanticCustomError,
    PydanticKnownError,
    core_schema,
)

UNIT_BYTES = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
_BYTES = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")


def parse_bytes(value: object) -> int:
    """Return a number of bytes from an integer or from text such as `2GB` or `64KiB`.

    Raises:
        ValueError: not a whole, positive number of bytes, or a unit that does not exist.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _BYTES.fullmatch(value.strip())):
        number, unit = match.groups()
        if unit not in UNIT_BYTES:
            near = {known.lower(): known for known in UNIT_BYTES}.get(unit.lower())
            hint = f" (did you mean {number}{near}?)" if near else ""
            raise ValueError(f"unknown unit {unit!r}; use one of {', '.join(UNIT_BYTES)}{hint}")
        size = round(float(number) * UNIT_BYTES[unit])
    else:
        raise ValueError("a size is a whole number of bytes or a number with a unit, such as 64KB")
    if size <= 0:
        raise ValueError("a size must be above 0")
    return size


def parse_memory(value: object) -> int:
    """Return the bytes of a memory limit, see `parse_bytes`; less than 1 MB is refused.

    Raises:
        ValueError: as `parse_bytes`, or too small.
    """
    size = parse_bytes(value)
    if size < UNIT_BYTES["MB"]:
        number = re.match(r"[\d.]+", str(value).strip())
        unit = "GB" if size < 100 else "MB"
        hint = f"; did you mean {number[0]}{unit}?" if number and size < 100_000 else ""
        raise ValueError(f"{size} bytes are too little: a memory limit is at least 1MB{hint}")
    return size


_QUOTIENT = re.compile(r"\s*(-?[\d.]+)\s*/\s*([\d.]+)\s*")


def parse_quotient(value: object) -> object:
    """Return the number that text such as `1/255` stands for; anything else as it is.

    Raises:
        ValueError: a division by zero, or by what is not a number.
    """
    found = _QUOTIENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    try:
        return float(found[1]) / float(found[2])
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{value!r} is not a number") from error


_SIZE_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "exclusiveMinimum": 0},
            {"type": "string", "pattern": r"^\d+(\.\d+)? ?(B|[KMGT]i?B)$"},
        ]
    }
)
Bytes = Annotated[int, BeforeValidator(parse_bytes), _SIZE_SCHEMA]
"""A size in bytes; written with a unit. KB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024."""

MemoryBytes = Annotated[int, BeforeValidator(parse_memory), _SIZE_SCHEMA]
"""A limit of memory, written likewise."""

Fraction = Annotated[float, Field(ge=0, le=1)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]


class NameIn:
    """Takes a name of a registry, also one that was added to it since; else says what there is.

    A type `Annotated[str, NameIn(names)]` reads like a `Literal` of all names, in errors too.

    Args:
        names: the registry, or its names.
        aliases: what else people write, and the name that it stands for.
    """

    def __init__(self, names: Collection[str], aliases: Mapping[str, str] | None = None) -> None:
        self.names = names
        self.aliases = aliases or {}

    def check(self, name: object) -> str:
        """Return a name that is known.

        Raises:
            PydanticKnownError: it is not, as pydantic says it of a `Literal`.
        """
        if isinstance(name, str):
            name = self.aliases.get(name, name)
            if name in self.names:
                return name
        *others, last = map(repr, self.names)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, object]:
        return {"enum": [*self.names, *self.aliases], "type": "string"}


@dataclass(frozen=True)
class SchemaOf:
    """Gives a field a JSON Schema that is built when it is asked for."""

    schema: Callable[[], dict[str, object]]

    def __get_pydantic_json_schema__(self, core: object, handler: object) -> dict[str, object]:
        return self.schema()


@dataclass(frozen=True)
class CalledAs:
    """The name of a field's flag and Python keyword, where it is not the field's own."""

    name: str


def named_fields(
    section: type[BaseModel], skip: Collection[str] = ()
) -> Iterator[tuple[str, tuple[str, ...], FieldInfo]]:
    """Yield name, keys and field of what a section and the sections within it hold.

    Names are those of flags and keywords: the field's own, whatever section it is in, or that of
    its `CalledAs`.
    """
    for key, field in section.model_fields.items():
        nested = field.annotation
        if key in skip:
            continue
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            yield from ((name, (key, *keys), one) for name, keys, one in named_fields(nested))
            continue
        called = next((one.name for one in field.metadata if isinstance(one, CalledAs)), key)
        yield called, (key,), field


IDLE = "idle"
"""The type of pydantic's complaint about a key that another makes idle."""


class Config(BaseModel):
    """A section of a recipe: immutable, strict, and closed to keys that it does not know.

    The docstring under a field is its description; see `describe_fields`.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        protected_namespaces=(),
        defer_build=True,
    )

    def idle_keys(self) -> Mapping[str, str]:
        """Return the keys that nothing reads beside these others, each with what it needs."""
        return {}

    @model_validator(mode="after")
    def _refuse_idle(self) -> Self:
        """Refuse what would be accepted and do nothing; a written default is harmless."""
        for key, needs in self.idle_keys().items():
            default = type(self).model_fields[key].get_default(call_default_factory=True)
            if getattr(self, key) != default:
                context = {"key": key, "needs": needs}
                raise PydanticCustomError(IDLE, "{key} does nothing: it needs {needs}", context)
        return self
