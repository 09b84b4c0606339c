"""What a teacher is worth: the same student with and without it, for the same updates.

Run: python tests/benchmarks/bench_distill_worth.py --model resnet8.h5 --data pictures
         [--pictures 5000] [--epochs 10] [--seeds 0 1 2]

`--data` is a folder train/<class>/*.jpg and test/<class>/*.jpg. Each seed draws its own few
training pictures, stratified; a tenth is for validation. Two students of at most a quarter of the
teacher's parameters are distilled by `shrink run` with `control: true`: one that starts from
random weights and one that is cut from the teacher. Prints each student's accuracy on the whole
test split alone and taught, and over the seeds the mean gain with its 95 % interval (Student's t).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shrink.report.intervals import mean_interval

_RECIPE = """
name: worth
model: {model}
data: {{source: npz, path: {data}, validation_split: 0.1}}
training:
  seed: {seed}
  global_batch_size: 64
  optimizer: {{name: adam, learning_rate: 3e-3, schedule: cosine}}
stages:
  - distill:
      name: from-random
      student: {{width: {width}}}
      teacher: baseline
      temperature: 4
      alpha: 0.1
      epochs: {epochs}
      control: true
  - distill:
      name: from-teacher
      from: baseline
      student: {{width: {width}, inherit: true}}
      teacher: baseline
      temperature: 4
      alpha: 0.1
      epochs: {epochs}
      control: true
"""


def main() -> None:
    """Print a line of JSON for each student and seed, then the gains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--width", type=float, default=0.48)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        test = _read(_files(arguments.data / "test"))
        for seed in arguments.seeds:
            for row in _measure(arguments, seed, test, Path(name)):
                rows.append(row)
                _print(row)
    for student in dict.fromkeys(row["student"] for row in rows):
        gains = [row["gain"] for row in rows if row["student"] == student]
        interval = mean_interval(gains)
        _print({"student": student, "gain_points": gains, "mean": interval.value,
                "low": interval.low, "high": interval.high})  # fmt: skip


def _measure(
    arguments: argparse.Namespace, seed: int, test: tuple[Any, Any], work: Path
) -> list[dict[str, Any]]:
    data, recipe, output = work / f"{seed}.npz", work / f"{seed}.yaml", work / f"run-{seed}"
    few = _few(_files(arguments.data / "train"), arguments.pictures, seed)
    x, y = _read(few)
    np.savez(data, x_train=x, y_train=y, x_test=test[0], y_test=test[1])
    model = arguments.model.resolve()
    values = {"width": arguments.width, "epochs": arguments.epochs, "seed": seed}
    recipe.write_text(_RECIPE.format(model=model, data=data, **values), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "shrink", "run", str(recipe), "--output", str(output)]
    environment = {**os.environ, "SHRINK_CACHE_DIR": str(work / "store")}
    subprocess.run([*command, "--quiet"], check=True, env=environment)
    stages = json.loads((output / "report.json").read_text(encoding="utf-8"))["stages"]
    return [_row(stage, stages[0], seed) for stage in stages[1:]]


def _row(stage: dict[str, Any], baseline: dict[str, Any], seed: int) -> dict[str, Any]:
    control = stage["details"]["control"]
    gain = control["gain"]["accuracy"]
    return {
        "student": stage["name"],
        "seed": seed,
        "parameters": stage["size"]["parameters"],
        "of_teacher": round(stage["size"]["parameters"] / baseline["size"]["parameters"], 4),
        "updates": stage["training"]["updates"],
        "teacher": 100 * baseline["metrics"]["accuracy"],
        "alone": 100 * control["alone"]["accuracy"],
        "taught": 100 * control["taught"]["accuracy"],
        "gain": 100 * gain["value"],
        "gain_low": 100 * gain["low"],
        "gain_high": 100 * gain["high"],
    }


def _files(folder: Path) -> list[list[Path]]:
    return [sorted(c.iterdir()) for c in sorted(folder.iterdir()) if c.is_dir()]


def _few(classes: Sequence[list[Path]], count: int, seed: int) -> list[list[Path]]:
    random, each = np.random.default_rng(seed), count // len(classes)
    return [[c[i] for i in random.permutation(len(c))[:each]] for c in classes]


def _read(classes: Sequence[list[Path]]) -> tuple[np.ndarray, np.ndarray]:
    x = np.stack([np.asarray(Image.open(path)) for files in classes for path in files])
    return x, np.repeat(np.arange(len(classes)), [len(files) for files in classes])


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
