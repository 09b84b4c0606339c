"""Seconds per step of shrink's training loop beside plain Keras `fit`, on an idle machine.

Run: python -m tests.benchmarks.bench_training [--only steps|command] [--steps 200]
         [--runs 5] [--replicas 1 4] [--batch-size 64] [--micro-batch-size 64]

Both parts take about five minutes on two idle cores.

steps: both loops train the same model on the same prefetched batches, in alternating order, with
one replica and (small nets) with four logical CPUs, each in a process of its own. Prints the
milliseconds of a step, medians, and the median of the ratios of each round.

command: 5,900 steps of the dense net by `shrink run`, the difference of two runs of 60 epochs and
of one epoch, beside the same difference of two calls of `fit`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from models import resnet
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices, distribute_batches, open_devices
from shrink.engine.microbatch import MicroBatchTrainer, TrainingSetup
from shrink.engine.objective import SupervisedObjective
from shrink.engine.planner import BatchPlan
from shrink.engine.recovery import Retries
from tests.benchmarks.harness import apart, by_turns, say

CLASSES = 10
_EPOCHS, _STEPS_PER_EPOCH, _COMMAND_BATCH = 60, 100, 64
_TEST_SPLIT, _VALIDATION_SPLIT = 0.19, 0.01


def main() -> None:
    """Print the figures of both parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=["steps", "command"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--micro-batch-size", type=int, help="by default a replica's whole share")
    options = parser.parse_args()
    say(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if options.only != "command":
        for replicas in options.replicas:
            for name in MODELS if replicas == 1 else _ON_SEVERAL:
                say(
                    apart(
                        compare,
                        name=name,
                        replicas=replicas,
                        batch_size=options.batch_size,
                        micro_batch_size=options.micro_batch_size,
                        steps=options.steps,
                        runs=options.runs,
                    )
                )
    if options.only != "steps":
        compare_command()


def dense() -> tuple[Any, tuple[int, ...]]:
    """Two dense layers, where a step's fixed cost is nearly all."""
    layers = keras.layers
    inputs = layers.Input((32,))
    hidden = layers.Dense(64, activation="relu")(inputs)
    return keras.Model(inputs, layers.Dense(CLASSES)(hidden)), (32,)


def cnn() -> tuple[Any, tuple[int, ...]]:
    """A network on 32×32 images, where the kernels dominate."""
    layers = keras.layers
    inputs = hidden = layers.Input((32, 32, 3))
    for channels in (16, 32, 64):
        hidden = layers.Conv2D(channels, 3, strides=2, padding="same", use_bias=False)(hidden)
        hidden = layers.ReLU()(layers.BatchNormalization()(hidden))
    hidden = layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, layers.Dense(CLASSES)(hidden)), (32, 32, 3)


def resnet8() -> tuple[Any, tuple[int, ...]]:
    """MLPerf Tiny's ResNet8."""
    return resnet.build(input_shape=(32, 32, 3)), (32, 32, 3)


def mobilenet() -> tuple[Any, tuple[int, ...]]:
    """MobileNetV2 of width 0.35."""
    model = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3),
        alpha=0.35,
        weights=None,
        classes=CLASSES,
        classifier_activation=None,
    )
    return model, (32, 32, 3)


MODELS: dict[str, Callable[[], tuple[Any, tuple[int, ...]]]] = {
    "dense": dense,
    "cnn": cnn,
    "resnet8": resnet8,
    "mobilenet": mobilenet,
}


_ON_SEVERAL = ("dense", "cnn")
"""Four logical CPUs take minutes for a step of the others on two cores."""


