from __future__ import annotations

import pytest

from shrink.base.errors import did_you_mean, hint_for, near_file

KEYS = ("epochs", "learning_rate", "global_batch_size", "Temperature")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("epoch", "epochs"),
        ("EPOCHS", "epochs"),
        ("learning-rate", "learning_rate"),
        ("LearningRate", "learning_rate"),
        ("temprature", "Temperature"),
        ("xyz", None),
        ("", None),
        ("e" * 1_000_000, None),
    ],
)
def test_did_you_mean_finds_the_nearest_word(word: str, expected: str | None) -> None:
    assert did_you_mean(word, KEYS) == expected


def test_hint_for_asks_when_a_word_is_near() -> None:
    assert hint_for("epoch", KEYS) == "did you mean epochs?"


def test_hint_for_is_empty_when_there_is_nothing_to_choose_from() -> None:
    assert hint_for("a", []) == ""


@pytest.mark.parametrize(
    ("name", "beside", "expected"),
    [
        ("nosuch.keras", ["ts.keras", "two.keras"], None),
        ("modle.keras", ["model.h5", "ts.keras"], "model.h5"),
        ("model.kears", ["model.h5", "model.keras"], "model.keras"),
        ("model.keras", ["model.py"], "model.py"),
        ("picturs", ["pictures", "x.npz"], "pictures"),
        ("a.npz", [], None),
    ],
)
def test_near_file_does_not_count_the_ending(
    name: str, beside: list[str], expected: str | None
) -> None:
    assert near_file(name, beside) == expected
