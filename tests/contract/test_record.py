"""Records are frozen dataclasses; what was read is written as it was read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from shrink.contract.codec import ContractError, as_read, from_plain, to_plain
from shrink.contract.record import record


@record
class _Point:
    x: float
    y: float = 0.0
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)


@record
class _Kept:
    name: str
    size: int | None = None
    document: Any = as_read()


@record
class _Foreign:
    rows: tuple[int, ...] = ()
    told: str | None = None
    document: Any = as_read(tolerant=True)


def test_record_is_a_frozen_dataclass_of_named_fields() -> None:
    point = _Point(x=1, names={"a": "b"})
    assert [field.name for field in dataclasses.fields(_Point)] == ["x", "y", "names"]
    assert dataclasses.replace(point, y=2.0) == _Point(x=1, y=2.0, names={"a": "b"})
    assert point != _Point(x=2)
    assert repr(_Point(x=1)) == "_Point(x=1, y=0.0, names={})"
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x


def test_record_names_what_is_missing_and_what_it_has_not() -> None:
    with pytest.raises(TypeError, match="_Point needs x"):
        _Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="_Point has no z"):
        _Point(x=1, z=2)  # type: ignore[call-arg]


def test_what_was_read_is_written_as_it_was_read() -> None:
    plain = {"later": [1], "name": "n"}
    read = from_plain(_Kept, plain)
    assert (read.name, read.size) == ("n", None)
    assert list(to_plain(read).items()) == list(plain.items())


def test_what_is_made_of_it_is_written_by_its_fields() -> None:
    read = from_plain(_Kept, {"name": "n", "later": 1})
    assert to_plain(dataclasses.replace(read, size=3)) == {"name": "n", "size": 3}
    assert to_plain(_Kept(name="n")) == {"name": "n", "size": None}


def test_a_tolerant_object_takes_a_wrong_value_for_a_missing_one_and_keeps_it() -> None:
    plain = {"rows": [1, "two"], "told": "yes"}
    read = from_plain(_Foreign, plain)
    assert (read.rows, read.told) == ((), "yes")
    assert to_plain(read) == plain
    with pytest.raises(ContractError, match="an object is wanted"):
        from_plain(_Foreign, [])
    with pytest.raises(ContractError, match="size: a whole number or null is wanted"):
        from_plain(_Kept, {"name": "n", "size": "3"})
