"""Scalars against the core schema of YAML 1.2 (section 10.3.2), written out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from shrink.base.errors import Position, RecipeError
from shrink.base.yaml import loads, parse_scalar

SCALARS: list[tuple[str, Any]] = [
    *((text, None) for text in ("", "~", "null", "Null", "NULL")),
    *((text, True) for text in ("true", "True", "TRUE")),
    *((text, False) for text in ("false", "False", "FALSE")),
    *((text, text) for text in ("no", "on", "yes", "off", "Yes", "y", "tRUE", "nULL")),
    *(("0", 0), ("7", 7), ("-7", -7), ("+7", 7), ("007", 7), ("0x1F", 31), ("0o17", 15)),
    *(("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))),
    *((text, text) for text in ("1_000", "0b11", "0xG", "0o8", "-0x1", "1:30", "٣", "1 2")),
    *(("0.5", 0.5), (".5", 0.5), ("1.", 1.0), ("-.5", -0.5), ("+1.5", 1.5), ("1e-3", 1e-3)),
    *(("1E+3", 1000.0), ("1e3", 1000.0), ("1.5e-3", 0.0015), ("-1.e2", -100.0)),
    *((text, text) for text in ("1e", "e3", ".", "1.2.3", "1e1.5", "-", "+", "2GB", "1e-3s")),
    *((text, text) for text in ("nan", "inf", "NaN", "2024-01-01", "2024-01-01T00:00:00Z", "=")),
]


@pytest.mark.parametrize(("text", "expected"), SCALARS)
def test_loads_and_parse_scalar_follow_the_core_schema(text: str, expected: Any) -> None:
    in_recipe = expected if text == "-" else loads(f"a: {text}\n", "r.yaml").value["a"]
    for value in (in_recipe, parse_scalar(text)):
        assert value == expected
        assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "not a number") for text in (".nan", ".NaN", ".inf", "-.inf", "+.INF")),
        *((text, "too large") for text in ("1e999", "-1e400")),
        *((text, "64 bits") for text in ("9223372036854775808", "-9223372036854775809")),
        *((text, "64 bits") for text in ("0xFFFFFFFFFFFFFFFFFF", "9" * 10_000)),
    ],
)
def test_loads_refuses_numbers_that_no_recipe_can_use(text: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        loads(f"x: 1\na: {text}\n", "r.yaml")
    assert caught.value.position == Position("r.yaml", 2, 4)
    with pytest.raises(RecipeError, match=words):
        parse_scalar(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2]", [1, 2]),
        ("{width: 0.5}", {"width": 0.5}),
        ('"1"', "1"),
        ('""', ""),
        (" 5 ", 5),
        ("a: b", "a: b"),
        ("#1", "#1"),
        ("*.png", "*.png"),
        ("C:\\data", "C:\\data"),
        ("[]", []),
    ],
)
def test_parse_scalar_reads_flow_values_and_plain_text(text: str, expected: Any) -> None:
    assert parse_scalar(text) == expected


@pytest.mark.parametrize("text", ["[1", "{a: 1} x", '"a": 1', "[1]: 2", "a\0b", "'", "[!!x 1]"])
def test_parse_scalar_refuses_what_is_not_one_value(text: str) -> None:
    with pytest.raises(RecipeError):
        parse_scalar(text)
