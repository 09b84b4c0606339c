"""Frozen dataclasses to JSON and back.

The types are read from the annotations: None, bool, int, float, str, `Path`, `Note`, `Literal`,
`X | Y`, `tuple`, `list`, `dict` and `Mapping` with keys of text, other dataclasses, and `Any` for
what is foreign. A dataclass is an object with a key for each field, in the order of the fields.

    @dataclass(frozen=True)
    class Example:
        name: str
        note: str | None = left_out(None)    # no key where it is None
        others: Mapping[str, Any] = unknown_keys()
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, Union, cast

from shrink.base.foreign import Json, JsonObject
from shrink.base.measurement import Note

T = TypeVar("T")
TypeForm: TypeAlias = Any
"""What an annotation may say: a class, a union, a generic alias. Python has no type for it."""
_LEFT_OUT, _UNKNOWN = "left_out", "unknown"
_SCALARS: dict[object, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}

_TEXTS: Mapping[object, Callable[[str], object]] = {Path: Path, Note: Note.read}


class ContractError(ValueError):
    """Data is not what a type says.

    Args:
        problem: what is wrong.
        path: of the value, as in `inputs.model.path` or `probed[2]`; empty for all of it.
    """

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.problem = problem
        self.path = path

    def below(self, key: str) -> ContractError:
        """Return the same error, seen from what holds the value at `key`."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return ContractError(self.problem, f"{key}{joint}{self.path}")


def left_out(default: T) -> T:
    """Return a field that has no key where its value is this default."""
    return dataclasses.field(default=default, metadata={_LEFT_OUT: True})


def unknown_keys() -> Any:
    """Return a field for keys that the type does not know: they are written as they were read."""
    return dataclasses.field(default_factory=dict, metadata={_UNKNOWN: True})


def to_plain(value: object) -> Json:
    """Return what `value` is as JSON: dicts, lists, text, numbers, booleans and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = JsonObject()
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if _UNKNOWN in field.metadata:
                plain |= to_plain(item)
            elif not (_LEFT_OUT in field.metadata and item == field.default):
                plain[field.name] = to_plain(item)
        return plain
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, Path | Note) else value


def from_plain(kind: type[T], plain: Json) -> T:
    """Return a `kind` from JSON's data; keys that it does not know are left out.

    Args:
        kind: a dataclass, or any other type that a field may have.
        plain: as `to_plain` gives it and `json.loads` reads it.

    Raises:
        ContractError: it is not that; the error says where.
    """
    return cast("T", _reader(cast("TypeForm", kind))(plain))


_Reader = Callable[[Json], object]


@functools.cache
def _fields(kind: TypeForm) -> dict[str, tuple[TypeForm, dataclasses.Field[Any]]]:
    """Return the fields of a dataclass by name, with what their annotations say."""
    kinds = typing.get_type_hints(kind)
    return {one.name: (kinds[one.name], one) for one in dataclasses.fields(kind)}


@functools.cache
def _reader(kind: TypeForm) -> _Reader:
    """Return what reads a value of this type."""
    origin: object = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if kind in (Any, object):
        return lambda plain: plain
    if kind in _SCALARS:
        return functools.partial(_read_scalar, kind)
    if kind in _TEXTS:
        return lambda plain: _TEXTS[kind](_read_scalar(str, plain))
    if origin is Literal:
        return functools.partial(_read_choice, arguments)
    if origin in (Union, types.UnionType):
        return functools.partial(_read_union, kind)
    if origin is tuple and arguments[1:] != (...,):
        return functools.partial(_read_row, arguments)
    if origin in (tuple, list):
        return functools.partial(_read_list, tuple if origin is tuple else list, arguments[0])
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments[0] is str:
        return functools.partial(_read_mapping, arguments[1])
    if dataclasses.is_dataclass(kind):
        return functools.partial(_read_fields, kind)
    raise TypeError(f"no JSON is defined for {kind}")


def _read_scalar(kind: type[T], plain: Json) -> T:
    widened = (kind is float and type(plain) is int) or (kind is str and isinstance(plain, str))
    if not (type(plain) is kind or widened):
        raise _not(_SCALARS[kind], plain)
    return plain


def _read_choice(choices: tuple[object, ...], plain: Json) -> object:
    for choice in choices:
        if type(plain) is type(choice) and plain == choice:
            return choice
    raise _not("one of " + ", ".join(map(repr, choices)), plain)


def _read_union(kind: TypeForm, plain: Json) -> object:
    """Read a value as the first alternative that it is."""
    alternatives, problems = typing.get_args(kind), []
    if plain is None and type(None) in alternatives:
        return None
    for alternative in alternatives:
        try:
            return _reader(alternative)(plain)
        except ContractError as error:
            problems.append(error)
    # What is wrong inside of the one alternative that comes near says more than all of them.
    inner = [error for error in problems if error.path or error.problem.startswith("key ")]
    if len(inner) == 1:
        raise inner[0]
    wanted = (one.problem.removeprefix("expected ").partition(", not ")[0] for one in problems)
    raise _not(" or ".join(dict.fromkeys(wanted)), plain)


def _read_row(kinds: tuple[TypeForm, ...], plain: Json) -> tuple[object, ...]:
    if not isinstance(plain, list | tuple) or len(plain) != len(kinds):
        raise _not(f"a list of {len(kinds)}", plain)
    return tuple(
        _inner(_reader(kind), item, f"[{index}]")
        for index, (kind, item) in enumerate(zip(kinds, plain, strict=True))
    )


def _read_list(container: type, kind: TypeForm, plain: Json) -> object:
    if not isinstance(plain, list | tuple):
        raise _not("a list", plain)
    read = _reader(kind)
    return container(_inner(read, item, f"[{index}]") for index, item in enumerate(plain))


def _read_mapping(kind: TypeForm, plain: Json) -> dict[str, object]:
    read = _reader(kind)
    return {key: _inner(read, item, key) for key, item in _object(plain).items()}


def _read_fields(kind: TypeForm, plain: Json) -> object:
    values, left, unknown = {}, dict(_object(plain)), None
    for name, (annotation, field) in _fields(kind).items():
        if _UNKNOWN in field.metadata:
            unknown = name
        elif name in left:
            values[name] = _inner(_reader(annotation), left.pop(name), name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ContractError(f"key {name!r} is missing")
    if unknown is not None:
        values[unknown] = left
    return kind(**values)


def _inner(read: _Reader, plain: Json, key: str) -> object:
    try:
        return read(plain)
    except ContractError as error:
        raise error.below(key) from None


def _object(plain: Json) -> Mapping[str, Json]:
    if not isinstance(plain, Mapping) or not all(isinstance(key, str) for key in plain):
        raise _not("an object", plain)
    return plain


def _not(wanted: str, plain: Json) -> ContractError:
    text = repr(plain)
    shown = text if len(text) <= 60 else text[:57] + "..."
    return ContractError(f"expected {wanted}, not {shown}")
