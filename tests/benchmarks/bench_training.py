"""What the training loop costs beside plain Keras, and what masks and recomputation add to it.

Run: python -m tests.benchmarks.bench_training loop [--batch-size 64] [--micro-batch-size 64]
         [--steps 200] [--runs 7]
     python -m tests.benchmarks.bench_training masks [--rounds 20]
     python -m tests.benchmarks.bench_training recompute [--depth 50] [--batch-size 64] [--steps 6]
         [--rounds 1] [--settings off auto]

loop: examples per second of shrink's training loop beside plain Keras `fit`. Both train the same
model on the same batches, in alternating order; the ratio is that of the medians.

masks: steps of ResNet8 with and without masks, by turns. Batches of 128 zeros, Adam, one thread; a
turn is 10 updates, in one of which masks are chosen anew, as while the sparsity rises by the
default schedule. Prints the medians of the processor's time for an update, and the median of the
ratios of neighbouring turns.

recompute: what `training.recompute` saves and costs, peak memory and time per example, side by
side, on an idle machine. Each setting trains the same steps on the same random images in a
process of its own, alternating; the first step, which builds the graph, is not timed, and the best
time counts. Weights after the same updates are compared.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.config import TrainingConfig
from shrink.engine.devices import open_devices
from shrink.engine.microbatch import MicroBatchTrainer
from shrink.engine.objective import SupervisedObjective
from shrink.engine.recovery import Retries
from shrink.engine.trainer import TrainingSetup
from tests.benchmarks.harness import ONE_THREAD, apart, by_turns, say, subcommands

CLASSES = 10
_BATCH, _UPDATES = 128, 10


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(parser, {"loop": loop, "masks": masks, "recompute": recompute})
    of["loop"].add_argument("--micro-batch-size", type=int, help="by default the whole batch")
    of["loop"].add_argument("--steps", type=int, default=200)
    of["loop"].add_argument("--runs", type=int, default=7)
    of["masks"].add_argument("--rounds", type=int, default=20)
    of["recompute"].add_argument("--depth", type=int, default=50, help="of the residual network")
    of["recompute"].add_argument("--steps", type=int, default=6)
    of["recompute"].add_argument("--rounds", type=int, default=1)
    of["recompute"].add_argument("--settings", nargs="+", default=["off", "auto"])
    for name in ("loop", "recompute"):
        of[name].add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    options.run(options)


def loop(options: argparse.Namespace) -> None:
    """Throughputs of both loops on two models, in one micro-batch or as asked."""
    micro = options.micro_batch_size or options.batch_size
    for name in MODELS:
        compare(name, options.batch_size, options.steps, options.runs, micro)


def digits_cnn() -> tuple[Any, tuple[int, ...]]:
    """A small network on 8×8 images, where the loop's own overhead shows most."""
    layers = keras.layers
    inputs = layers.Input((8, 8, 1))
    hidden = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    hidden = layers.BatchNormalization()(hidden)
    hidden = layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, layers.Dense(CLASSES)(hidden)), (8, 8, 1)


def cifar_cnn() -> tuple[Any, tuple[int, ...]]:
    """A network on 32×32 images, where the kernels dominate."""
    layers = keras.layers
    inputs = hidden = layers.Input((32, 32, 3))
    for channels in (16, 32, 64):
        hidden = layers.Conv2D(channels, 3, strides=2, padding="same", use_bias=False)(hidden)
        hidden = layers.ReLU()(layers.BatchNormalization()(hidden))
    hidden = layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, layers.Dense(CLASSES)(hidden)), (32, 32, 3)


MODELS: dict[str, Callable[[], tuple[Any, tuple[int, ...]]]] = {
    "digits_cnn": digits_cnn,
    "cifar_cnn": cifar_cnn,
}


def plain(model: Any) -> Any:
    """Compile a model as Keras' users do."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, metrics=["accuracy"])
    return model


def engine(model: Any, batch_size: int, micro_batch_size: int) -> Any:
    """Put a model under the training loop."""
    trainer = MicroBatchTrainer(
        model,
        SupervisedObjective("sparse_categorical_crossentropy", from_logits=True),
        ["accuracy"],
        micro_batch_size=micro_batch_size,
        most_rows=batch_size,
        never_empty=True,
        # As in a real run, each step keeps what it takes to be made again.
        retries=Retries(lambda step: iter(())),
    )
    trainer.compile(optimizer=keras.optimizers.Adam())
    trainer.optimizer.build(model.trainable_variables)
    return trainer


def examples_per_s(trainable: Any, batches: Any, steps: int, batch_size: int) -> float:
    """Time `steps` updates of a model that has run before."""
    started = time.perf_counter()
    trainable.fit(batches, epochs=1, steps_per_epoch=steps, verbose=0)
    return steps * batch_size / (time.perf_counter() - started)


def compare(name: str, batch_size: int, steps: int, runs: int, micro_batch_size: int) -> None:
    """Print the engine's throughput over plain Keras'."""
    trainables = {}
    for kind in ("keras", "engine"):
        keras.utils.set_random_seed(0)
        model, shape = MODELS[name]()
        compiled = plain(model) if kind == "keras" else engine(model, batch_size, micro_batch_size)
        trainables[kind] = compiled
    random = np.random.default_rng(0)
    x = random.normal(size=(batch_size * 8, *shape)).astype(np.float32)
    y = random.integers(0, CLASSES, len(x))
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size).cache().repeat()
    for trainable in trainables.values():
        examples_per_s(trainable, batches, 5, batch_size)
    ways = {
        kind: functools.partial(examples_per_s, trainable, batches, steps, batch_size)
        for kind, trainable in trainables.items()
    }
    rates = by_turns(ways, runs)
    medians = {kind: statistics.median(values) for kind, values in rates.items()}
    ratio = medians["engine"] / medians["keras"]
    pairs = sorted(e / k for e, k in zip(rates["engine"], rates["keras"], strict=True))
    say(
        f"{name:11} batch {batch_size:4} micro {micro_batch_size:4}:"
        f" keras {medians['keras']:9.0f}/s, engine {medians['engine']:9.0f}/s,"
        f" ratio {ratio:.3f} (median of pairs {statistics.median(pairs):.3f},"
        f" {pairs[0]:.3f} to {pairs[-1]:.3f}, {runs} runs of {steps} steps)"
    )


def masks(options: argparse.Namespace) -> None:
    """Times of dense and masked updates."""
    found = apart(updates_ms, environment=ONE_THREAD, rounds=options.rounds)
    for name, times in found.items():
        ratio = np.median(np.divide(times, found["dense"]))
        say(f"{name:<16} {np.median(times):8.2f} ms {ratio:6.3f}")


def updates_ms(rounds: int) -> dict[str, list[float]]:
    """Return the processor's milliseconds for an update, in each round of each way."""
    from shrink.pruning.masks import Masks, constant, polynomial, prunable_kernels

    def rising(model: Any) -> list[Any]:
        kernels = [k.kernel for k in prunable_kernels(model)[0]]
        return [Masks(kernels, polynomial(0.8, 1 << 30), 1 << 30, _UPDATES)]

    def fixed(model: Any) -> list[Any]:
        masks = Masks([k.kernel for k in prunable_kernels(model)[0]], constant(0.8))
        masks.prune_now(0.8)
        return [masks]

    ways = {"dense": lambda model: [], "sparsity rises": rising, "fixed masks": fixed}
    turns = {name: functools.partial(_timed, open_step(hooks)) for name, hooks in ways.items()}
    return by_turns(turns, rounds)


