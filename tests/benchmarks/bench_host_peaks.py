"""Resident memory of each kind of stage: predicted before it starts, beside measured.

Run: python -m tests.benchmarks.bench_host_peaks [--models dense_1 conv ...] [--stages train ...]

Dense models of 1 to 60 MB on digits, and convolutions on 98 MB of pictures in an .npz file; every
kind of stage, with calibration, GPTQ, least squares and a live teacher among them. A line for each
stage: what was predicted, what its process held at most, and the error. About 10 s of processor
time a stage.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tf_keras as keras

from tests.benchmarks.bench_host_limits import write_model
from tests.benchmarks.harness import apart, say

DENSE = {"dense_1": 1.0, "dense_8": 8.0, "dense_24": 24.0, "dense_60": 60.0}
_PICTURES = 2000
STAGES = {
    "train": "train: {epochs: 1}",
    "magnitude": "prune: {name: magnitude, from: train, method: magnitude, sparsity: 0.5, "
    "epochs: 1}",
    "l2": "prune: {name: l2, from: train, method: channels, ratio: 0.3, importance: l2, epochs: 0}",
    "least_squares": "prune: {name: least_squares, from: train, method: channels, ratio: 0.3, "
    "importance: least_squares, allocation: uniform, epochs: 0}",
    "sensitivity": "prune: {name: sensitivity, from: train, method: channels, ratio: 0.3, "
    "importance: l2, allocation: sensitivity, epochs: 0}",
    "live_teacher": "distill: {name: live_teacher, from: train, teacher: train, "
    "student: {width: 0.5}, teacher_cache: off, epochs: 1}",
    "float16": "quantize: {name: float16, from: train, scheme: float16}",
    "dynamic_int8": "quantize: {name: dynamic_int8, from: train, scheme: dynamic_wi8_afp32}",
    "static_int8": "quantize: {name: static_int8, from: train, scheme: static_wi8_ai8}",
    "dynamic_int4": "quantize: {name: dynamic_int4, from: train, scheme: dynamic_wi4_afp32}",
    "aware": "quantize: {name: aware, from: train, scheme: static_wi8_ai8, aware: true, epochs: 1}",
}
_RECIPE = """\
name: host-peaks
model: model.h5
data: {data}
training: {{global_batch_size: 64, memory_limit: 1GB}}
stages:
{stages}
"""


def main() -> None:
    """Print a line for each stage of each model, and the errors by kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=[*DENSE, "conv"])
    parser.add_argument("--stages", nargs="*", default=list(STAGES))
    options = parser.parse_args()
    errors: list[float] = []
    for model in options.models:
        errors += run(model, options.stages)
    if errors:
        absolute = sorted(map(abs, errors))
        say(
            f"{len(errors)} peaks: median error {absolute[len(errors) // 2]:.1%}, worst "
            f"{absolute[-1]:.1%}, most under {min(errors):+.1%}"
        )


def run(model: str, stages: list[str]) -> list[float]:
    """Print the stages of one model, and return the errors of those that were predicted."""
    with tempfile.TemporaryDirectory(prefix="shrink-peaks-") as name:
        folder = Path(name)
        path, data = str(folder / "model.h5"), "{source: digits}"
        if model in DENSE:
            apart(write_model, path=path, megabytes=DENSE[model])
        else:
            apart(write_convolutions, path=path, pictures=str(folder / "data.npz"))
            data = "{source: npz, path: data.npz}"
        lines = "\n".join(f"  - {STAGES[stage]}" for stage in stages)
        (folder / "recipe.yaml").write_text(_RECIPE.format(data=data, stages=lines))
        environment = {**os.environ, "SHRINK_CACHE_DIR": str(folder / "store")}
        command = [sys.executable, "-m", "shrink", "run", "recipe.yaml", "--output", "out"]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode > 1:
            say(done.stderr[-1500:])
        report = json.loads((folder / "out" / "report.json").read_text())
    errors = []
    for stage in report["stages"]:
        memory = stage["memory"] or {}
        predicted = memory.get("stage_host_peak_predicted_bytes")
        measured = memory.get("stage_host_peak_bytes")
        if measured is None:
            say(f"{model:9} {stage['name']:14} {stage['status']}")
            continue
        weights = 4 * stage["size"]["parameters"] / 1e6
        if predicted is not None:
            errors.append(predicted / measured - 1)
        guess = "      -" if predicted is None else f"{predicted / 1e6:7.0f}"
        error = "" if predicted is None else f" {errors[-1]:+7.1%}"
        say(
            f"{model:9} {stage['name']:14} weights {weights:6.1f} MB, predicted {guess} MB, "
            f"measured {measured / 1e6:7.0f} MB{error}"
        )
    return errors


def write_convolutions(path: str, pictures: str) -> None:
    """Write a network of convolutions, and 98 MB of pictures of 10 classes for it."""
    layers = keras.layers
    x = inputs = layers.Input((64, 64, 3))
    for channels in (32, 64, 128, 256):
        x = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.MaxPooling2D()(x)
    x = layers.GlobalAveragePooling2D()(x)
    keras.Model(inputs, layers.Dense(10, activation="softmax")(x)).save(path)
    generator = np.random.default_rng(0)
    labels = np.arange(_PICTURES) % 10
    images = generator.normal(size=(_PICTURES, 64, 64, 3)).astype("float32")
    images += labels[:, None, None, None] / 5
    np.savez(pictures, x=images, y=labels)


if __name__ == "__main__":
    main()
