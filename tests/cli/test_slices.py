"""Slices through the command line: from an array and a function to the report and a missed gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.cli.shell import read_report, shrink, stage
from tests.cli.toy import write_toy

RECIPE = """\
name: toy
model: toy.py:build
data:
  source: npz
  path: toy.npz
  slices: [place, "toy.py:by_sign"]
training: {global_batch_size: 32}
stages:
  - train: {epochs: 1}
  - quantize: {scheme: float16}
gates: {worst_slice_drop: {limit: -0.5, by: place}}
"""
BY_SIGN = """

def by_sign(x, y):
    return ["above" if row[0] > 0 else "below" for row in x]
"""


def test_a_run_reports_slices_and_names_the_one_that_misses_a_gate(tmp_path: Path) -> None:
    write_toy(tmp_path, RECIPE)
    code = tmp_path / "toy.py"
    code.write_text(code.read_text(encoding="utf-8") + BY_SIGN, encoding="utf-8")
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 4)).astype(np.float32)
    place = np.where(np.arange(400) % 4 == 0, "barn", "field")
    y = random.integers(0, 3, 400)
    first, last = slice(0, 320), slice(320, 400)
    train: dict[str, Any] = {"x_train": x[first], "y_train": y[first], "place_train": place[first]}
    test: dict[str, Any] = {"x_test": x[last], "y_test": y[last], "place_test": place[last]}
    np.savez(tmp_path / "toy.npz", allow_pickle=False, **train, **test)
    words = ("run", "toy.yaml", "--output", "out")
    done = shrink(*words, cwd=tmp_path, store=tmp_path / "store", expect=1)
    report = read_report(tmp_path / "out")
    slicings = {one["by"]: one for one in stage(report, "quantize")["slices"]}
    assert list(slicings) == ["class", "place", "by_sign"]
    counts = {one["name"]: one["examples"] for one in slicings["place"]["slices"]}
    assert counts == {"barn": 20, "field": 60}
    signs = {one["name"]: one["examples"] for one in slicings["by_sign"]["slices"]}
    above = int((x[last, 0] > 0).sum())
    assert signs == {"above": above, "below": 80 - above}
    labels = [one["examples"] for one in slicings["class"]["slices"]]
    assert labels == np.bincount(y[last], minlength=3).tolist()
    (gate,) = report["gates"]
    assert (gate["by"], gate["passed"]) == ("place", False)
    assert gate["slice"] in counts
    sentence = f"Gate worst_slice_drop of quantize missed: place = {gate['slice']}: "
    assert sentence in done.stdout
    assert "quantize: no proven loss in any of" in done.stdout
