"""What a teacher is worth: the same student with and without it, for the same updates.

Run: python tests/benchmarks/bench_distill_worth.py --model resnet8.h5 --data pictures
         [--pictures 5000] [--epochs 10] [--seeds 0 1 2]

`--data` is a folder train/<class>/*.jpg and test/<class>/*.jpg. Each seed draws its own few
training pictures, stratified; a tenth is for validation. Two students of at most a quarter of the
teacher's parameters are distilled by the stage with `control: true`: one that starts from random
weights and one that is cut from the teacher. Prints each student's accuracy on the whole
test split alone and taught, and over the seeds the mean gain with its 95 % interval (Student's t).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tf_keras as keras
from PIL import Image

from shrink.base.intervals import mean_interval
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.run import run as distill
from tests.jobs import context_of, source

_STUDENTS = ["from-random", "from-teacher"]


def main() -> None:
    """Print a line of JSON for each student and seed, then the gains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--width", type=float, default=0.48)
    parser.add_argument("--students", nargs="+", choices=_STUDENTS, default=_STUDENTS)
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
) -> Iterator[dict[str, Any]]:
    data = work / f"{seed}.npz"
    x, y = _read(_few(_files(arguments.data / "train"), arguments.pictures, seed))
    np.savez(data, x_train=x, y_train=y, x_test=test[0], y_test=test[1])
    for name in arguments.students:
        inherit = float(name == "from-teacher")
        scale = {"width": arguments.width, "inherit": inherit}
        yield {"student": name, "seed": seed, **_distilled(arguments, seed, data, scale, work)}


def _distilled(
    arguments: argparse.Namespace, seed: int, data: Path, scale: dict[str, float], work: Path
) -> dict[str, Any]:
    file = arguments.model.resolve()
    inputs = {"teacher": source(file), "model": source(file, arguments=scale)}
    optimizer = {"name": "adam", "learning_rate": 3e-3, "schedule": "cosine"}
    training = {"seed": seed, "global_batch_size": 64, "optimizer": optimizer}
    described = {"source": "npz", "path": str(data), "validation_split": 0.1}
    keras.utils.set_random_seed(seed)
    context = context_of(
        work, kind="distill", inputs=inputs, data=described, training=training, split_seed=seed
    )
    config = DistillConfig.model_validate({"epochs": arguments.epochs, "control": True})
    result = distill(config, context)
    assert result.model is not None
    assert result.training is not None
    control = dict(result.details or {})["control"]
    gain = control["gain"]["accuracy"]
    history = result.training.history
    return {
        "parameters": result.model.count_params(),
        "updates": result.training.updates,
        "teacher": 100 * control["teacher"]["accuracy"],
        "alone": 100 * control["alone"]["accuracy"],
        "taught": 100 * control["taught"]["accuracy"],
        "taught_on_validation": 100 * history["val_accuracy"][-1],
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
