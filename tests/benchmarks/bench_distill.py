"""What a teacher costs, what it is worth, and what it loses when its outputs are stored.

Run: python -m tests.benchmarks.bench_distill cost [--rounds 3] [--examples 4096]
         [--teacher-width 1.0] [--ways alone cached live tutorial]
     python -m tests.benchmarks.bench_distill worth --model resnet8.h5 --data pictures
         [--images 5000] [--epochs 10] [--seeds 0 1 2]
     python -m tests.benchmarks.bench_distill stored [--epochs 10] [--seeds 0 1 2]
     python -m tests.benchmarks.bench_distill teacher [--epochs 6] [--seeds 0 1 2]

cost: student and teacher are ResNet8s for 32x32 images (random ones; time and memory are the
same), the student of width 0.5. Every way runs in a process of its own, in turns, `--rounds` times:

  alone     the student on hard labels, by shrink
  cached    by shrink, from cached teacher outputs
  live      by shrink, the teacher run on every batch
  tutorial  keras.io's Distiller, "Knowledge Distillation" (Borup 2020), `Model.fit`

Prints medians: seconds per epoch after the first, by the clock and of all cores together (which a
busy machine changes less), what the teacher's forward pass costs of the student's training, the
first epoch by whose end cached took no longer than another way, the teacher's single pass and the
building of graphs included, allocator peaks, and the largest difference between the weights of
cached and live, as a fraction of the largest weight of their array.

worth: the same student with and without its teacher, for the same updates. `--data` is a folder
train/<class>/*.jpg and test/<class>/*.jpg. Each seed draws its own few training images,
stratified; a tenth is for validation. Two students of at most a quarter of the teacher's parameters
are distilled by the stage with `control: true`: one that starts from random weights and one that is
cut from the teacher. Prints each student's accuracy on the whole test split alone and taught, and
over the seeds the mean gain with its 95 % interval (Student's t).

stored: the digits' network teaches one of a quarter of its width from cached outputs, its ten
logits stored as float32 and as float16. Prints for each the bytes, the accuracy on the test digits
of all seeds together, and its difference to float32 with the 95 % interval, paired over the same
digits.

teacher: keras.io's Distiller in its form for Keras 3, on the digits. Prints the test accuracy of
the teacher before and after the student was trained.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import tf_keras as keras

from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.run import run as distill
from tests.benchmarks.harness import apart, by_turns, say_json, subcommands
from tests.jobs import context_of, source

WAYS = ("alone", "cached", "live", "tutorial")
_EPOCHS, _BATCH = 3, 64
_STUDENTS = ["from-random", "from-teacher"]
_STORED = ("float32", "float16")
Runs = dict[str, list[dict[str, Any]]]


def main() -> None:
    """Print what was asked for, in lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(parser, {"cost": cost, "worth": worth, "stored": stored, "teacher": teacher})
    of["cost"].add_argument("--rounds", type=int, default=3)
    of["cost"].add_argument("--examples", type=int, default=4096)
    of["cost"].add_argument("--teacher-width", type=float, default=1.0)
    of["cost"].add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    of["worth"].add_argument("--model", type=Path, required=True)
    of["worth"].add_argument("--data", type=Path, required=True)
    of["worth"].add_argument("--images", type=int, default=5000)
    of["worth"].add_argument("--width", type=float, default=0.48)
    of["worth"].add_argument("--students", nargs="+", choices=_STUDENTS, default=_STUDENTS)
    for name in ("worth", "stored"):
        of[name].add_argument("--epochs", type=int, default=10)
        of[name].add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    of["teacher"].add_argument("--epochs", type=int, default=6)
    of["teacher"].add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    options.run(options)


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


