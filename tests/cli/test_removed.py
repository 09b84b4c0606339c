"""Removed commands, flags and keys are refused by name, with their replacement."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base import removal as removed
from shrink.base.errors import RecipeError
from shrink.recipe.load import recipe_from_mapping
from tests.cli.shell import shrink


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["docs", "prune.sparsity"], "read the pages in docs/"),
        (["docs", "--json"], "read the pages in docs/"),
        (["data", "pack", "digits", "--output", "x"], "reads the data where it is"),
    ],
)
def test_a_removed_command_is_refused_with_its_replacement(
    tmp_path: Path, words: list[str], hint: str
) -> None:
    done = shrink(*words, cwd=tmp_path, store=tmp_path, expect=2)
    said = done.stdout + done.stderr
    assert "Removed command" in said
    assert "did you mean" not in said.lower()
    assert hint in said


def test_a_removed_key_is_refused_with_its_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(removed.REMOVED, "prune.speed", "use prune.macs")
    stages = [{"prune": {"speed": 2}}]
    recipe = {"model": "m.keras", "data": {"source": "digits"}, "stages": stages}
    with pytest.raises(RecipeError, match=r"the key 'speed' was removed") as caught:
        recipe_from_mapping(recipe, "r.yaml")
    assert caught.value.hint == "use prune.macs"


def test_a_peak_is_no_budget_of_pruning(tmp_path: Path) -> None:
    prune = {"method": "channels", "training_peak_bytes": "1MB"}
    recipe = {"model": "m.keras", "data": {"source": "digits"}, "stages": [{"prune": prune}]}
    with pytest.raises(RecipeError, match="'training_peak_bytes' was removed") as caught:
        recipe_from_mapping(recipe, "r.yaml")
    assert "training.memory_limit" in str(caught.value.hint)
    words = ("prune", "m.keras", "--data", "digits", "--training-peak-bytes", "1MB")
    done = shrink(*words, cwd=tmp_path, store=tmp_path, expect=2)
    assert "--training-peak-bytes was removed" in done.stderr


def test_a_removed_flag_is_refused_with_its_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(removed.REMOVED, "--speed", "use --macs")
    from shrink.cli.options import meant

    assert meant("No such option: --speed") == ("--speed was removed", "use --macs")
