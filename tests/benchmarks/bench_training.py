"""Examples per second of shrink's training loop beside plain Keras `fit`.

Run: python -m tests.benchmarks.bench_training [--batch-size 64] [--micro-batch-size 64]
         [--steps 200] [--runs 7]

Both train the same model on the same batches, in alternating order; the ratio is that of the
medians.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.config import TrainingConfig
from shrink.engine.devices import open_devices
from shrink.engine.microbatch import MicroBatchTrainer, TrainingSetup
from shrink.engine.objective import SupervisedObjective
from shrink.engine.planner import BatchPlan
from shrink.engine.recovery import Retries
from tests.benchmarks.harness import by_turns, say

CLASSES = 10


def main() -> None:
    """Print the throughputs of both loops on two models."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--micro-batch-size", type=int, help="by default the whole batch")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
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
        TrainingSetup(
            model,
            SupervisedObjective("sparse_categorical_crossentropy", from_logits=True),
            TrainingConfig(),
            open_devices(TrainingConfig()),
            ["accuracy"],
        ),
        BatchPlan(1, batch_size, micro_batch_size, never_empty=True),
        # As in a real run, each step keeps what it takes to be made again.
        Retries(lambda step: iter(())),
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


if __name__ == "__main__":
    main()
