"""Dataclasses become JSON and come back; what is not theirs is refused by its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from shrink.contract.codec import (
    ContractError,
    from_plain,
    left_out,
    to_plain,
    unknown_keys,
)


@dataclass(frozen=True)
class _Part:
    share: float
    kind: Literal["a", "b", 3] = "a"


@dataclass(frozen=True)
class _Whole:
    name: str
    path: Path
    parts: Mapping[str, _Part]
    pairs: tuple[tuple[int, float], ...] = ()
    part: _Part | None = None
    flag: bool | int | None = None
    note: str | None = left_out(None)
    from_: str = "here"
    by_name: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Open:
    name: str
    others: Mapping[str, Any] = unknown_keys()


WHOLE = _Whole(
    "ü", Path("/a b"), {"x": _Part(1, 3)}, ((1, 0.5),), _Part(2.5), True, None, "x", {"k": [1]}
)
PLAIN = {
    "name": "ü",
    "path": "/a b",
    "parts": {"x": {"share": 1, "kind": 3}},
    "pairs": [[1, 0.5]],
    "part": {"share": 2.5, "kind": "a"},
    "flag": True,
    "from_": "x",
    "by_name": {"k": [1]},
}


def test_to_plain_keeps_the_order_of_the_fields_and_the_numbers() -> None:
    assert json.dumps(to_plain(WHOLE)) == json.dumps(PLAIN)


def test_from_plain_gives_the_same_objects_back() -> None:
    assert from_plain(_Whole, json.loads(json.dumps(PLAIN))) == WHOLE
    assert isinstance(from_plain(_Whole, PLAIN).path, Path)


def test_from_plain_takes_the_defaults_of_missing_keys() -> None:
    read = from_plain(_Whole, {"name": "n", "path": "p", "parts": {}})
    assert read == _Whole("n", Path("p"), {})
    assert to_plain(read)["part"] is None
    assert "note" not in to_plain(read)


def test_unknown_keys_are_kept_where_a_field_holds_them_and_else_left_out() -> None:
    plain = {"name": "n", "new": [1], "later": {"a": None}}
    assert to_plain(from_plain(_Open, plain)) == plain
    assert from_plain(_Part, {"share": 1, "y": 2}) == _Part(1)
    nested = {"name": "n", "path": "p", "parts": {"x": {"share": 1, "y": 2}}, "z": 1}
    assert from_plain(_Whole, nested).parts == {"x": _Part(1)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 1}, "name: expected a text, not 1"),
        ({"path": None}, "path: expected a text, not None"),
        ({"flag": 1.5}, "flag: expected true or false or a whole number or null, not 1.5"),
        ({"parts": []}, "parts: expected an object, not []"),
        ({"parts": {"x": {}}}, "parts.x: key 'share' is missing"),
        ({"parts": {"x": {"share": True}}}, "parts.x.share: expected a number, not True"),
        (
            {"parts": {"x": {"share": 1, "kind": 1}}},
            "parts.x.kind: expected one of 'a', 'b', 3, not 1",
        ),
        ({"pairs": [[1, 2], [1]]}, "pairs[1]: expected a list of 2, not [1]"),
        ({"pairs": [[1, "2"]]}, "pairs[0][1]: expected a number, not '2'"),
        ({"part": {"share": "1"}}, "part.share: expected a number, not '1'"),
        ({"part": {}}, "part: key 'share' is missing"),
        ({"part": 3}, "part: expected an object or null, not 3"),
        ({"by_name": {"k": 1}}, "by_name.k: expected a list, not 1"),
    ],
)
def test_from_plain_names_the_place_of_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError) as caught:
        from_plain(_Whole, {**PLAIN, **change})
    assert str(caught.value) == message


def test_a_type_without_json_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="no JSON is defined"):
        from_plain(set, [])
