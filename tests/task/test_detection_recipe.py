"""The recipe digits-detect, and what its report says of the artifacts, computed anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from tests.cli.shell import read_report, shrink, stage
from tests.oracle.detection import of_boxes_head
from tests.oracle.drive import ROOT
from tests.scenes import BOXES

RECIPE = ROOT / "recipes" / "digits-detect.yaml"
THRESHOLD = 0.001
SHORT = {
    "data.path": BOXES["path"],  # 75 scenes to train on, 60 to test on
    "train.epochs": "1",
    "task.decode.score_threshold": str(THRESHOLD),  # after one epoch no score is higher
    "quantize.scheme": "float32",
    "quantize.split_outputs": "false",
}


def truth(config: DataConfig) -> tuple[dict[str, np.ndarray], np.ndarray]:
    test = open_dataset(config, seed=0).test
    x, y = test.arrays(np.arange(len(test)))
    return {"picture": np.asarray(x, np.float32)}, np.asarray(y)


def check(
    folder: Path, name: str, config: DataConfig, scratch: Path, threshold: float = 0.05
) -> dict[str, float]:
    """Compare the mAP of a stage that left a .tflite file with the oracle's; return its metrics."""
    entry = stage(read_report(folder), name)
    inputs, boxes = truth(config)
    expected = of_boxes_head(folder / entry["artifact"], inputs, boxes, scratch, threshold)
    metrics: dict[str, float] = entry["metrics"]
    assert entry["examples"] == len(boxes)
    for key in ("map", "map_50", "map_small", "map_medium"):
        assert metrics[key] == pytest.approx(expected[key], abs=1e-9)
        interval = entry["intervals"][key]
        assert interval["low"] <= metrics[key] <= interval["high"]
    return metrics


def test_recipe_measures_what_the_oracle_finds_in_the_artifact(tmp_path: Path) -> None:
    flags = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
    shrink("run", RECIPE, *flags, "--output", "run", cwd=tmp_path, store=tmp_path, expect=1)
    config = DataConfig.model_validate(BOXES)
    metrics = check(tmp_path / "run", "quantize", config, tmp_path, THRESHOLD)
    assert metrics["map"] > 0
    report = read_report(tmp_path / "run")
    assert report["stages"][0]["metrics"]["loss"] > 0
    assert {gate["name"] for gate in report["gates"]} == {"map", "map_drop"}


@pytest.mark.slow
def test_whole_recipe_passes_its_gates(tmp_path: Path) -> None:
    shrink("run", RECIPE, "--output", "run", cwd=tmp_path, store=tmp_path)
    whole = DataConfig.model_validate(
        {**BOXES, "path": f"{RECIPE.parent}/data/digit_scenes.py:boxes"}
    )
    metrics = check(tmp_path / "run", "quantize", whole, tmp_path)
    assert metrics["map"] > 0.6
