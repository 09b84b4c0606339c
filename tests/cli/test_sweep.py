"""A sweep as a user runs it, and the commands that look at it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import read_report, shrink
from tests.cli.toy import write_toy

RECIPE = """\
name: toy
model: toy.py:build
data: {source: npz, path: toy.npz}
training: {global_batch_size: 16}
stages:
  - train: {epochs: 1}
  - prune: {method: magnitude, sparsity: 0.5, epochs: 0}
gates: {nonzero_parameters: 45}
"""


def test_run_sweeps_and_compare_shows_it_again(tmp_path: Path) -> None:
    write_toy(tmp_path, RECIPE)
    words = ("run", "toy.yaml", "--set", "prune.sparsity=0.3,0.6", "--output", "out", "--json")
    done = shrink(*words, cwd=tmp_path, store=tmp_path / "store", expect=1)
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))
    assert [row["status"] for row in printed["rows"]] == ["missed", "passed"]
    for row, statuses in zip(printed["rows"], (["done", "done"], ["cached", "done"]), strict=True):
        report = read_report(tmp_path / "out" / row["run"])
        assert [stage["status"] for stage in report["stages"]] == statuses
        assert (
            row["figures"]["nonzero_parameters"]
            == report["stages"][1]["size"]["nonzero_parameters"]
        )
    assert "prune.sparsity = 0.3" in (tmp_path / "out" / "compare.html").read_text("utf-8")
    # An ordinary run of the recipe may stand beside its sweep.
    shrink("run", "toy.yaml", "--output", "out", cwd=tmp_path, store=tmp_path / "store")
    again = shrink("compare", "out", "--json", cwd=tmp_path, store=tmp_path / "store")
    rows = json.loads(again.stdout)["rows"]
    assert [row["settings"] for row in rows] == [{"prune.sparsity": t} for t in ("0.3", "0.6")]
    three = ["out", *(f"out/{row['run']}" for row in printed["rows"])]
    both = shrink(
        *("compare", *three[1:], "out/report.json", "--output", "page"),
        cwd=tmp_path,
        store=tmp_path / "store",
    )
    assert both.stdout.strip().endswith("page/compare.html")
    saved = json.loads((tmp_path / "page" / "compare.json").read_text(encoding="utf-8"))
    assert [row["settings"]["prune.sparsity"] for row in saved["rows"]] == ["0.3", "0.6", "0.5"]
    assert saved["rows"][0]["run"] == "../out/prune.sparsity=0.3"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["compare", "missing"], 3, "there is no report here"),
        (["run", "toy.yaml", "--set", "prun.sparsity=1,2"], 2, "did you mean prune?"),
        (["run", "toy.yaml", "--set", "prune.sparsity=0.1,2"], 2, "prune.sparsity=0.1,2: sparsity"),
        (["run", "toy.yaml", "--set", "prune.epochs=0,1", "--output", "x.tflite"], 2, "one file"),
        (["run", "toy.yaml", "--jobs", "2"], 2, "this recipe is a single run"),
        (["validate", "toy.yaml", "--set", "prune.sparsity=0.1,2"], 2, "sparsity"),
    ],
)
def test_sweeps_and_comparisons_refuse(
    tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    write_toy(tmp_path, RECIPE)
    done = shrink(*words, cwd=tmp_path, store=tmp_path / "store", expect=code)
    assert told in done.stderr
    assert not (tmp_path / "runs").exists()
