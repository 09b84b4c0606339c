from __future__ import annotations

import codecs
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import Position, RecipeError
from shrink.base.yaml import MAX_DEPTH, load, loads, parse_scalar
from tests.recipe.text import RECIPE


def refusal(text: str) -> RecipeError:
    """Return the error that reading `text` raises."""
    with pytest.raises(RecipeError) as caught:
        loads(text, "r.yaml")
    return caught.value


def at(line: int, column: int) -> Position:
    return Position("r.yaml", line, column)


# --- Values and positions


def test_loads_returns_the_plain_value_of_a_recipe() -> None:
    value = loads(RECIPE, "r.yaml").value
    assert value["training"] == {
        "global_batch_size": 256,
        "optimizer": {"name": "adam", "learning_rate": 0.001},
        "memory_limit": "2GB",
    }
    assert value["stages"][2] == {
        "prune": {"method": "channels", "exclude": ["conv_*", "dense"], "epochs": 5}
    }


def test_loads_knows_where_everything_stands_in_a_nested_recipe() -> None:
    text = "a: 1\nbé: 😀\nlist:\n  - x: {y: 'z', w: [7, 8]}\n  -   v\n"
    document = loads(text, "r.yaml")
    assert document.positions == {
        (): at(1, 1),
        ("a",): at(1, 4),
        ("bé",): at(2, 5),
        ("list",): at(4, 3),
        ("list", 0): at(4, 5),
        ("list", 0, "x"): at(4, 8),
        ("list", 0, "x", "y"): at(4, 12),
        ("list", 0, "x", "w"): at(4, 20),
        ("list", 0, "x", "w", 0): at(4, 21),
        ("list", 0, "x", "w", 1): at(4, 24),
        ("list", 1): at(5, 7),
    }
    assert document.key_positions == {
        ("a",): at(1, 1),
        ("bé",): at(2, 1),
        ("list",): at(3, 1),
        ("list", 0, "x"): at(4, 5),
        ("list", 0, "x", "y"): at(4, 9),
        ("list", 0, "x", "w"): at(4, 17),
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("a", "b"), at(2, 3)),
        (("a", "c", 1), at(3, 10)),
        (("a", "b", "missing", 3), at(2, 3)),
        (("a", "c", 9), at(3, 3)),
        (("missing",), at(1, 1)),
        ((), at(1, 1)),
    ],
)
def test_position_is_the_keys_then_the_values_then_the_ancestors(
    path: tuple[str | int, ...], expected: Position
) -> None:
    assert loads("a:\n  b: 1\n  c: [1, 2]\n", "r.yaml").position(path) == expected


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_loads_counts_lines_whatever_ends_them(newline: str) -> None:
    document = loads(newline.join(["# comment", "a:", "  b: 1", ""]), "r.yaml")
    assert document.position(("a", "b")) == at(3, 3)


def test_loads_expands_an_alias_and_places_it_where_it_is_written() -> None:
    document = loads("a: &x {k: 1}\nb: *x\n", "r.yaml")
    assert document.value == {"a": {"k": 1}, "b": {"k": 1}}
    assert document.positions[("b",)] == at(2, 4)
    assert document.positions[("b", "k")] == at(1, 11)
    document.value["a"]["k"] = 2
    assert document.value["b"]["k"] == 1


@pytest.mark.parametrize("text", ["1", "true", "null", "~", "1e-3", ".nan", "<<", ""])
def test_loads_reads_quoted_scalars_as_text(text: str) -> None:
    assert loads(f"a: '{text}'\nb: \"{text}\"\n", "r.yaml").value == {"a": text, "b": text}


# --- Refusals


@pytest.mark.parametrize(
    ("text", "words", "position"),
    [
        ("a: 1\nb: 2\na: 3\n", "'a' is on line 1 and again on line 3", at(3, 1)),
        ("x: {a: 1, 'a': 2}\n", "'a' is on line 1", at(1, 11)),
        ("1: x\n", "a key must be text", at(1, 1)),
        ("a:\n  null: x\n", "a key must be text", at(2, 3)),
        ("true: x\n", "a key must be text", at(1, 1)),
        ("? [a]\n: 1\n", "a key must be text", at(1, 3)),
        ("a: &x k\n*x : 1\n", "a key must be text", at(2, 1)),
        ("a: !!python/object/apply:os.system [ls]\n", "tags are not allowed", at(1, 4)),
        ("a: !foo 1\n", "tags are not allowed", at(1, 4)),
        ("a: !!binary aGk=\n", "tags are not allowed", at(1, 4)),
        ("a: ! 1\n", "tags are not allowed", at(1, 4)),
        ("!!map {a: 1}\n", "tags are not allowed", at(1, 1)),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "merge keys are not allowed", at(3, 3)),
        ("a: 1\n---\nb: 2\n", "a second document", at(2, 1)),
        ("a: &x [1, *x]\n", "contains itself", at(1, 11)),
        ("a: &x {b: {c: *x}}\n", "contains itself", at(1, 15)),
        ("a: *x\n", "no anchor &x", at(1, 4)),
        ("a:\tb\n", "a tab outside a comment", at(1, 3)),
        ("a: 1\rb: 2\r\tc", "a tab outside a comment", at(3, 1)),
        ('a: "\\0"\n', "U+0000", at(1, 4)),
    ],
)
def test_loads_refuses_what_recipes_do_not_have(text: str, words: str, position: Position) -> None:
    error = refusal(text)
    assert words in error.message
    assert error.position == position


