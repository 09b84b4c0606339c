"""What a student loses when its teacher's answers are stored in fewer bytes.

Run: python -m tests.benchmarks.bench_teacher_answers [--epochs 10] [--seeds 0 1 2] [--top-k 2]

The digits' network teaches one of a quarter of its width, asked once, its ten logits stored as
float32, as float16, and as the largest `--top-k` alone. Prints for each the bytes, the accuracy on
the test digits of all seeds together, and its difference to float32 with the 95 % interval, paired
over the same digits.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tf_keras as keras

from models.digits_cnn import build
from shrink.base.intervals import paired_interval
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.opening import open_dataset
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.run import run as distill
from tests.jobs import context_of

_STORED = ("float32", "float16", "topk")


def main() -> None:
    """Print a line of JSON for each way to store answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--top-k", type=int, default=2)
    arguments = parser.parse_args()
    dataset = open_dataset(DataConfig(source="digits"), seed=0)
    right: dict[str, list[float]] = {stored: [] for stored in _STORED}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _write_models(work, dataset, arguments.epochs)
        for seed in arguments.seeds:
            for stored in _STORED:
                found, sizes[stored] = _taught(work, dataset, stored, seed, arguments)
                right[stored] += found
    for stored in _STORED:
        gain = paired_interval(right["float32"], right[stored])
        row = {
            "cache_dtype": stored,
            "bytes": sizes[stored],
            "accuracy": float(np.mean(right[stored])),
            "to_float32": gain.value,
            "low": gain.low,
            "high": gain.high,
        }
        print(json.dumps(row), flush=True)  # noqa: T201


def _write_models(work: Path, dataset: Dataset, epochs: int) -> None:
    keras.utils.set_random_seed(0)
    teacher = build()
    x, y = dataset.train.arrays(np.arange(len(dataset.train)))
    teacher.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    teacher.fit(np.asarray(x, np.float32), y, epochs=epochs, verbose=0)
    teacher.save(work / "teacher.keras")
    build(width=0.25).save(work / "student.keras")


def _taught(
    work: Path, dataset: Dataset, stored: str, seed: int, arguments: argparse.Namespace
) -> tuple[list[float], int]:
    """Return whether each test digit is right, 1.0 or 0.0, and the bytes of the answers."""
    inputs = {"model": work / "student.keras", "teacher": work / "teacher.keras"}
    optimizer = {"name": "adam", "learning_rate": 3e-3, "schedule": "cosine"}
    training = {"seed": seed, "optimizer": optimizer}
    keras.utils.set_random_seed(seed)
    context = context_of(work, kind="distill", inputs=inputs, training=training)
    settings = {"cache_dtype": stored, "top_k": arguments.top_k, "epochs": arguments.epochs}
    result = distill(DistillConfig.model_validate({**settings, "teacher_cache": "on"}), context)
    assert result.model is not None
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    chosen = np.asarray(result.model(np.asarray(x, np.float32))).argmax(axis=1)
    return (chosen == y).astype(float).tolist(), dict(result.details or {})["teacher_cache"][
        "bytes"
    ]


if __name__ == "__main__":
    main()
