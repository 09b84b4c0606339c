"""What `shrink search` is asked for: by a recipe's section, by flags, and by `--set`."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.recipe.overrides import Override
from shrink.search.candidates import Candidates
from tests.cli.shell import shrink
from tests.cli.toy import RECIPE as TOY
from tests.cli.toy import write_toy

RECIPE = """
name: r
model: model.py:build
data: {source: digits}
stages: [train: {epochs: 1}, quantize: {}]
"""


def read(folder: Path, section: str, *settings: str) -> Candidates:
    (folder / "model.py").write_text("def build():\n    return 1\n", encoding="utf-8")
    path = folder / "r.yaml"
    path.write_text(RECIPE + section, encoding="utf-8")
    return Candidates.of(str(path), [Override.parse(one) for one in settings])


def test_set_changes_the_search_and_the_recipe(tmp_path: Path) -> None:
    objectives = "search.objectives=[accuracy, tflite_bytes]"
    found = read(tmp_path, "search: {seed: 1, trials: 3}\n", "search.seed=2", objectives)
    assert (found.config.seed, found.config.trials) == (2, 3)
    assert found.config.objectives == ("accuracy", "tflite_bytes")
    found = read(tmp_path, "", "search.trials=5", "train.epochs=2")
    assert found.config.trials == 5
    assert found.raw.value["stages"][0]["train"] == {"epochs": 2}
    assert "search" not in found.raw.value


@pytest.mark.parametrize(
    ("setting", "message", "hint"),
    [
        ("search.rungs=[0.1]", "'rungs' was removed", "all its epochs"),
        ("search.warm_starts=true", "'warm_starts' was removed", "from the baseline"),
        ("search.sampler=tpe", "'sampler' was removed", "improvement per second"),
        ("search.storage=postgresql://host/db", "not the URL of a database", ""),
        ("search.trails=1", "unknown key 'trails'", "trials"),
    ],
)
def test_what_was_removed_or_never_was_is_refused_by_name(
    setting: str, message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=message) as raised:
        read(tmp_path, "", "search.trials=1", setting)
    assert hint in (raised.value.hint or "")


def test_a_search_of_a_model_needs_a_stopping_criterion(tmp_path: Path) -> None:
    model = tmp_path / "m.keras"
    model.touch()
    with pytest.raises(RecipeError, match="no stopping criterion"):
        Candidates.of(str(model), [], "digits")
    found = Candidates.of(str(model), [Override.parse("search.time=1m")], "digits")
    assert found.config.time == 60


def test_a_gated_arena_keeps_the_default_space_to_what_tflite_micro_runs(tmp_path: Path) -> None:
    gates = "gates: {arena_bytes: 64KB}\n"
    for section, in_micro in ((gates, True), ("", False)):
        found = read(tmp_path, section, "search.trials=1").space
        kinds = {kind for one in found.chains for stage in one.stages or () for kind in stage}
        schemes = {str(one.dimensions.get("quantize.scheme")) for one in found.chains}
        assert ("compact" in kinds) == in_micro
        assert any("wi4" in one for one in schemes) != in_micro


def test_flags_are_the_keys_of_the_section(tmp_path: Path) -> None:
    write_toy(tmp_path, "name: toy\n")
    store = tmp_path / "store"
    told = shrink("search", "--help-all", cwd=tmp_path, store=store).stdout
    for flag in ("--flash", "--ram", "--latency", "--max-drop", "--macs", "--objectives", "--time"):
        assert flag in told
    assert "sweep" not in told
    assert "--space" not in told

    def refused(*flags: str) -> str:
        words = ["search", "toy.keras", "--data", "digits", *flags]
        (tmp_path / "toy.keras").touch()
        return shrink(*words, cwd=tmp_path, store=store, expect=2).stderr

    assert "--flash x" in refused("--flash", "x", "--trials", "1")
    assert "--sampler was removed" in refused("--sampler", "tpe", "--trials", "1")
    assert "no stopping criterion" in refused()


def test_the_output_may_be_a_file_of_a_chain_that_ends_in_one(tmp_path: Path) -> None:
    write_toy(tmp_path, TOY + "  - prune: {sparsity: 0.5}\n")
    words = ["search", "toy.yaml", "--trials", "1", "--output", "best.tflite"]
    words += ["--set", "search.space={prune.sparsity: [0.5]}"]
    done = shrink(*words, cwd=tmp_path, store=tmp_path / "store", expect=2)
    assert "ends in a Keras model" in done.stderr
    assert not (tmp_path / "best.tflite").exists()
