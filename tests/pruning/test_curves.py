"""Curves that were measured once are read again; damaged ones are measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shrink.pruning.allocation import Curve, remembered

CURVES = [Curve("a+b", 8, (0.0, 0.25), (1.0, 1.5)), Curve("c", 3, (0.0,), (1.0,))]


class Measured:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> list[Curve]:
        self.times += 1
        return CURVES


def test_remembered_measures_once(tmp_path: Path) -> None:
    measure = Measured()
    assert remembered(tmp_path / "new", {"model": "m"}, measure) == (CURVES, False)
    assert remembered(tmp_path / "new", {"model": "m"}, measure) == (CURVES, True)
    assert measure.times == 1


def test_remembered_measures_again_for_anything_else(tmp_path: Path) -> None:
    measure = Measured()
    for identity in ({"model": "m", "seed": 0}, {"model": "m", "seed": 1}, {"model": "n"}):
        assert remembered(tmp_path, identity, measure)[1] is False
    assert measure.times == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("1.5", "1.4"),
        lambda text: "[]",
        lambda text: json.dumps({**json.loads(text), "key": "another"}),
    ],
)
def test_remembered_measures_again_where_the_file_is_damaged(
    damage: Callable[[str], str], tmp_path: Path
) -> None:
    measure = Measured()
    remembered(tmp_path, {}, measure)
    (file,) = tmp_path.glob("*.json")
    file.write_text(damage(file.read_text()))
    assert remembered(tmp_path, {}, measure) == (CURVES, False)
    assert remembered(tmp_path, {}, measure) == (CURVES, True)
