"""What `shrink compare` makes of the sweeps that it is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import RecipeError
from shrink.base.files import json_text
from shrink.recipe.compare_files import compare_folders
from tests.report.toys import outcome, report


def write_sweep(folder: Path, correct: list[int]) -> Path:
    """A sweep of one combination, with a seed for each number of correct predictions of 100."""
    rows: list[dict[str, Any]] = []
    for seed, number in enumerate(correct):
        settings = {"prune.sparsity": "0.5", "training.seed": str(seed)}
        name = f"prune.sparsity=0.5,training.seed={seed}"
        (folder / name).mkdir(parents=True)
        made = report([outcome("train", number, 1000 + number, None)], finals=("train",))
        (folder / name / "report.json").write_text(json_text(made), encoding="utf-8")
        row = {"name": name, "run": name, "settings": settings, "status": "finished"}
        row |= {"combination": "prune.sparsity = 0.5", "figures": {}, "intervals": {}, "delta": {}}
        rows.append(row)
    found = {"schema_version": 1, "title": "r", "sweep": True, "repeat": len(rows), "rows": rows}
    folder.mkdir(exist_ok=True)
    (folder / "compare.json").write_text(json.dumps(found), encoding="utf-8")
    return folder


def test_the_page_of_a_sweep_elsewhere_is_written_again(tmp_path: Path) -> None:
    sweep, page = write_sweep(tmp_path / "sweep", [90, 92]), tmp_path / "page"
    for _ in range(2):
        compare_folders([sweep], page)
    assert json.loads((page / "compare.json").read_text("utf-8"))["sweep"]
    with pytest.raises(RecipeError, match="holds the runs of the sweep 'r'"):
        compare_folders([page], sweep)


def test_the_page_above_a_sweep_is_written_again(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", [90, 92])
    for _ in range(2):
        compare_folders([sweep], tmp_path)


def test_what_holds_runs_of_its_own_is_not_overwritten(tmp_path: Path) -> None:
    sweep, empty = write_sweep(tmp_path / "sweep", [90]), write_sweep(tmp_path / "empty", [])
    search = write_sweep(tmp_path / "search", [90])
    found = json.loads((search / "compare.json").read_text("utf-8")) | {"split": "validation"}
    found["rows"][0]["run"] = "trials/0"
    (search / "compare.json").write_text(json.dumps(found), encoding="utf-8")
    for there in (empty, search):
        with pytest.raises(RecipeError, match="holds the runs of the sweep 'r'"):
            compare_folders([sweep], there)


def test_sweeps_of_the_same_name_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = write_sweep(tmp_path / "v1" / "sweep", [90, 92])
    second = write_sweep(tmp_path / "v2" / "sweep", [60, 64])
    third = write_sweep(tmp_path / "other", [10, 20])
    found = compare_folders([first, second, third], None)
    assert {one.name: round(one.figures["accuracy"].mean, 9) for one in found.repeats} == {
        "v1/sweep: prune.sparsity = 0.5": 0.91,
        "v2/sweep: prune.sparsity = 0.5": 0.62,
        "other: prune.sparsity = 0.5": 0.15,
    }
    assert [len(one.rows) for one in found.repeats] == [2, 2, 2]
    assert len({row.name for row in found.rows}) == 6
    twice = compare_folders([first, first], None)
    assert [(one.name, len(one.rows)) for one in twice.repeats] == [
        ("v1/sweep: prune.sparsity = 0.5", 2)
    ]
