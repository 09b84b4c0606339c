"""`shrink.search` asks for what the command line asks for, and gives back what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shrink
from shrink.base import yaml
from shrink.base.errors import Interrupted
from shrink.search import session
from tests.cli.shell import shrink as command
from tests.search.fake import EXAMPLES, RECIPE, FakeAttempt, FakeSizes, right_of, size_of

SPACE: dict[str, list[Any]] = {
    "prune.parameters": [0.2, 0.4, 0.6],
    "quantize.scheme": ["static_wi8_ai8", "float16"],
}
CLI_RECIPE = """
name: found
model: toy.keras
data: {source: npz, path: toy.npz}
stages: [quantize: {calibration_samples: 20}]
search: {space: {quantize.scheme: [static_wi8_ai8, float16]}, trials: 2}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "attempt", FakeAttempt())
    monkeypatch.setattr(session, "Sizes", FakeSizes)
    Path("model.py").write_text("def build():\n    return 1\n", encoding="utf-8")
    value: dict[str, Any] = yaml.loads(RECIPE, "r").value
    return {**value, "search": {"space": SPACE, "constraints": {"tflite_bytes": "50KB"}}}


def test_a_search_gives_back_points_front_and_the_best(
    recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = shrink.search(recipe, max_drop=0.05, flash="60KB", trials=20, seed=3, quiet=True)
    points = [(p, s) for p in SPACE["prune.parameters"] for s in SPACE["quantize.scheme"]]
    able = [
        size_of(*one)
        for one in points
        if size_of(*one) <= 60_000
        and 1980 - right_of(*one) <= 0.04 * EXAMPLES  # 5 points by their bounds
    ]
    assert found.best.figures["tflite_bytes"] == min(able)
    assert found.front[0].number == found.best.number
    assert found.front[0].figures["tflite_bytes"] == min(able)
    assert [one.number for one in found.trials] == [*range(len(found.trials))]
    assert found.folder == Path("runs/r-search")
    assert found.run.passed
    assert found.artifact.is_file()
    assert found.recipe == Path("runs/r-search/best/recipe.resolved.yaml")
    table = found.to_pandas()
    assert table.loc[found.best.number, "tflite_bytes"] == min(able)
    assert "on the test split" in str(found)
    assert capsys.readouterr().out == ""


def test_mistakes_speak_of_keywords(
    recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(shrink.RecipeError, match="no stopping criterion") as raised:
        shrink.search(recipe)
    assert raised.value.subject == "time"
    with pytest.raises(shrink.RecipeError, match="a recipe names this itself") as raised:
        shrink.search(recipe, "digits", trials=1)
    assert raised.value.subject == "data"
    with pytest.raises(shrink.RecipeError, match="neither limited nor an objective"):
        shrink.search({**recipe, "search": {"latency": {"command": "echo 1"}}}, trials=1)
    with pytest.raises(shrink.StageError, match="no trial keeps the limits"):
        shrink.search(recipe, flash=10, trials=3, quiet=True)
    attempt = FakeAttempt()
    attempt.raises[0.2] = attempt.raises[0.5] = Interrupted("interrupted")
    monkeypatch.setattr(session, "attempt", attempt)
    with pytest.raises(KeyboardInterrupt):
        shrink.search(recipe, trials=20, output="another", quiet=True)
    assert Path("another/search.json").is_file()


def test_the_recipe_names_a_storage(recipe: dict[str, Any]) -> None:
    recipe["search"]["storage"] = "shared.journal"
    shrink.search(recipe, trials=2, quiet=True)
    assert Path("shared.journal").is_file()
    assert not Path("runs/r-search/search.journal").exists()


@pytest.mark.slow
def test_python_and_the_command_line_find_the_same(tmp_path: Path) -> None:
    from tests.api.test_verbs import call

    store = tmp_path / "store"
    call("save_toy", tmp_path, store)
    (tmp_path / "found.yaml").write_text(CLI_RECIPE, encoding="utf-8")
    command("search", "found.yaml", "--output", "cli", cwd=tmp_path, store=store)
    ours = call("searched", tmp_path, store)
    theirs = yaml.loads((tmp_path / "cli" / "search.json").read_text(), "search.json").value
    assert ours["best"] == theirs["best"]
    same = ("number", "settings", "figures", "feasible", "status")
    pairs = zip(ours["trials"], theirs["trials"], strict=True)
    assert all([mine[k] for k in same] == [other[k] for k in same] for mine, other in pairs)