@pytest.mark.parametrize(
    ("text", "words", "position"),
    [
        ("a: [1, 2\n", "lacks a comma or its closing bracket", at(2, 1)),
        ("a: [1, 2", "lacks a comma or its closing bracket", at(1, 9)),
        ("a: {b: 1\n", "lacks a comma or its closing brace", at(2, 1)),
        ("a: 'x\n", "a quote is never closed", at(2, 1)),
        ("a: b: c\n", "':' where no key is allowed", at(1, 5)),
        ("a:\n  b: 1\n c: 2\n", "check the indentation", at(3, 2)),
        ("a: @x\n", "'@' cannot start a value", at(1, 4)),
        ("a: 1\rb: 2\r\nc: `x`\r", "'`' cannot start a value", at(3, 4)),
        ("a: [1,,2]\n", "a value is missing", at(1, 7)),
        ("a: 1\nb\n", "a key without its ':'", at(3, 1)),
        ("a: - b\n", "'-' where no list item is allowed", at(1, 4)),
        ("a: 1\n...\nb: 2\n", "after the end of the recipe", at(3, 1)),
        ("a: *\n", "without a name", at(1, 5)),
        ("a: | x\n", "a block of text", at(1, 6)),
    ],
)
def test_loads_puts_syntax_errors_in_plain_words(text: str, words: str, position: Position) -> None:
    error = refusal(text)
    assert words in error.message
    assert error.position == position


@pytest.mark.parametrize("escape", ["\\q", "\\ud800", "\\U00110000", "\\xZZ"])
def test_loads_refuses_an_escape_that_is_no_character(escape: str) -> None:
    position = refusal(f'x: 1\na: "{escape}"\n').position
    assert position is not None
    assert position.line == 2


def test_merge_keys_are_answered_with_extends() -> None:
    assert "extends:" in (refusal("<<: {a: 1}\n").hint or "")


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "---\n...\n", "~\n", "\ufeff"])
def test_loads_refuses_an_empty_recipe(text: str) -> None:
    assert refusal(text).message == "the recipe is empty"


# --- Limits


def alias_bomb() -> str:
    names = "abcdefghi"
    lines = ["a: &a [" + ",".join(["lol"] * 9) + "]"]
    for before, name in itertools.pairwise(names):
        lines.append(f"{name}: &{name} [" + ",".join([f"*{before}"] * 9) + "]")
    return "\n".join(lines)


def test_loads_refuses_an_alias_bomb_before_it_is_expanded_beyond_the_limit() -> None:
    text = alias_bomb()
    assert len(text) < 500
    assert "aliases counted in full" in refusal(text).message


@pytest.mark.parametrize(
    ("nine", "ten"),
    [
        ("[a, a, a, a, a, a, a, a]", "[a, a, a, a, a, a, a, a, a]"),
        ("{a: 1, b: 2, c: 3, d: 4}", "{a: 1, b: 2, c: 3, d: [4]}"),
        ("[&x [a, a], *x, a, a]", "[&x [a, a], *x, a, a, a]"),
    ],
)
def test_loads_counts_keys_and_values_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, nine: str, ten: str
) -> None:
    monkeypatch.setattr("shrink.base.yaml.MAX_NODES", 9)
    loads(nine, "r.yaml")
    assert "aliases counted in full" in refusal(ten).message


@pytest.mark.parametrize(
    ("opening", "closing"), [("[", "]"), ("{a: ", "}"), ("- ", "")], ids=["list", "map", "block"]
)
def test_loads_refuses_deep_nesting(opening: str, closing: str) -> None:
    loads(opening * MAX_DEPTH + "x" + closing * MAX_DEPTH, "r.yaml")
    for levels in (MAX_DEPTH + 1, 10_000):
        error = refusal(opening * levels + "x" + closing * levels)
        assert "nested more than 32 levels" in error.message
        assert error.position == at(1, len(opening) * MAX_DEPTH + 1)


def test_loads_refuses_deep_nesting_by_aliases() -> None:
    half = "[" * 20 + "x" + "]" * 20
    assert "nested" in refusal(f"a: &a {half}\nb: {'[' * 20}*a{']' * 20}\n").message


def test_load_refuses_a_large_file_without_reading_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # a sparse file: reading it whole would exhaust the memory
    with pytest.raises(RecipeError, match="larger than 1 MB"):
        load(path)


# --- Files


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_load_refuses_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes("a: 1\n".encode(encoding))
    with pytest.raises(RecipeError, match="not UTF-8 text"):
        load(path)


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"a: 1\nb: \xe9\n", (2, 4)),
        (b"a: \xc3\xa9\xff\n", (1, 5)),
        (b"a: 1\nb\0: 2\n", (2, 2)),
        (b"\x89PNG\r\n\x1a\n", (1, 1)),
        (b"a: \xed\xa0\x80\n", (1, 4)),
        ("a: 1\u2028b: 2\n".encode(), (1, 5)),
    ],
)
def test_load_refuses_what_is_not_text(
    tmp_path: Path, content: bytes, position: tuple[int, int]
) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match="not UTF-8 text") as caught:
        load(path)
    assert caught.value.position == Position(str(path), *position)


def test_load_tolerates_a_byte_order_mark_of_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(codecs.BOM_UTF8 + b"a: 1\n")
    document = load(path)
    assert document.value == {"a": 1}
    assert document.position(("a",)) == Position(str(path), 1, 1)


@pytest.mark.parametrize("name", ["none/r.yaml", "file.txt/r.yaml", "x" * 300, "a\0b"])
def test_load_refuses_paths_that_lead_nowhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(RecipeError):
        load(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_load_refuses_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("a: 1\n")
    path.chmod(0)
    with pytest.raises(RecipeError, match=r"[Pp]ermission denied"):
        load(path)


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
