"""Frozen dataclasses that are cheap to define.

`dataclass(frozen=True)` compiles six methods for each class, 0.7 ms on two cores: the thirty of a
report would take longer than all that `shrink diff` does with them. These share their methods.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar, cast, dataclass_transform

if TYPE_CHECKING:
    from shrink.base.foreign import Record

T = TypeVar("T")


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def record(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields are given by name.

    Fields, defaults, `dataclasses.fields` and `dataclasses.replace` are as of any other.
    """
    for method in (__init__, __setattr__, __delattr__, __eq__, __repr__):
        setattr(kind, method.__name__, method)
    return dataclasses.dataclass(init=False, repr=False, eq=False)(kind)


def as_base(value: object, kind: type[T]) -> T:
    """Return the part of a record that a class which it inherits from has."""
    names = (one.name for one in dataclasses.fields(cast("Any", kind)))
    return kind(**{name: getattr(value, name) for name in names})


def __init__(self: Record, **arguments: object) -> None:
    values = {}
    for one in dataclasses.fields(self):
        if one.name in arguments:
            values[one.name] = arguments.pop(one.name)
        elif one.default is not dataclasses.MISSING:
            values[one.name] = one.default
        elif one.default_factory is not dataclasses.MISSING:
            values[one.name] = one.default_factory()
        else:
            raise TypeError(f"{type(self).__name__} needs {one.name}")
    if arguments:
        raise TypeError(f"{type(self).__name__} has no {', '.join(arguments)}")
    self.__dict__.update(values)


def __setattr__(self: Record, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Record, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def __eq__(self: Record, other: object) -> bool:
    return vars(self) == vars(other) if type(self) is type(other) else NotImplemented


def __repr__(self: Record) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
    return f"{type(self).__name__}({fields})"
