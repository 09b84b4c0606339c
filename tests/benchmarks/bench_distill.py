"""What a teacher costs while a student trains: asked once, on every batch, or as in the tutorial.

Run: python tests/benchmarks/bench_distill.py [--rounds 3] [--examples 4096] [--teacher-width 1.0]
    [--ways alone cached live tutorial]

Student and teacher are ResNet8s for 32x32 pictures (random ones; time and memory are the same),
the student of width 0.5. Every way runs in a process of its own, in turns, `--rounds` times:

alone     the student on hard labels, by shrink
cached    by shrink, the teacher asked once before
live      by shrink, the teacher asked on every batch
tutorial  keras.io's Distiller, "Knowledge Distillation" (Borup 2020), `Model.fit`

Prints medians: seconds per epoch after the first, by the clock and of all cores together (which a
busy machine changes less), what the teacher's forward pass costs of the student's training, the
first epoch by whose end cached took no longer than another way, the teacher's single pass and the
building of graphs included, allocator peaks, and the largest difference between the weights of
cached and live, as a fraction of the largest weight of their array.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

WAYS = ("alone", "cached", "live", "tutorial")
_EPOCHS, _BATCH = 3, 64
Runs = dict[str, list[dict[str, Any]]]


class Clock:
    """Seconds since it was made, by the clock and by all cores, noted at the end of each epoch."""

    def __init__(self) -> None:
        self._began = (time.perf_counter(), time.process_time())
        self._ends: list[tuple[float, float]] = []

    def note(self) -> None:
        """Note the end of an epoch."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._ends.append((wall - self._began[0], cpu - self._began[1]))

    def figures(self) -> dict[str, Any]:
        """Return the seconds of an epoch after the first, and those until each epoch's end."""
        walls, cpus = zip(*self._ends, strict=True)
        return {
            "epoch_s": statistics.median(np.diff(walls)),
            "epoch_cpu_s": statistics.median(np.diff(cpus)),
            "until_s": walls,
            "until_cpu_s": cpus,
        }


def main() -> None:
    """Run each way in turns and print the medians and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=4096)
    parser.add_argument("--teacher-width", type=float, default=1.0)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        _print(_measure(arguments.way, arguments.work))
        return
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _write(work, arguments)
        runs: Runs = {way: [] for way in arguments.ways}
        for _ in range(arguments.rounds):
            for way in arguments.ways:
                runs[way].append(_child(way, work))
        _report(runs, work)


def _child(way: str, work: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_distill"]
    done = subprocess.run(
        [*command, "--way", way, "--work", str(work)], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _report(runs: Runs, work: Path) -> None:
    for by, epoch, until in (
        ("the clock", "epoch_s", "until_s"),
        ("all cores", "epoch_cpu_s", "until_cpu_s"),
    ):
        epochs = _medians(runs, epoch)
        row: dict[str, Any] = {"by": by, epoch: epochs}
        if {"alone", "cached"} <= epochs.keys():
            row["cached_to_alone"] = epochs["cached"] / epochs["alone"]
        if {"alone", "live"} <= epochs.keys():
            row["teacher_to_student"] = epochs["live"] / epochs["alone"] - 1
        if {"cached", "tutorial"} <= epochs.keys():
            row["tutorial_to_cached"] = epochs["tutorial"] / epochs["cached"]
        _print({**row, "break_even": _break_even(runs, until)})
    peaks = _medians(runs, "peak_bytes")
    _print({"teacher_s": _medians(runs, "teacher_s"), "peak_bytes": peaks})
    if {"cached", "live"} <= runs.keys():
        cached, live = (np.load(work / f"{way}.npz") for way in ("cached", "live"))
        apart = max(_relative(cached[name], live[name]) for name in live.files)
        _print({"weights_cached_to_live": apart})


def _medians(runs: Runs, name: str) -> dict[str, float]:
    """Return a figure's median for each way that has it."""
    return {
        way: statistics.median(run[name] for run in found)
        for way, found in runs.items()
        if all(run.get(name) is not None for run in found)
    }


def _relative(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / np.abs(other).max())


def _break_even(runs: Runs, name: str) -> dict[str, int | None]:
    """Return the first epoch by whose end cached was no slower, None where it always was."""

    def ends(way: str) -> list[float]:
        return [
            statistics.median(run[name][epoch] for run in runs[way]) for epoch in range(_EPOCHS)
        ]

    found: dict[str, int | None] = {}
    if "cached" not in runs:
        return found
    cached = ends("cached")
    for way in runs.keys() & {"live", "tutorial"}:
        pairs = enumerate(zip(cached, ends(way), strict=True), 1)
        found[way] = next((epoch for epoch, (one, other) in pairs if one <= other), None)
    return found


