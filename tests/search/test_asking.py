"""What `shrink search` is asked for: by a recipe's section, and by flags that change it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.search.asking import Wanted, asking_of, recipe_named, recipe_of_model

RECIPE = """
name: r
model: model.py:build
data: {source: digits}
stages: [train: {epochs: 1}, quantize: {}]
"""


@pytest.mark.parametrize("section", ["", "search: {rungs: [0.1], trials: 3}\n"])
def test_set_changes_what_a_search_is_asked_for(section: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def build():\n    return 1\n", encoding="utf-8")
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE + section, encoding="utf-8")
    settings = ["search.rungs=[0.5]", "search.objectives=[accuracy, tflite_bytes]"]
    named = recipe_named(str(path), [*settings, "train.epochs=2"])
    asking = asking_of(Wanted(trials=None if section else 5), named.config)
    assert asking.rungs == (0.5,)
    assert asking.objectives == ("accuracy", "tflite_bytes")
    assert asking.trials == (3 if section else 5)
    assert named.raw.value["stages"][0]["train"] == {"epochs": 2}
    assert "search" not in named.raw.value


def test_set_does_so_where_a_model_is_searched(tmp_path: Path) -> None:
    model = str(tmp_path / "m.keras")
    Path(model).touch()
    found = recipe_of_model(model, "digits", None, ["search.sampler=random"])
    assert found.config.sampler == "random"


def test_a_key_that_a_search_does_not_have_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    with pytest.raises(RecipeError, match="sampel"):
        recipe_named(str(path), ["search.sampel=random"])
