"""How long `prune: {method: channels}` has to fine-tune when `epochs` is left out.

Run: python -m tests.benchmarks.bench_defaults record --work FOLDER [--only posture digits ...]
         [--seeds 0 1 2] [--updates 9600] [--schedule labels|teacher|halved|fresh]
         [--until-settled]
     python -m tests.benchmarks.bench_defaults rules --work FOLDER [--only ...]

Small models of different tasks are trained here, or come trained (`--resnet8 model.h5`, with
`--cifar10 FOLDER` of {train,test}/<class>/*), and lose channels until half of their parameters are
left, with the defaults of the stage. `record` fine-tunes each for its first length, then for as
many updates as before, and so on, and keeps the loss of every validation example and the test
figure after each training. `rules` replays these curves: it prints what each rule would have kept,
and how many updates it would have made. A model of the same size from random weights is trained
beside it, as long as the unpruned one was.

With `--schedule labels`, as in the package, the first training alone has the unpruned model as
teacher; `teacher`: all of them; `halved`: with a learning rate that halves each time; `fresh`: each
starts from the pruned weights.

The loop below is a short one that keeps an epoch in one graph: it makes an update in a tenth of the
time of the package's own. Figures are points lost against the unpruned model: of accuracy (of
pixels), or of R^2 times 100.

`text`, `unet`, `vgg` and `wine` were not looked at until the rule was chosen.
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
_MANY = 10**6
_CLASSES = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@dataclass(frozen=True)
class Case:
    """A model and its data.

    Attributes:
        build: the model, with random weights, or the file of a trained one.
        data: the data section of a recipe, or arrays by seed.
        epochs: of the training before it is pruned.
        rate: of that training, falling by a cosine.
        batch: examples per update.
        loss: that the model is compiled with.
    """

    build: Callable[[], keras.Model] | Path
    data: Mapping[str, Any] | Callable[[int], dict[str, Array]]
    epochs: int
    rate: float
    batch: int = 64
    loss: Any = _CLASSES

    @property
    def metric(self) -> str:
        """What is lost of."""
        return "r2" if self.loss == "mean_squared_error" else "accuracy"


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


def _posture_model() -> keras.Model:
    inputs = L.Input((8, 8, 2))
    x = L.Dropout(0.2)(L.MaxPooling2D()(L.Conv2D(8, 3, activation="relu")(inputs)))
    x = L.Dense(32, activation="relu")(L.Flatten()(x))
    return keras.Model(inputs, L.Dense(8, activation="softmax")(x))


def _bundled(name: str) -> Callable[[int], dict[str, Array]]:
    def load(_: int) -> dict[str, Array]:
        found = getattr(datasets, f"load_{name}")()
        x = ((found.data - found.data.mean(0)) / found.data.std(0)).astype(np.float32)
        y = found.target
        if name == "diabetes":
            y = ((y - y.mean()) / y.std()).astype(np.float32)[:, None]
        return {"x": x, "y": y}

    return load


def table(_: int) -> dict[str, Array]:
    """Return a table of 20 columns and six classes."""
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


def _mlp(columns: int, hidden: tuple[int, ...], units: int) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        inputs = x = L.Input((columns,))
        for width in hidden:
            x = L.Dense(width, activation="relu")(x)
        return keras.Model(inputs, L.Dense(units)(x))

    return build


def _wide_model() -> keras.Model:
    inputs = L.Input((32, 32, 3))
    x = L.Rescaling(1 / 127.5, offset=-1)(inputs)
    for channels in (32, 48):
        x = L.Conv2D(channels, 3, strides=2, padding="same", activation="relu")(x)
    x = L.Dropout(0.3)(L.Dense(896, activation="relu")(L.Flatten()(x)))
    return keras.Model(inputs, L.Dense(10)(L.Dense(256, activation="relu")(x)))


def _vgg_model() -> keras.Model:
    inputs = L.Input((32, 32, 3))
    x = L.Rescaling(1 / 127.5, offset=-1)(inputs)
    for channels in (24, 48, 96):
        x = L.Conv2D(channels, 3, padding="same", use_bias=False)(x)
        x = L.MaxPooling2D()(L.ReLU()(L.BatchNormalization(momentum=0.9)(x)))
    return keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling2D()(x)))


def _of_recipe(name: str, epochs: int, rate: float, **fields: Any) -> Case:
    recipe = load_recipe(_RECIPES / f"{name}.yaml").recipe
    file, _, function = str(recipe.model).partition(":")
    arguments = fields.pop("arguments", {})
    build = getattr(importlib.import_module(f"models.{Path(file).stem}"), function)
    data = recipe.data.model_dump(mode="json", exclude_unset=True) | {"slices": None}
    if recipe.data.path is not None:
        data["path"] = str(_RECIPES / recipe.data.path)
    return Case(lambda: build(**arguments), data, epochs, rate, **fields)


def _pictures(folder: Path, train: int) -> Callable[[int], dict[str, Array]]:
    """Return CIFAR-10: so many to train on; of the test images 2,000 to validate, 4,000 to test."""

    def load(_: int) -> dict[str, Array]:
        random, parts = np.random.default_rng(5), dict[str, list[tuple[Array, int]]]()
        counts = {"train": {"train": train}, "test": {"validation": 2000, "test": 4000}}
        for split, wanted in counts.items():
            for number, one in enumerate(sorted((folder / split).iterdir())):
                files = sorted(one.iterdir())
                order = iter(random.permutation(len(files)))
                for part, count in wanted.items():
                    chosen = [files[next(order)] for _ in range(count // 10)]
                    pairs = [(np.asarray(Image.open(path)), number) for path in chosen]
                    parts.setdefault(part, []).extend(pairs)
        arrays = dict[str, Array]()
        for part, pairs in parts.items():
            order_of = random.permutation(len(pairs))
            arrays[f"x_{part}"] = np.array([pairs[n][0] for n in order_of], np.float32)
            arrays[f"y_{part}"] = np.array([pairs[n][1] for n in order_of])
        return arrays

    return load


def cases(cifar10: Path | None, resnet8: Path | None) -> dict[str, Case]:
    """Return the models by name; those of CIFAR-10 where it is given."""
    mse, crossentropy = "mean_squared_error", "sparse_categorical_crossentropy"
    found = {
        "posture": Case(_posture_model, posture, 300, 3e-3, loss=crossentropy),
        "digits": _of_recipe("digits", 40, 3e-3, arguments={"width": 0.2}),
        "cancer": Case(_mlp(30, (24, 12), 2), _bundled("breast_cancer"), 60, 2e-3),
        "diabetes": Case(_mlp(10, (32, 16), 1), _bundled("diabetes"), 40, 1e-3, loss=mse),
        "table": Case(_mlp(20, (64, 32), 6), table, 30, 2e-3),
        "tones": _of_recipe("tones-keyword", 15, 5e-3),
        "machine": _of_recipe("machine-anomaly", 30, 3e-3, loss=mse),
        "series": _of_recipe("series-forecast", 12, 2e-3, loss=mse),
        "text": _of_recipe("text-intent", 12, 3e-3),
        "unet": _of_recipe("digits-segment", 12, 3e-3, batch=32),
        "wine": Case(_mlp(13, (24, 12), 3), _bundled("wine"), 60, 2e-3),
    }
    if cifar10 is not None:
        found["wide"] = Case(_wide_model, _pictures(cifar10, 12_000), 6, 1e-3)
        found["vgg"] = Case(_vgg_model, _pictures(cifar10, 8_000), 15, 3e-3)
        if resnet8 is not None:
            found["resnet8"] = Case(resnet8, _pictures(cifar10, 8_000), 20, 2e-3, loss=crossentropy)
    return found


class Loop:
    """Trains a model by Adam with a cosine, many updates in one graph.

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

        def run(orders: tf.Tensor, rate: tf.Tensor, total: tf.Tensor) -> None:
            for n in tf.range(tf.shape(orders)[0]):
                x, y = tf.nest.map_structure(lambda part, n=n: tf.gather(part, orders[n]), data)
                targets = objective.targets(x)
                progress = tf.cast(self._optimizer.iterations, tf.float32) / total
                self._optimizer.learning_rate.assign(rate * (1 + tf.cos(np.pi * progress)) / 2)
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(objective.loss(y, model(x, training=True), targets))
                gradients = tape.gradient(loss, model.trainable_variables)
                self._optimizer.apply_gradients(
                    zip(gradients, model.trainable_variables, strict=True)
                )

        self._run = tf.function(run, reduce_retracing=True)

    def train(self, updates: int, rate: float) -> None:
        """Make so many updates, with new moments and a new schedule."""
        for variable in self._optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        wanted = updates * self._batch
        epochs = [self._random.permutation(self._count) for _ in range(-(-wanted // self._count))]
        orders = np.concatenate(epochs)[:wanted].reshape(updates, self._batch).astype(np.int32)
        self._run(
            tf.constant(orders), tf.constant(rate, tf.float32), tf.constant(updates, tf.float32)
        )


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


class Bench:
    """A trained model, its data, and what is left of it when half of its parameters go.

    Args:
        name: of the case.
        case: the model.
        seed: of the data, the weights, and all training.
        work: where trained models are kept.
    """

    def __init__(self, name: str, case: Case, seed: int, work: Path) -> None:
        keras.utils.set_random_seed(seed)
        self._case, self._seed = case, seed
        self._path = work / f"{name}-{seed}.keras"
        self._data = case.data
        if callable(case.data):
            path = work / f"{name}-{seed}.npz"
            arrays: dict[str, Any] = {**case.data(seed)}
            np.savez(path, **arrays)
            self._data = {"source": "npz", "path": str(path)}
        if isinstance(case.build, Path):
            self._path = case.build
        elif not self._path.exists():
            # Under the final name it is trained: a run may be killed in between.
            final, self._path = self._path, work / f"untrained-{name}-{seed}.keras"
            model = case.build()
            model.compile(loss=case.loss)
            model.save(self._path)
            context = self.context()
            model = context.load()
            self.from_scratch(model, context)
            model.compile(loss=case.loss)
            self._path = final
            model.save(self._path)

    def context(self) -> StageContext:
        """Return a new context of a stage."""
        return context_of(
            Path(tempfile.mkdtemp()),
            kind="prune",
            inputs={"model": self._path},
            data=self._data,
            training={"seed": self._seed, "global_batch_size": self._case.batch},
            task={"metrics": [self._case.metric]},
            split_seed=self._seed,
        )

    def from_scratch(self, model: keras.Model, context: StageContext) -> None:
        """Train a model as the unpruned one was."""
        case, examples = self._case, context.dataset.train
        loop = Loop(model, context.task(model).objective(), examples, case.batch, self._seed)
        loop.train(max(1, case.epochs * len(examples) // case.batch), case.rate)

    def record(self, most: int, schedule: str, *, until_settled: bool) -> dict[str, Any]:
        """Fine-tune for as many updates as before, again and again, and return what happened."""
        case, context = self._case, self.context()
        task, data = context.task(context.load()), context.dataset
        before = measured(context.load(), task.objective(), data.test, case.metric)[1]
        graph = find_groups(context.load())
        config = PruneConfig.model_validate({"method": "channels", "parameters": 0.5})
        settled = settle(graph, config, context)
        config = settled.config
        target = find_target(
            graph, config, context, sharing(graph, settled.curves, config, context)
        )
        chosen = choose(graph, target.counts, config, context)
        model = rebuild(graph, graph.keep(chosen.removed), chosen.weights)
        rate, start = settled.training.optimizer.learning_rate, model.get_weights()
        first = first_epochs(config, context) * -(-len(data.train) // case.batch)
        curve, tests, updates = list[Array](), list[float](), list[int]()

        def tune(learning: keras.Model, objective: Objective, trainings: int) -> None:
            loop = Loop(learning, objective, data.train, case.batch, self._seed + len(curve))
            while len(curve) < trainings:
                made = updates[-1] if updates else 0
                count = made or first
                if schedule == "fresh":
                    learning.set_weights(start)
                    made, count = 0, 2 * made or first
                if made + count > max(first, most):
                    return
                kept = learning.get_weights()
                loop.train(count, rate / 2 ** len(curve) if schedule == "halved" else rate)
                updates.append(made + count)
                curve.append(measured(learning, objective, data.validation, case.metric)[0])
                tests.append(measured(learning, objective, data.test, case.metric)[1])
                if until_settled and len(curve) > 1:
                    if curve[-1].mean() >= curve[-2].mean():
                        learning.set_weights(kept)
                    if not falls(curve[-2], curve[-1], 1):
                        return

        with fine_tuning(model, graph, config, context) as (learning, objective):
            tune(learning, objective, 1 if schedule == "labels" else _MANY)
        if schedule == "labels":
            tune(model, task.objective(), _MANY)
        other = keras.models.clone_model(model)
        self.from_scratch(other, context)
        task = context.task(other)
        return {
            "before": before,
            "updates": updates,
            "test": tests,
            "scratch": measured(other, task.objective(), data.test, case.metric)[1],
            "curve": [[float(f"{x:.5g}") for x in losses] for losses in curve],
        }


def falls(before: Array, after: Array, errors: float) -> bool:
    """Return whether a mean falls by more than so many standard errors, of 1,000 examples."""
    gains = (before - after)[:1000]
    return bool(gains.mean() > errors * gains.std(ddof=1) / len(gains) ** 0.5)


def replay(
    row: Mapping[str, Any], errors: float, failures: int = 1, *, keep_last: bool = False
) -> tuple[float, int]:
    """Return the points that are lost and the updates that are made by a rule.

    Args:
        row: what was recorded.
        errors: a training has to lower the loss by so many of its standard errors.
        failures: the last training is that which fails to for so many times in a row.
        keep_last: whether the last weights stay even if they are worse.
    """
    curve, best, failed, n = np.array(row["curve"]), 0, 0, 0
    for n in range(1, len(curve)):
        if row["updates"][n] > MOST_UPDATES:
            n -= 1
            break
        failed = 0 if falls(curve[best], curve[n], errors) else failed + 1
        if keep_last or curve[n].mean() < curve[best].mean():
            best = n
        if failed == failures:
            break
    return row["before"] - row["test"][best], row["updates"][n]


RULES: dict[str, dict[str, Any]] = {
    "once": {"errors": np.inf, "failures": 0},
    "one standard error": {"errors": 1.0},
    "two standard errors": {"errors": 2.0},
    "any fall": {"errors": 0.0},
    "a rise by less than one": {"errors": -1.0},
    "one, twice in a row": {"errors": 1.0, "failures": 2},
    "one, the last weights stay": {"errors": 1.0, "keep_last": True},
    "to the end, the best stay": {"errors": -np.inf},
    "to the end, the last stay": {"errors": -np.inf, "keep_last": True},
}


def rules_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a Markdown table: the median and the worst points lost, and the updates, by rule."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row)
    lines = [f"| rule | {' | '.join(by_name)} |", "|---" * (len(by_name) + 1) + "|"]
    for rule, settings in RULES.items():
        cells = []
        for found in by_name.values():
            if rule == "once":
                outcome = [(row["before"] - row["test"][0], row["updates"][0]) for row in found]
            else:
                outcome = [replay(row, **settings) for row in found]
            lost, updates = zip(*outcome, strict=True)
            cells.append(f"{np.median(lost):.2f}, {max(lost):.2f}, {np.mean(updates):,.0f}")
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    scratch = [
        f"{np.median([r['before'] - r['scratch'] for r in f]):.2f}" for f in by_name.values()
    ]
    return "\n".join([*lines, f"| from random weights | {' | '.join(scratch)} |"])


def main() -> None:
    """Record what is missing, or replay it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("verb", choices=["record", "rules"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--updates", type=int, default=MOST_UPDATES)
    parser.add_argument(
        "--schedule", choices=["labels", "teacher", "halved", "fresh"], default="labels"
    )
    parser.add_argument("--until-settled", action="store_true", help="stop as the package does")
    parser.add_argument("--cifar10", type=Path, help="train/<class>/*.jpg and test/<class>/*.jpg")
    parser.add_argument("--resnet8", type=Path, help="a ResNet8 that is trained on them")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    path = options.work / f"{options.schedule}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    rows = [json.loads(line) for line in lines]
    known, wanted = cases(options.cifar10, options.resnet8), options.only
    if options.verb == "rules":
        say(rules_table(row for row in rows if not wanted or row["name"] in wanted))
        return
    for name in wanted or known:
        for seed in options.seeds:
            if any((row["name"], row["seed"]) == (name, seed) for row in rows):
                continue
            began = time.perf_counter()
            keras.backend.clear_session()
            bench = Bench(name, known[name], seed, options.work)
            found = bench.record(
                options.updates, options.schedule, until_settled=options.until_settled
            )
            row = {"name": name, "seed": seed, "wall_s": time.perf_counter() - began, **found}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