def _write(work: Path, arguments: argparse.Namespace) -> None:
    """Write pictures, teacher and student."""
    import tf_keras as keras

    from models.resnet import build

    random = np.random.default_rng(0)
    count = arguments.examples
    x = random.integers(0, 256, (count + 64, 32, 32, 3), np.uint8)
    y = np.arange(count + 64) % 10
    np.savez(
        work / "data.npz", x_train=x[:count], y_train=y[:count], x_validation=x[count:],
        y_validation=y[count:], x_test=x[count:], y_test=y[count:],
    )  # fmt: skip
    keras.utils.set_random_seed(0)
    build(width=arguments.teacher_width).save(work / "teacher.keras")
    build(width=0.5).save(work / "student.keras")


def _measure(way: str, work: Path) -> dict[str, Any]:
    return _tutorial(work) if way == "tutorial" else _by_shrink(way, work)


def _by_shrink(way: str, work: Path) -> dict[str, Any]:
    import tf_keras as keras

    from shrink.base.activity import Progress
    from shrink.contract.events import Event
    from shrink.stages.distill.config import DistillConfig
    from shrink.stages.distill.run import run as distill
    from shrink.stages.train.config import TrainConfig
    from shrink.stages.train.run import run as train
    from tests.jobs import context_of

    optimizer = {"name": "sgd", "learning_rate": 0.01}
    settings = {"global_batch_size": _BATCH, "optimizer": optimizer}
    inputs = {"model": work / "student.keras", "teacher": work / "teacher.keras"}
    data = {"source": "npz", "path": str(work / "data.npz")}
    with tempfile.TemporaryDirectory() as folder:
        keras.utils.set_random_seed(0)
        clock = Clock()

        def listen(event: Event) -> None:
            if isinstance(event, Progress) and event.epoch_end:
                clock.note()

        context = context_of(
            Path(folder),
            listen,
            kind="distill",
            inputs=inputs,
            data=data,
            training=settings,
            teachers=Path(folder),
        )
        if way == "alone":
            result = train(TrainConfig.model_validate({"epochs": _EPOCHS}), context)
        else:
            cache = "on" if way == "cached" else "off"
            config = {"epochs": _EPOCHS, "teacher_cache": cache}
            result = distill(DistillConfig.model_validate(config), context)
    assert result.model is not None
    assert result.training is not None
    np.savez(work / f"{way}.npz", *result.model.get_weights())
    record = result.training
    told = (result.details or {}).get("teacher_cache", {})
    return {
        **clock.figures(),
        "peak_bytes": record.training_peak_bytes.value,
        "teacher_s": told.get("duration_s"),
    }


def _tutorial(work: Path) -> dict[str, Any]:
    import tensorflow as tf
    import tf_keras as keras

    class Distiller(keras.Model):
        """The class of the tutorial, https://keras.io/examples/vision/knowledge_distillation."""

        def __init__(self, student: Any, teacher: Any) -> None:
            super().__init__()
            self.student, self.teacher = student, teacher
            self.hard = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            self.soft = keras.losses.KLDivergence()

        def call(self, x: Any) -> Any:
            return self.student(x)

        def train_step(self, data: Any) -> Any:
            x, y = data
            taught = self.teacher(x, training=False)
            with tf.GradientTape() as tape:
                own = self.student(x, training=True)
                soft = self.soft(tf.nn.softmax(taught / 4.0), tf.nn.softmax(own / 4.0))
                loss = 0.1 * self.hard(y, own) + 0.9 * soft * 16.0
            variables = self.student.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables, strict=True)
            )
            self.compiled_metrics.update_state(y, own)
            return {m.name: m.result() for m in self.metrics}

    arrays = np.load(work / "data.npz")
    x, y = arrays["x_train"], arrays["y_train"]
    clock = Clock()
    models = [keras.models.load_model(work / f"{n}.keras") for n in ("student", "teacher")]
    distiller = Distiller(*models)
    distiller.compile(optimizer=keras.optimizers.SGD(0.01), metrics=["sparse_categorical_accuracy"])
    batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(_BATCH)
    batches = batches.map(lambda x, y: (tf.cast(x, tf.float32), y)).prefetch(2)
    told = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: clock.note())
    distiller.fit(batches, epochs=_EPOCHS, verbose=0, callbacks=[told])
    return clock.figures()


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
