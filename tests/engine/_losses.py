"""Trains with losses over replicas and micro-batches, and by hand on one whole batch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.config import TrainingConfig
from shrink.engine.devices import open_devices
from shrink.engine.objective import SupervisedObjective
from tests.engine._exactness import difference
from tests.engine._toys import stepped

COUNT, STEPS, WIDTH = 14, 5, 4
UPDATES = 2
RATE = 0.3
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(COUNT, STEPS, 3))
NUMBERS = RANDOM.integers(0, WIDTH, (COUNT, STEPS))
YES = RANDOM.integers(0, 2, (COUNT, STEPS, WIDTH))
REAL = RANDOM.normal(size=(COUNT, STEPS, WIDTH))
OWN = """
import tensorflow as tf

def squares(y, p):
    return tf.reduce_sum(tf.square(y - p), axis=(1, 2))
"""
Reference = Callable[[Any, Any], Any]


def _dice(y: Any, outputs: Any) -> Any:
    p, y = tf.sigmoid(outputs), tf.cast(y, outputs.dtype)
    shared, both = tf.reduce_sum(p * y, 1), tf.reduce_sum(p, 1) + tf.reduce_sum(y, 1)
    return 1 - tf.reduce_mean((2 * shared + 1) / (both + 1))


def _squares(y: Any, outputs: Any) -> Any:
    return tf.reduce_mean(tf.reduce_sum((tf.cast(y, outputs.dtype) - outputs) ** 2, axis=[1, 2]))


def _cases(folder: Path) -> dict[str, tuple[Any, Reference]]:
    own = folder / "own.py"
    own.write_text(OWN)
    losses = keras.losses
    return {
        "sparse_categorical_crossentropy(ignore_class=2)": (
            NUMBERS,
            losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=2),
        ),
        "huber(delta=0.5)": (REAL, losses.Huber(0.5)),
        "cosine_similarity": (REAL, losses.CosineSimilarity()),
        "dice(of=labels)": (YES, _dice),
        f"{own}:squares(of=values)": (REAL, _squares),
    }


def _model() -> Any:
    inputs = keras.layers.Input((STEPS, 3))
    return keras.Model(inputs, keras.layers.Dense(WIDTH)(inputs))


def differences(replicas: int, micro_batch_size: int) -> dict[str, list[float]]:
    """Return by loss how far weights are from those of one whole batch, and how far they moved."""
    devices = open_devices(TrainingConfig(replicas=replicas))
    keras.backend.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")
    with tempfile.TemporaryDirectory() as folder:
        cases = _cases(Path(folder)).items()
        return {
            key.rpartition("/")[2]: _compare(devices, key, *case, micro_batch_size)
            for key, case in cases
        }


def _compare(
    devices: Any, key: str, y: Any, reference: Reference, micro_batch_size: int
) -> list[float]:
    keras.utils.set_random_seed(1)
    by_hand = _model()
    start = by_hand.get_weights()
    for _ in range(UPDATES):
        with tf.GradientTape() as tape:
            loss = reference(y, by_hand(X))
        weights = by_hand.trainable_variables
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(RATE * gradient)
    rows = -(-COUNT // devices.replicas)
    with devices.scope():
        model = _model()
        model.set_weights(start)
    stepped(
        model,
        lambda: keras.optimizers.SGD(RATE),
        tf.data.Dataset.from_tensor_slices((X, y)).batch(COUNT).repeat(UPDATES),
        devices,
        rows=rows,
        micro_batch_size=min(micro_batch_size, rows),
        steps=UPDATES,
        never_empty=True,
        objective=SupervisedObjective(key, from_logits=True),
    )
    untrained = _model()
    untrained.set_weights(start)
    return [difference(model, by_hand), difference(model, untrained)]
