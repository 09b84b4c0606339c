"""Injured recipes are read or refused, and nothing else."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from shrink.base.errors import RecipeError
from shrink.base.yaml import loads
from tests.recipe.text import RECIPE

TOKENS = (
    *("[", "]", "{", "}", ":", " ", "\n", "&a", "*a", "*prune", "!!x", "!", "|", ">", "'", '"'),
    *("\\", "%", "@", "`", "? ", "- ", "<<: ", "\t", "---\n", "...\n", "#", ",", "\0", "\x85"),
    *("\u2028", "\ufeff", "\r", "1e999", "0x", "&", "*", '"\\x', '"\\ud800"', '"\\U00110000"'),
    *("%YAML 1.1\n", "~", "=", "é", "😀", "|9\n", "!<", "&a [*a]", "\ud800", "9" * 5000),
)


def mutant(source: random.Random, text: str) -> str:
    """Return `text` with one to four random injuries."""
    for _ in range(source.randint(1, 4)):
        place = source.randrange(len(text) + 1)
        injury = source.choice(["flip", "truncate", "duplicate", "insert", "insert", "delete"])
        if injury == "flip" and text:
            data = bytearray(text, "utf-8", "surrogatepass")
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
            text = data.decode("utf-8", "replace")
        elif injury == "truncate":
            text = text[:place]
        elif injury == "duplicate":
            lines = text.splitlines(keepends=True) or [""]
            lines.insert(source.randrange(len(lines)), source.choice(lines))
            text = "".join(lines)
        elif injury == "insert":
            text = text[:place] + source.choice(TOKENS) + text[place:]
        else:
            text = text[:place] + text[place + source.randint(1, 5) :]
    return text


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(is_plain(item) for item in value)
    return type(value) in (str, int, bool, type(None)) or (
        type(value) is float and math.isfinite(value)
    )


def read_mutants(count: int, seed: int) -> tuple[int, int]:
    """Return how many mutants were read and how many refused; anything else raises."""
    source = random.Random(seed)
    read = refused = unplaced = 0
    for _ in range(count):
        recipe = RECIPE.replace("\n", source.choice(["\n", "\n", "\r\n", "\r"]))
        try:
            document = loads(mutant(source, recipe), "r.yaml")
        except RecipeError as error:
            refused += 1
            unplaced += error.position is None and error.message != "the recipe is empty"
        else:
            read += 1
            assert is_plain(document.value)
            assert set(document.key_positions) < set(document.positions)
    assert unplaced == 0
    return read, refused


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [400, pytest.param(5_000, marks=pytest.mark.slow)])
def test_loads_reads_or_refuses_every_mutant_of_a_recipe(count: int) -> None:
    read, refused = read_mutants(count, seed=count)
    assert read > count / 10
    assert refused > count / 10