def cost(arguments: argparse.Namespace) -> None:
    """Seconds and memory of each way to train with a teacher, and their ratios."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _write(work, arguments)
        ways = {
            way: functools.partial(apart, _train, way=way, folder=name) for way in arguments.ways
        }
        _report(by_turns(ways, arguments.rounds), work)


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
        say_json({**row, "break_even": _break_even(runs, until)})
    peaks = _medians(runs, "peak_bytes")
    say_json({"teacher_s": _medians(runs, "teacher_s"), "peak_bytes": peaks})
    if {"cached", "live"} <= runs.keys():
        cached, live = (np.load(work / f"{way}.npz") for way in ("cached", "live"))
        furthest = max(_relative(cached[name], live[name]) for name in live.files)
        say_json({"weights_cached_to_live": furthest})


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
    """Write images, teacher and student."""
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


def _train(way: str, folder: str) -> dict[str, Any]:
    """Return the figures of one way; its weights are left in the folder."""
    work = Path(folder)
    return _tutorial(work) if way == "tutorial" else _by_shrink(way, work)


def _by_shrink(way: str, work: Path) -> dict[str, Any]:
    from shrink.base.progress import Progress
    from shrink.contract.events import Event
    from shrink.stages.train.config import TrainConfig
    from shrink.stages.train.run import run as train

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
    cached = result.details.teacher_cache if result.details is not None else None
    return {
        **clock.figures(),
        "peak_bytes": record.peaks["training_peak_bytes"].value,
        "teacher_s": None if cached is None else cached.duration_s,
    }


def _tutorial(work: Path) -> dict[str, Any]:
    import tensorflow as tf

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


def worth(arguments: argparse.Namespace) -> None:
    """Accuracy of each student alone and taught, and the mean gain over seeds."""
    from shrink.base.intervals import mean_interval

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        test = _read(_files(arguments.data / "test"))
        for seed in arguments.seeds:
            for row in _students(arguments, seed, test, Path(name)):
                rows.append(row)
                say_json(row)
    for student in dict.fromkeys(row["student"] for row in rows):
        gains = [row["gain"] for row in rows if row["student"] == student]
        interval = mean_interval(gains)
        say_json({"student": student, "gain_points": gains, "mean": interval.value,
                "low": interval.low, "high": interval.high})  # fmt: skip


def _students(
    arguments: argparse.Namespace, seed: int, test: tuple[Any, Any], work: Path
) -> Iterator[dict[str, Any]]:
    data = work / f"{seed}.npz"
    x, y = _read(_few(_files(arguments.data / "train"), arguments.images, seed))
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
    assert result.details is not None
    control = result.details.control
    assert control is not None
    gain = control.gain["accuracy"]
    history = result.training.history
    return {
        "parameters": result.model.count_params(),
        "updates": result.training.updates,
        "teacher": 100 * control.teacher["accuracy"],
        "alone": 100 * control.alone["accuracy"],
        "taught": 100 * control.taught["accuracy"],
        "taught_on_validation": 100 * history["val_accuracy"][-1],
        "gain": 100 * gain.value,
        "gain_low": 100 * cast(float, gain.low),
        "gain_high": 100 * cast(float, gain.high),
    }


def _files(folder: Path) -> list[list[Path]]:
    return [sorted(c.iterdir()) for c in sorted(folder.iterdir()) if c.is_dir()]


def _few(classes: Sequence[list[Path]], count: int, seed: int) -> list[list[Path]]:
    random, each = np.random.default_rng(seed), count // len(classes)
    return [[c[i] for i in random.permutation(len(c))[:each]] for c in classes]


def _read(classes: Sequence[list[Path]]) -> tuple[np.ndarray, np.ndarray]:
    from PIL import Image

    x = np.stack([np.asarray(Image.open(path)) for files in classes for path in files])
    return x, np.repeat(np.arange(len(classes)), [len(files) for files in classes])


def stored(arguments: argparse.Namespace) -> None:
    """Bytes of cached teacher outputs, and what the student is worth that learned from them."""
    from shrink.base.intervals import paired_interval
    from shrink.data.config import DataConfig
    from shrink.data.opening import open_dataset

    dataset = open_dataset(DataConfig(source="digits"), seed=0)
    right: dict[str, list[float]] = {dtype: [] for dtype in _STORED}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _write_models(work, dataset, arguments.epochs)
        for seed in arguments.seeds:
            for dtype in _STORED:
                found, sizes[dtype] = _taught(work, dataset, dtype, seed, arguments)
                right[dtype] += found
    for dtype in _STORED:
        gain = paired_interval(right["float32"], right[dtype])
        row = {
            "cache_dtype": dtype,
            "bytes": sizes[dtype],
            "accuracy": float(np.mean(right[dtype])),
            "to_float32": gain.value,
            "low": gain.low,
            "high": gain.high,
        }
        say_json(row)


def teacher(arguments: argparse.Namespace) -> None:
    """Accuracy of a teacher before and after the tutorial's Distiller for Keras 3."""
    import keras as keras3
    from sklearn.datasets import load_digits

    ops, layers = keras3.ops, keras3.layers
    crossentropy = keras3.losses.SparseCategoricalCrossentropy(from_logits=True)
    divergence = keras3.losses.KLDivergence()

    class Distiller(keras3.Model):
        """The class of the tutorial: `compute_loss` calls the teacher, `fit` trains all weights."""

        def __init__(self, student: Any, taught_by: Any) -> None:
            super().__init__()
            self.teacher, self.student = taught_by, student

        def compute_loss(self, x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
            probabilities = ops.softmax(self.teacher(x, training=False) / 10, axis=1)
            soft = divergence(probabilities, ops.softmax(y_pred / 10, axis=1)) * 100
            return 0.1 * crossentropy(y, y_pred) + 0.9 * soft

        def call(self, x: Any) -> Any:
            return self.student(x)

    def network(width: int) -> Any:
        convolutions = [
            layers.Conv2D(width, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.MaxPooling2D(2, strides=1, padding="same"),
            layers.Conv2D(2 * width, 3, strides=2, padding="same"),
        ]
        inputs = keras3.Input((8, 8, 1))
        return keras3.Sequential([inputs, *convolutions, layers.Flatten(), layers.Dense(10)])

    digits = load_digits()
    x, y = digits.images[..., None].astype("float32") / 16, digits.target
    for seed in arguments.seeds:
        keras3.utils.set_random_seed(seed)
        model = network(64)
        model.compile(optimizer="adam", loss=crossentropy, metrics=["accuracy"])
        model.fit(x[:1400], y[:1400], batch_size=64, epochs=30, verbose=0)
        before = model.evaluate(x[1400:], y[1400:], verbose=0)[1]
        distiller = Distiller(network(8), model)
        distiller.compile(optimizer="adam")
        distiller.fit(x[:1400], y[:1400], batch_size=64, epochs=arguments.epochs, verbose=0)
        after = model.evaluate(x[1400:], y[1400:], verbose=0)[1]
        say_json({"seed": seed, "teacher_before": before, "teacher_after": after})


def _write_models(work: Path, dataset: Any, epochs: int) -> None:
    from models.digits_cnn import build

    keras.utils.set_random_seed(0)
    teacher = build()
    x, y = dataset.train.arrays(np.arange(len(dataset.train)))
    teacher.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    teacher.fit(np.asarray(x, np.float32), y, epochs=epochs, verbose=0)
    teacher.save(work / "teacher.keras")
    build(width=0.25).save(work / "student.keras")


def _taught(
    work: Path, dataset: Any, dtype: str, seed: int, arguments: argparse.Namespace
) -> tuple[list[float], int]:
    """Return whether each test digit is right, 1.0 or 0.0, and the bytes of the outputs."""
    inputs = {"model": work / "student.keras", "teacher": work / "teacher.keras"}
    optimizer = {"name": "adam", "learning_rate": 3e-3, "schedule": "cosine"}
    training = {"seed": seed, "optimizer": optimizer}
    keras.utils.set_random_seed(seed)
    context = context_of(work, kind="distill", inputs=inputs, training=training)
    settings = {"cache_dtype": dtype, "epochs": arguments.epochs}
    result = distill(DistillConfig.model_validate({**settings, "teacher_cache": "on"}), context)
    assert result.model is not None
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    chosen = np.asarray(result.model(np.asarray(x, np.float32))).argmax(axis=1)
    assert result.details is not None
    assert result.details.teacher_cache is not None
    return (chosen == y).astype(float).tolist(), result.details.teacher_cache.bytes


if __name__ == "__main__":
    main()