def _timed(turn: Callable[[], None]) -> float:
    started = time.process_time()
    turn()
    return (time.process_time() - started) * 1e3 / _UPDATES


def open_step(hooks: Any) -> Any:
    """Return a function that makes 10 updates of a model of its own, traced."""
    from models.resnet import build
    from shrink.engine.probe import TrainingStep
    from shrink.tools.profile import zeros_for

    keras.utils.set_random_seed(0)
    config = TrainingConfig(global_batch_size=_BATCH)
    devices = open_devices(config)
    with devices.scope():
        model = build()
        after_update = hooks(model)
    objective = SupervisedObjective("mean_squared_error", from_logits=True)
    step = TrainingStep(
        TrainingSetup(model, objective, config, devices, after_update=after_update),
        zeros_for(model, _BATCH),
    )
    step.use_no_loop()
    batches = step.batches(_BATCH)

    def turn() -> None:
        for _ in range(_UPDATES):
            step.make_update(batches)

    turn()
    return turn


def recompute(given: argparse.Namespace) -> None:
    """Peak, time and weights of each setting, and the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = {name: getattr(given, name) for name in ("depth", "batch_size", "steps")}
        ways = {
            setting: functools.partial(apart, trained, setting=setting, folder=folder, **fixed)
            for setting in given.settings
        }
        found = by_turns(ways, given.rounds)
        plain = given.settings[0]
        peaks = {setting: runs[0]["peak_bytes"] for setting, runs in found.items()}
        ms = {s: min(run["ms_per_example"] for run in runs) for s, runs in found.items()}
        say(f"resnet{given.depth}, batch of {given.batch_size}, load {os.getloadavg()[0]:.1f}")
        say("recompute      peak  ratio  ms/example  ratio  largest weight difference")
        for setting in found:
            apart_by = distance(Path(folder), setting, plain)
            say(
                f"{setting:<9} {peaks[setting] / 1e6:6.1f} MB  {peaks[setting] / peaks[plain]:5.2f}"
                f"  {ms[setting]:10.2f}  {ms[setting] / ms[plain]:5.2f}  {apart_by:.1e}"
            )


def trained(setting: str, folder: str, depth: int, batch_size: int, steps: int) -> dict[str, Any]:
    """Train a few steps, and return the peak in bytes and the time per example."""
    from models.resnet import build
    from shrink.data.dataset import Dataset
    from shrink.engine.fit import train
    from tests.engine._scenarios import ArrayExamples

    random, count = np.random.default_rng(0), batch_size * steps
    part = ArrayExamples(
        random.integers(0, 256, (count, 32, 32, 3), np.uint8), random.integers(0, 10, count)
    )
    rest = ArrayExamples(np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, np.int64))
    config = TrainingConfig.model_validate(
        {
            "global_batch_size": batch_size,
            "optimizer": {"name": "sgd", "learning_rate": 1e-3},
            "recompute": int(setting) if setting.isdecimal() else setting,
        },
    )
    keras.utils.set_random_seed(0)
    model = build(depth=depth)
    record = train(
        TrainingSetup(
            model,
            SupervisedObjective("sparse_categorical_crossentropy", from_logits=True),
            config,
            open_devices(config),
        ),
        Dataset(part, validation=rest, test=rest, class_names=(), num_classes=10),
        epochs=1,
        monitor="loss",
    )
    weights = {str(n): w for n, w in enumerate(model.get_weights())}
    np.savez(Path(folder, f"{setting}.npz"), **weights)
    rate = record.examples_per_s or float("nan")
    return {"peak_bytes": record.peaks["training_peak_bytes"].value, "ms_per_example": 1000 / rate}


def distance(folder: Path, setting: str, plain: str) -> float:
    """Return the largest absolute difference of a setting's weights from the plain one's."""
    one, other = (np.load(folder / f"{name}.npz") for name in (plain, setting))
    return max(float(np.abs(one[name] - other[name]).max()) for name in one.files)


if __name__ == "__main__":
    main()