def plain(model: Any) -> Any:
    """Compile a model as Keras' users do."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, metrics=["accuracy"])
    return model


def engine(model: Any, devices: Devices, share: int, micro_batch_size: int | None) -> Any:
    """Put a model under the training loop."""
    trainer = MicroBatchTrainer(
        TrainingSetup(
            model,
            SupervisedObjective("sparse_categorical_crossentropy", from_logits=True),
            TrainingConfig(),
            devices,
            ["accuracy"],
        ),
        BatchPlan(1, share, micro_batch_size or share, never_empty=True),
        # As in a real run, each step keeps what it takes to be made again.
        Retries(lambda step: iter(())),
    )
    trainer.compile(optimizer=keras.optimizers.Adam())
    trainer.optimizer.build(model.trainable_variables)
    return trainer


def step_ms(trainable: Any, batches: Any, steps: int) -> float:
    """Time `steps` updates of a model that has run before."""
    started = time.perf_counter()
    trainable.fit(batches, epochs=1, steps_per_epoch=steps, verbose=0)
    return 1000 * (time.perf_counter() - started) / steps


def compare(
    name: str,
    replicas: int,
    batch_size: int,
    micro_batch_size: int | None,
    steps: int,
    runs: int,
) -> str:
    """Return a line with the engine's milliseconds per step beside plain Keras'."""
    devices = open_devices(TrainingConfig(replicas=replicas))
    trainables = {}
    for kind in ("keras", "engine"):
        keras.utils.set_random_seed(0)
        with devices.scope():
            model, shape = MODELS[name]()
            share = -(-batch_size // replicas)
            trainables[kind] = (
                plain(model) if kind == "keras" else engine(model, devices, share, micro_batch_size)
            )
    random = np.random.default_rng(0)
    x = random.normal(size=(batch_size * 8, *shape)).astype(np.float32)
    y = random.integers(0, CLASSES, len(x))
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size).cache().repeat()
    batches = distribute_batches(rows.prefetch(4), devices)
    for trainable in trainables.values():
        step_ms(trainable, batches, 5)
    ways = {
        kind: functools.partial(step_ms, trainable, batches, steps)
        for kind, trainable in trainables.items()
    }
    found = by_turns(ways, runs)
    medians = {kind: statistics.median(values) for kind, values in found.items()}
    pairs = sorted(e / k for e, k in zip(found["engine"], found["keras"], strict=True))
    return (
        f"{name:10} {replicas} replicas, batch {batch_size}: keras {medians['keras']:8.2f} ms,"
        f" engine {medians['engine']:8.2f} ms, ratio {statistics.median(pairs):.3f}"
        f" ({pairs[0]:.3f} to {pairs[-1]:.3f}, {runs} runs of {steps} steps)"
    )


_BUILDER = """
from tests.benchmarks.bench_training import dense


def build():
    return dense()[0]
"""


def compare_command() -> None:
    """Print what the same steps take by the command and by `fit`, in seconds."""
    with tempfile.TemporaryDirectory(prefix="bench-training-") as name:
        folder = Path(name)
        random = np.random.default_rng(0)
        count = round(_STEPS_PER_EPOCH * _COMMAND_BATCH / (1 - _TEST_SPLIT - _VALIDATION_SPLIT))
        x = random.normal(size=(count, 32)).astype(np.float32)
        y = random.integers(0, CLASSES, count)
        np.savez(folder / "train.npz", x=x, y=y)
        (folder / "dense.py").write_text(_BUILDER, encoding="utf-8")
        seconds = {
            "shrink": _difference(functools.partial(_by_command, folder)),
            "fit": apart(_by_fit, folder=str(folder)),
        }
    steps = (_EPOCHS - 1) * _STEPS_PER_EPOCH
    ratio = seconds["shrink"] / seconds["fit"]
    say(
        f"{steps:,} steps: shrink run {seconds['shrink']:.1f} s, fit {seconds['fit']:.1f} s,"
        f" ratio {ratio:.2f}"
    )


def _difference(train: Callable[[int], float]) -> float:
    return train(_EPOCHS) - train(1)


def _by_command(folder: Path, epochs: int) -> float:
    recipe = {
        "name": "dense",
        "model": "dense.py:build",
        "data": {
            "source": "npz",
            "path": "train.npz",
            "test_split": _TEST_SPLIT,
            "validation_split": _VALIDATION_SPLIT,
        },
        "task": {"from_logits": True},
        "training": {"global_batch_size": _COMMAND_BATCH},
        "stages": [{"train": {"epochs": epochs}}],
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": root,
        "SHRINK_CACHE_DIR": str(folder / f"store-{epochs}"),
    }
    command = [sys.executable, "-m", "shrink", "run", "recipe.yaml", "--output", f"out-{epochs}"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--quiet"], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - started


def _by_fit(folder: str) -> float:
    """Return the seconds of `fit` on prefetched batches; runs in a process of its own."""
    arrays, count = np.load(Path(folder) / "train.npz"), _STEPS_PER_EPOCH * _COMMAND_BATCH
    rows = tf.data.Dataset.from_tensor_slices((arrays["x"][:count], arrays["y"][:count]))
    batches = rows.shuffle(count).batch(_COMMAND_BATCH).prefetch(4)
    checks = tf.data.Dataset.from_tensor_slices((arrays["x"][-80:], arrays["y"][-80:]))

    def train(epochs: int) -> float:
        model = plain(dense()[0])
        started = time.perf_counter()
        model.fit(batches, epochs=epochs, verbose=0, validation_data=checks.batch(_COMMAND_BATCH))
        return time.perf_counter() - started

    return _difference(train)


if __name__ == "__main__":
    main()
