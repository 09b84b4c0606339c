"""From what and for how long `prune: {method: channels}` fine-tunes when a recipe leaves it open.

Run: python -m tests.benchmarks.bench_defaults record --work FOLDER --cifar10 IMAGES
         [--only posture digits ...] [--seeds 0 1 2 3 4]
     python -m tests.benchmarks.bench_defaults rules --work FOLDER [--only ...]

IMAGES has {train,test}/<class>/*.jpg. `record` trains each model, removes channels until half of
the parameters are left, with the defaults of the stage, and fine-tunes: once with the unpruned
model as teacher of the first training, once on labels alone. Each further training has as many
updates as all before it. Recorded are the loss of every validation example and the test figure
after each training, until two in a row do not lower the loss by a standard error. A model of the
same size is trained from random weights for as long as the unpruned one. Finished rows are kept, so
an interrupted recording continues.

`rules` replays the rows: points lost against the unpruned model (of accuracy, or of R^2 times 100;
median and worst over the seeds) and the mean number of updates that each rule makes.

The rule was chosen on CHOSEN_ON. HELD_OUT was recorded once, after that.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from PIL import Image
from sklearn import datasets

from shrink.base.types import Array, Tensors
from shrink.data.examples import Examples
from shrink.engine.objective import Objective
from shrink.graph.groups import find_groups
from shrink.graph.rebuild import rebuild
from shrink.recipe.load import load_recipe
from shrink.stages.context import StageContext
from shrink.stages.prune.automatic import settle, sharing
from shrink.stages.prune.choice import choose
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.fine_tuning import fine_tuning
from shrink.stages.prune.length import MOST_UPDATES, first_epochs
from shrink.stages.prune.targets import find_target
from tests.benchmarks.harness import say
from tests.jobs import context_of

L = keras.layers
_RECIPES = Path(__file__).parents[2] / "recipes"
_CLASSES = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
_MSE, _PROBABILITIES = "mean_squared_error", "sparse_categorical_crossentropy"

CHOSEN_ON = ("diabetes", "cancer", "posture", "table", "digits", "tones", "series", "wide")
HELD_OUT = ("friedman", "activity", "sounds", "pixels")


@dataclass(frozen=True)
class Case:
    """A model and its data.

    Attributes:
        build: the model, with random weights.
        data: the data section of a recipe, or arrays by seed.
        epochs: of the training before pruning.
        rate: of that training, falling to 0 by a cosine.
        loss: that the model is compiled with.
        most: updates of fine-tuning that are recorded.
    """

    build: Callable[[], keras.Model]
    data: Mapping[str, Any] | Callable[[int], dict[str, Array]]
    epochs: int
    rate: float
    loss: Any = _CLASSES
    most: int = MOST_UPDATES
    batch: int = 64

    @property
    def metric(self) -> str:
        """The metric of which points are lost."""
        return "r2" if self.loss == _MSE else "accuracy"


def posture(seed: int) -> dict[str, Array]:
    """Return 8x8 frames of a time-of-flight sensor: distance and signal of eight hand postures."""
    random, blobs = np.random.default_rng(100 + seed), np.random.default_rng(7)
    rows, columns = np.mgrid[0:8, 0:8]
    shapes, y = blobs.normal(size=(8, 10, 3)), random.integers(0, 8, 9000)
    x = np.zeros((9000, 8, 8, 2), np.float32)
    for frame, posture_of in zip(x, y, strict=True):
        depth, turn, scale = (
            random.uniform(200, 450),
            random.normal(0, 0.25),
            random.uniform(0.75, 1.25),
        )
        center, hand = random.normal(3.5, 0.7, 2), np.zeros((8, 8))
        for u, v, width in shapes[posture_of, :6] * (1.9, 1.9, 1.0):
            across = scale * (u * np.cos(turn) - v * np.sin(turn)) + random.normal(0, 0.16)
            down = scale * (u * np.sin(turn) + v * np.cos(turn)) + random.normal(0, 0.16)
            square = (columns - center[0] - across) ** 2 + (rows - center[1] - down) ** 2
            hand = np.maximum(hand, np.exp(-square / (1.1 + 0.3 * abs(width))))
        on, behind = hand > random.uniform(0.28, 0.42), random.uniform(600, 1500)
        slope = 25 * random.normal() * (columns - 3.5) / 4 + 30 * (1 - hand)
        distance = np.where(on, depth + slope, behind) + random.normal(0, 12, (8, 8))
        signal = np.where(
            on, 4000 * (250 / depth) ** 2 * (0.6 + 0.4 * hand), 300 * (600 / behind) ** 2
        )
        frame[..., 0] = (distance - 295) / 196
        frame[..., 1] = (signal * np.exp(random.normal(0, 0.15, (8, 8))) - 281) / 452
    return {"x": x, "y": y}


def activity(seed: int) -> dict[str, Array]:
    """Return windows of 48 readings of a 3-axis accelerometer, worn at any tilt: six activities."""
    random, y = np.random.default_rng(200 + seed), np.random.default_rng(seed).integers(0, 6, 6000)
    rates = np.array([1.6, 1.8, 2.0, 2.7, 3.0, 0.5])[y] * random.lognormal(0, 0.08, len(y))
    impact = np.array([0.3, 0.6, 0.35, 1.2, 0.8, 0.1])[y] * random.lognormal(0, 0.25, len(y))
    sway = np.array([0.3, 0.2, 0.5, 0.5, 0.9, 0.2])[y] * random.lognormal(0, 0.25, len(y))
    phase = 2 * np.pi * (rates[:, None] * np.arange(48) / 24 + random.random((len(y), 1)))
    up = impact[:, None] * np.maximum(np.sin(phase), 0) ** 2
    body = np.stack(
        [sway[:, None] * np.sin(phase / 2), 0.4 * impact[:, None] * np.cos(phase), 1 + up], -1
    )
    tilt = random.normal(0, 0.5, len(y))
    turned = body[..., 1] * np.sin(tilt)[:, None] + body[..., 2] * np.cos(tilt)[:, None]
    body[..., 1] = body[..., 1] * np.cos(tilt)[:, None] - body[..., 2] * np.sin(tilt)[:, None]
    body[..., 2] = turned - 1
    return {"x": (body + random.normal(0, 0.3, body.shape)).astype(np.float32), "y": y}


def sounds(seed: int) -> dict[str, Array]:
    """Return log spectrograms (15 frames, 16 bands) of half a second of sound in noise at 8 kHz.

    The eight classes: steady, rising, falling, tremolo, vibrato, two alternating tones, clicks, and
    a band of noise.
    """
    random, time_s = np.random.default_rng(300 + seed), np.arange(4096) / 8000
    y = random.integers(0, 8, 4000)
    x = np.zeros((len(y), 15, 16, 1), np.float32)
    window = np.hanning(256)
    for row, kind in zip(x, y, strict=True):
        pitch, slow = random.uniform(300, 1500), random.uniform(5, 12)
        swing = np.sin(2 * np.pi * (slow * time_s + random.random()))
        hertz = pitch * np.ones_like(time_s)
        if kind in (1, 2):
            hertz = pitch * np.exp(random.uniform(0.2, 0.8) * (time_s if kind == 1 else -time_s))
        elif kind == 4:
            hertz = pitch * (1 + random.uniform(0.03, 0.1) * swing)
        elif kind == 5:
            hertz = pitch * np.where(swing > 0, 1, random.uniform(1.06, 1.25))
        phase = 2 * np.pi * np.cumsum(hertz) / 8000
        wave = sum(random.random() / n * np.sin(n * phase) for n in (1, 2, 3)) + np.sin(phase)
        if kind == 3:
            wave = wave * (1 + random.uniform(0.4, 1) * swing)
        elif kind == 6:
            wave = 4 * np.maximum(swing, 0) ** 20 * random.normal(size=4096) + 0.3 * wave
        elif kind == 7:
            wave = np.sin(phase + np.cumsum(random.normal(0, random.uniform(0.15, 0.4), 4096)))
        wave = wave / wave.std() + random.normal(size=4096) * 10 ** random.uniform(-0.6, 0.3)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::260] * window
        power = np.abs(np.fft.rfft(frames)[:, 1:]) ** 2
        row[..., 0] = np.log(power.reshape(15, 16, 8).mean(-1)) / 2 - 2
    return {"x": x, "y": y}


def _scaled(x: Array, y: Array, *, classes: bool = True) -> dict[str, Array]:
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    return {"x": x, "y": y if classes else ((y - y.mean()) / y.std()).astype(np.float32)[:, None]}


def _table() -> dict[str, Array]:
    x, y = datasets.make_classification(
        20_000,
        20,
        n_informative=10,
        n_redundant=4,
        n_classes=6,
        n_clusters_per_class=4,
        flip_y=0.03,
        class_sep=1.3,
        random_state=3,
    )
    return {"x": x.astype(np.float32), "y": y}


def _pictures(folder: Path | None, train: int) -> Callable[[int], dict[str, Array]]:
    """Return CIFAR-10: so many to train on; of the test images 2,000 to validate, 4,000 to test."""

    def load(_: int) -> dict[str, Array]:
        if folder is None:
            raise SystemExit("--cifar10 is missing")
        random, splits = np.random.default_rng(5), dict[str, list[tuple[Array, int]]]()
        counts = {"train": {"train": train}, "test": {"validation": 2000, "test": 4000}}
        for source, wanted in counts.items():
            for number, of_class in enumerate(sorted((folder / source).iterdir())):
                files = sorted(of_class.iterdir())
                order = iter(random.permutation(len(files)))
                for split, count in wanted.items():
                    chosen = [files[next(order)] for _ in range(count // 10)]
                    pairs = [(np.asarray(Image.open(path)), number) for path in chosen]
                    splits.setdefault(split, []).extend(pairs)
        arrays = dict[str, Array]()
        for split, pairs in splits.items():
            shuffled = [pairs[n] for n in random.permutation(len(pairs))]
            arrays[f"x_{split}"] = np.array([image for image, _ in shuffled], np.float32)
            arrays[f"y_{split}"] = np.array([label for _, label in shuffled])
        return arrays

    return load


def _mlp(columns: int, hidden: tuple[int, ...], units: int) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        inputs = x = L.Input((columns,))
        for width in hidden:
            x = L.Dense(width, activation="relu")(x)
        return keras.Model(inputs, L.Dense(units)(x))

    return build


def _posture_model() -> keras.Model:
    inputs = L.Input((8, 8, 2))
    x = L.Dropout(0.2)(L.MaxPooling2D()(L.Conv2D(8, 3, activation="relu")(inputs)))
    x = L.Dense(32, activation="relu")(L.Flatten()(x))
    return keras.Model(inputs, L.Dense(8, activation="softmax")(x))


def _activity_model() -> keras.Model:
    inputs = L.Input((48, 3))
    x = L.Conv1D(16, 5, strides=2, padding="same", activation="relu")(inputs)
    x = L.Conv1D(24, 5, strides=2, padding="same", activation="relu")(x)
    x = L.Dense(32, activation="relu")(L.GlobalMaxPooling1D()(x))
    return keras.Model(inputs, L.Dense(6)(x))


def _convolution(x: tf.Tensor, channels: int, strides: int = 1) -> tf.Tensor:
    x = L.Conv2D(channels, 3, strides=strides, padding="same", use_bias=False)(x)
    return L.ReLU()(L.BatchNormalization(momentum=0.9)(x))


def _sounds_model() -> keras.Model:
    inputs = x = L.Input((15, 16, 1))
    for channels in (12, 24, 32):
        x = L.MaxPooling2D()(_convolution(x, channels))
    return keras.Model(inputs, L.Dense(8)(L.GlobalAveragePooling2D()(x)))


def _pixels_model() -> keras.Model:
    inputs = L.Input((32, 32, 3))
    x = L.Rescaling(1 / 127.5, offset=-1)(inputs)
    x = _convolution(_convolution(L.AveragePooling2D()(x), 16, 2), 32, 2)
    x = L.Dropout(0.3)(L.Dense(1024, activation="relu")(L.Flatten()(x)))
    x = L.Dropout(0.3)(L.Dense(640, activation="relu")(x))
    return keras.Model(inputs, L.Dense(10)(x))


def _wide_model() -> keras.Model:
    inputs = L.Input((32, 32, 3))
    x = L.Rescaling(1 / 127.5, offset=-1)(inputs)
    for channels in (32, 48):
        x = L.Conv2D(channels, 3, strides=2, padding="same", activation="relu")(x)
    x = L.Dropout(0.3)(L.Dense(896, activation="relu")(L.Flatten()(x)))
    return keras.Model(inputs, L.Dense(10)(L.Dense(256, activation="relu")(x)))


def _of_recipe(name: str, epochs: int, rate: float, **fields: Any) -> Case:
    recipe = load_recipe(_RECIPES / f"{name}.yaml").recipe
    file, _, function = str(recipe.model).partition(":")
    arguments = fields.pop("arguments", {})
    build = getattr(importlib.import_module(f"models.{Path(file).stem}"), function)
    data = recipe.data.model_dump(mode="json", exclude_unset=True) | {"slices": None}
    if recipe.data.path is not None:
        data["path"] = str(_RECIPES / recipe.data.path)
    return Case(lambda: build(**arguments), data, epochs, rate, **fields)


def cases(cifar10: Path | None) -> dict[str, Case]:
    """Return the models by name."""
    cancer, diabetes = datasets.load_breast_cancer(), datasets.load_diabetes()
    x, y = datasets.make_friedman1(6000, 10, noise=1.0, random_state=11)
    return {
        "diabetes": Case(
            _mlp(10, (32, 16), 1),
            lambda _: _scaled(diabetes.data, diabetes.target, classes=False),
            40,
            1e-3,
            loss=_MSE,
        ),
        "cancer": Case(
            _mlp(30, (24, 12), 2), lambda _: _scaled(cancer.data, cancer.target), 60, 2e-3
        ),
        "posture": Case(_posture_model, posture, 300, 3e-3, loss=_PROBABILITIES),
        "table": Case(_mlp(20, (64, 32), 6), lambda _: _table(), 30, 2e-3),
        "digits": _of_recipe("digits", 40, 3e-3, arguments={"width": 0.2}),
        "tones": _of_recipe("tones-keyword", 15, 5e-3),
        "series": _of_recipe("series-forecast", 12, 2e-3, loss=_MSE),
        "wide": Case(_wide_model, _pictures(cifar10, 12_000), 6, 1e-3, most=3760),
        "friedman": Case(
            _mlp(10, (40, 24), 1), lambda _: _scaled(x, y, classes=False), 40, 2e-3, loss=_MSE
        ),
        "activity": Case(_activity_model, activity, 20, 3e-3),
        "sounds": Case(_sounds_model, sounds, 20, 3e-3),
        "pixels": Case(_pixels_model, _pictures(cifar10, 4000), 8, 1e-3, most=2520),
    }


class Loop:
    """Trains a model by Adam with a cosine, many updates in one graph.

    That takes a tenth of the time of the package's own loop.

    Args:
        model: trained in place.
        objective: what is minimised.
        examples: to train on.
        batch: examples per update.
        seed: of their order.
    """

    def __init__(
        self, model: keras.Model, objective: Objective, examples: Examples, batch: int, seed: int
    ) -> None:
        data = tf.nest.map_structure(tf.constant, examples.arrays(np.arange(len(examples))))
        self._count, self._batch, self._random = len(examples), batch, np.random.default_rng(seed)
        self._optimizer = keras.optimizers.Adam()
        self._optimizer.build(model.trainable_variables)
        objective.begin(self._optimizer.iterations, 1)

        @tf.function(jit_compile=True)
        def update(x: Any, y: Any, rate: tf.Tensor) -> None:
            targets = objective.targets(x)
            self._optimizer.learning_rate.assign(rate)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(objective.loss(y, model(x, training=True), targets))
            gradients = tape.gradient(loss, model.trainable_variables)
            self._optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        def run(orders: tf.Tensor, rate: tf.Tensor) -> None:
            total = tf.shape(orders)[0]
            for n in tf.range(total):
                x, y = tf.nest.map_structure(lambda part, n=n: tf.gather(part, orders[n]), data)
                update(x, y, rate * (1 + tf.cos(np.pi * tf.cast(n / total, tf.float32))) / 2)

        self._run = tf.function(run, reduce_retracing=True)

    def train(self, updates: int, rate: float) -> None:
        """Make so many updates, with new moments and a new schedule."""
        for variable in self._optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        wanted = updates * self._batch
        epochs = [self._random.permutation(self._count) for _ in range(-(-wanted // self._count))]
        orders = np.concatenate(epochs)[:wanted].reshape(updates, self._batch).astype(np.int32)
        self._run(tf.constant(orders), tf.constant(rate, tf.float32))


def measured(
    model: keras.Model, objective: Objective, examples: Examples, metric: str
) -> tuple[Array, float]:
    """Return the loss of each example, (n,), and the metric times 100."""
    losses, outputs, labels = list[Array](), list[Array](), list[Array]()
    for start in range(0, len(examples), 500):
        x, y = examples.arrays(np.arange(start, min(start + 500, len(examples))))
        y = tf.nest.map_structure(tf.convert_to_tensor, y)
        output: Tensors = model(x, training=False)
        losses.append(np.asarray(objective.validation_loss(y, output)))
        outputs.append(np.asarray(output))
        labels.append(np.asarray(y))
    found, wanted = np.concatenate(outputs), np.concatenate(labels)
    if metric == "accuracy":
        score = np.mean(found.argmax(-1) == wanted.reshape(found.shape[:-1]))
    else:
        score = 1 - np.sum((found - wanted) ** 2) / np.sum((wanted - wanted.mean(0)) ** 2)
    return np.concatenate(losses), 100 * float(score)


def record(case: Case, seed: int, work: Path, ways: Iterable[str], failures: int) -> dict[str, Any]:
    """Train a model, prune it, fine-tune it in each way, and return what happened."""
    keras.utils.set_random_seed(seed)
    path, data = work / "model.keras", case.data
    if callable(data):
        arrays: dict[str, Any] = {**data(seed)}
        np.savez(work / "data.npz", **arrays)
        data = {"source": "npz", "path": str(work / "data.npz")}
    model = case.build()
    model.compile(loss=case.loss)
    model.save(path)

    def context() -> StageContext:
        return context_of(
            Path(tempfile.mkdtemp(dir=work)),
            kind="prune",
            inputs={"model": path},
            data=data,
            training={"seed": seed, "global_batch_size": case.batch},
            task={"metrics": [case.metric]},
            split_seed=seed,
        )

    def train(model: keras.Model) -> None:
        loop = Loop(model, context().task(model).objective(), splits.train, case.batch, seed)
        loop.train(max(1, case.epochs * len(splits.train) // case.batch), case.rate)

    splits = context().dataset
    model = context().load()
    train(model)
    model.compile(loss=case.loss)
    model.save(path)

    stage = context()
    objective = stage.task(stage.load()).objective()
    graph = find_groups(stage.load())
    config = PruneConfig.model_validate({"method": "channels", "parameters": 0.5})
    settled = settle(graph, config, stage)
    config, rate = settled.config, settled.training.optimizer.learning_rate
    target = find_target(graph, config, stage, sharing(graph, settled.curves, config, stage))
    chosen = choose(graph, target.counts, config, stage)
    pruned = rebuild(graph, graph.keep(chosen.removed), chosen.weights)
    start, first = pruned.get_weights(), first_epochs(config, stage)
    first *= -(-len(splits.train) // case.batch)

    def tuned(teacher: str | None) -> dict[str, Any]:
        pruned.set_weights(start)
        curve, tests, best, failed = list[Array](), list[float](), 0, 0
        with fine_tuning(pruned, graph, config.model_copy(update={"teacher": teacher}), stage) as (
            learning,
            toward,
        ):
            Loop(learning, toward, splits.train, case.batch, seed).train(first, rate)
        loop = Loop(pruned, stage.task(pruned).objective(), splits.train, case.batch, seed + 1)
        while True:
            curve.append(measured(pruned, objective, splits.validation, case.metric)[0])
            tests.append(measured(pruned, objective, splits.test, case.metric)[1])
            failed = 0 if len(curve) == 1 or falls(curve[best], curve[-1]) else failed + 1
            best = len(curve) - 1 if curve[-1].mean() <= curve[best].mean() else best
            made = first * 2 ** (len(curve) - 1)
            if failed == failures or 2 * made > case.most:
                return {"test": tests, "curve": _rounded(curve)}
            loop.train(made, rate)

    before, unpruned = (
        measured(stage.load(), objective, examples, case.metric)
        for examples in (splits.validation, splits.test)
    )
    row = {"first": first, "parameters": [model.count_params(), pruned.count_params()]}
    row |= {"before": unpruned[1], "unpruned_loss": float(before[0].mean())}
    if "teacher" in ways and config.teacher:
        row["teacher"] = tuned("self")
    if "labels" in ways or not config.teacher:
        row["labels"] = tuned(None)
    if "scratch" in ways:
        other = keras.models.clone_model(pruned)
        train(other)
        row["scratch"] = measured(other, objective, splits.test, case.metric)[1]
    return row


def _rounded(curve: Iterable[Array]) -> list[list[float]]:
    return [[float(f"{x:.5g}") for x in losses] for losses in curve]


def falls(before: Array, after: Array, errors: float = 1.0) -> bool:
    """Return whether a mean falls by more than so many standard errors, of 1,000 examples."""
    gains = (before - after)[:1000]
    return bool(gains.mean() > errors * gains.std(ddof=1) / len(gains) ** 0.5)


def replay(
    row: Mapping[str, Any], first: str, errors: float, failures: int = 1
) -> tuple[float, int]:
    """Return the points that are lost and the updates that are made by a rule.

    Args:
        row: what was recorded.
        first: `teacher` or `labels`, what the first training follows.
        errors: a training has to lower the loss by so many of its standard errors.
        failures: the last training is that which fails to for so many times in a row.
    """
    recorded = row[first] if first in row else row["labels"]
    curve, best, failed, n = [np.array(one) for one in recorded["curve"]], 0, 0, 0
    while failed < failures and n + 1 < len(curve):
        n += 1
        failed = 0 if falls(curve[best], curve[n], errors) else failed + 1
        best = n if curve[n].mean() < curve[best].mean() else best
    return row["before"] - recorded["test"][best], row["first"] * 2**n


RULES: dict[str, dict[str, Any]] = {
    "once": {"errors": 1.0, "failures": 0},
    "while it falls by one standard error": {"errors": 1.0},
    "by two standard errors": {"errors": 2.0},
    "at all": {"errors": 0.0},
    "by one, until it fails twice": {"errors": 1.0, "failures": 2},
}


def rules_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a Markdown table: the median and the worst points lost, and the updates, by rule."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row)

    lines = [f"| rule | {' | '.join(by_name)} |", "|---" * (len(by_name) + 1) + "|"]
    lines.append(f"| seeds | {' | '.join(str(len(found)) for found in by_name.values())} |")
    for first in ("teacher", "labels"):
        for rule, settings in RULES.items():
            cells = []
            for found in by_name.values():
                outcome = [
                    replay(row, first, **settings)
                    for row in found
                    if first in row or "labels" in row
                ]
                lost, updates = zip(*outcome, strict=True) if outcome else ((np.nan,), (np.nan,))
                cells.append(f"{np.median(lost):.2f}, {max(lost):.2f}, {np.mean(updates):,.0f}")
            lines.append(f"| {first} first, {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Record what is missing, or replay it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("verb", choices=["record", "rules"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[*CHOSEN_ON, *HELD_OUT])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--ways", nargs="*", default=["teacher", "labels"])
    parser.add_argument("--failures", type=int, default=2, help="1: stop as the package does")
    parser.add_argument("--cifar10", type=Path, help="train/<class>/*.jpg and test/<class>/*.jpg")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    path = options.work / "curves.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    rows = {(row["name"], row["seed"]): row for row in map(json.loads, lines)}
    if options.verb == "rules":
        say(
            rules_table(
                row for name in options.only for row in rows.values() if row["name"] == name
            )
        )
        return
    known = cases(options.cifar10)
    for seed in options.seeds:
        for name in options.only:
            if (name, seed) in rows:
                continue
            began = time.perf_counter()
            keras.backend.clear_session()
            with tempfile.TemporaryDirectory(dir=options.work) as folder:
                found = record(known[name], seed, Path(folder), options.ways, options.failures)
            row = {"name": name, "seed": seed, "wall_s": time.perf_counter() - began, **found}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
