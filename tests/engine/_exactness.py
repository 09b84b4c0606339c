"""Trains the same model with the engine and with a hand-written loop on one big batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices, open_devices, smallest_batch
from tests.engine._toys import stepped

Arrays = tuple[Any, ...]
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(_decay(), momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(_decay(), global_clipnorm=0.5, epsilon=1e-3),
    "adamw": lambda: keras.optimizers.AdamW(_decay(), weight_decay=0.02, epsilon=1e-3),
}


def _decay() -> Any:
    return keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)


def small_model(outputs: int = 1, *, pooled: bool = False) -> Any:
    """A convolution and a dense layer, both regularised, and one or two heads of 5 logits."""
    layers, decay = keras.layers, keras.regularizers.L2(1e-2)
    inputs = layers.Input((6, 6, 2))
    hidden = layers.Conv2D(4, 3, activation="tanh", kernel_regularizer=decay)(inputs)
    hidden = layers.Flatten()(layers.MaxPooling2D()(hidden) if pooled else hidden)
    heads = [
        layers.Dense(5, kernel_regularizer=decay, activity_regularizer=decay)(hidden)
        for _ in range(outputs)
    ]
    return keras.Model(inputs, heads if outputs > 1 else heads[0])


def examples(count: int, *, outputs: int = 1, weighted: bool = False) -> Arrays:
    """Random x (n, 6, 6, 2), labels (n,) for each output, and weights (n,) if asked for."""
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 6, 6, 2)).astype(keras.backend.floatx())
    labels = tuple(random.integers(0, 5, count) for _ in range(outputs))
    weights = random.uniform(0.5, 2.0, count).astype(keras.backend.floatx())
    y = labels if outputs > 1 else labels[0]
    return (x, y, weights) if weighted else (x, y)


def train_by_hand(model: Any, optimizer: Any, data: Arrays, batch_size: int, epochs: int) -> None:
    """Make updates on whole batches with the mean of the weighted cross-entropies."""
    x, y, weights = data if len(data) == 3 else (*data, np.ones(len(data[0])))
    labels = y if isinstance(y, tuple) else (y,)
    for _ in range(epochs):
        for first in range(0, len(x), batch_size):
            rows = slice(first, min(first + batch_size, len(x)))
            with tf.GradientTape() as tape:
                heads = tf.nest.flatten(model(x[rows], training=True))
                loss = tf.add_n(model.losses)
                for head, label in zip(heads, labels, strict=True):
                    chosen = tf.one_hot(label[rows], 5, dtype=head.dtype)
                    each = -tf.reduce_sum(chosen * tf.nn.log_softmax(head), axis=-1)
                    loss += tf.reduce_mean(each * weights[rows])
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


def train_by_engine(
    build: Callable[[], Any],
    start: Sequence[Any],
    optimizer: str,
    data: Arrays,
    devices: Devices,
    *,
    batch_size: int,
    micro_batch_size: int,
    epochs: int,
    keras_shares: bool,
) -> tuple[Any, dict[str, float]]:
    """Return the model that the engine trained from the weights `start`, and its last metrics.

    Args:
        keras_shares: let Keras split batches, which leaves replicas without examples.
    """
    rows = -(-min(batch_size, len(data[0])) // devices.replicas)
    smallest = smallest_batch(len(data[0]), batch_size)
    with devices.scope():
        model = build()
        model.set_weights(start)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
    history = stepped(
        model,
        OPTIMIZERS[optimizer],
        batches if keras_shares else batches.repeat(epochs),
        devices,
        rows=rows,
        micro_batch_size=min(micro_batch_size, rows),
        steps=-(-len(data[0]) // batch_size),
        epochs=epochs,
        never_empty=smallest >= devices.replicas and not keras_shares,
        keras_shares=keras_shares,
        metrics=["accuracy"],
    )
    return model, {name: values[-1] for name, values in history.items()}


def difference(one: Any, other: Any) -> float:
    """Largest absolute difference of two models' weights."""
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def compare(replicas: int, cases: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return for each case how far the engine is from one big batch, and from no training.

    A case has optimizer, micro_batch_size, and if it wants batch_size, count, outputs, weighted,
    keras_shares, epochs and pooled.
    """
    devices = open_devices(TrainingConfig(replicas=replicas))
    return [_compare(devices, **case) for case in cases]


def _compare(
    devices: Devices,
    *,
    optimizer: str,
    micro_batch_size: int,
    batch_size: int = 24,
    count: int = 61,
    outputs: int = 1,
    weighted: bool = False,
    keras_shares: bool = False,
    epochs: int = 2,
    pooled: bool = False,
) -> dict[str, float]:
    keras.backend.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")
    keras.utils.set_random_seed(1)
    data = examples(count, outputs=outputs, weighted=weighted)
    reference = small_model(outputs, pooled=pooled)
    start = reference.get_weights()
    train_by_hand(reference, OPTIMIZERS[optimizer](), data, batch_size, epochs)
    model, metrics = train_by_engine(
        lambda: small_model(outputs, pooled=pooled),
        start,
        optimizer,
        data,
        devices,
        batch_size=batch_size,
        micro_batch_size=micro_batch_size,
        epochs=epochs,
        keras_shares=keras_shares,
    )
    untrained = small_model(outputs, pooled=pooled)
    untrained.set_weights(start)
    return {
        "difference": difference(model, reference),
        "moved": difference(model, untrained),
        **metrics,
    }
