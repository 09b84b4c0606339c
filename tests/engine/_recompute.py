"""Trains networks with and without recomputation, where oneDNN fuses their operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices, open_devices
from shrink.engine.record import TrainingRecord
from tests.engine._toys import splits, trained

SIDE, BATCH_SIZE = 32, 32


def residual() -> Any:
    """Four blocks of two convolutions with a bias each."""
    layers = keras.layers
    inputs = layers.Input((SIDE, SIDE, 3))
    hidden = layers.Conv2D(8, 3, padding="same")(inputs)
    for _ in range(4):
        inner = layers.Conv2D(8, 3, padding="same", activation="relu")(hidden)
        inner = layers.Conv2D(8, 3, padding="same")(layers.ZeroPadding2D(0)(inner))
        hidden = layers.ReLU()(layers.add([hidden, inner]))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(hidden)))


def sequential() -> Any:
    """Convolutions with a bias, one after the other, and global average pooling."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 3)),
            *(layers.Conv2D(8, 3, padding="same", activation="relu") for _ in range(8)),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )


NETWORKS: Mapping[str, Callable[[], Any]] = {"residual": residual, "sequential": sequential}


def compare(precision: Literal["float32", "mixed_bfloat16"]) -> dict[str, dict[str, float]]:
    """Return for each network how far recomputation moved its weights, and both peaks in bytes."""
    config = TrainingConfig(precision=precision, memory_limit=2**30)
    devices = open_devices(config)
    if precision != "float32":
        # Where a CPU has products of bfloat16, TensorFlow fuses a convolution with the two
        # additions behind it in the first pass, and so rounds once where the second rounds thrice.
        tf.config.optimizer.set_experimental_options({"remapping": False})
    return {name: _compare(build, config, devices) for name, build in NETWORKS.items()}


def _compare(build: Callable[[], Any], config: TrainingConfig, devices: Devices) -> dict[str, Any]:
    model, plain, record = _train(build, config, devices, "off")
    _, weights, recomputed = _train(build, config, devices, 4)
    return {
        "difference": _distance(plain, weights),
        "moved": _distance(plain, model.get_weights()),
        "peak": recomputed.peaks["training_peak_bytes"].value,
        "plain_peak": record.peaks["training_peak_bytes"].value,
    }


def _train(
    build: Callable[[], Any], config: TrainingConfig, devices: Devices, recompute: str | int
) -> tuple[Any, list[Any], TrainingRecord]:
    """Return a model with the weights from before, those after training, and the record."""
    random = np.random.default_rng(0)
    x = random.normal(size=(2 * BATCH_SIZE, SIDE, SIDE, 3)).astype(np.float32)
    data = splits(x, random.integers(0, 3, len(x)))
    keras.utils.set_random_seed(0)
    model = build()
    before = model.get_weights()
    sgd = {"name": "sgd", "learning_rate": 0.05}
    settings = {"recompute": recompute, "global_batch_size": BATCH_SIZE, "optimizer": sgd}
    config = TrainingConfig.model_validate({**config.model_dump(mode="json"), **settings})
    record = trained(model, data, config, devices=devices)
    after = model.get_weights()
    model.set_weights(before)
    return model, after, record


def _distance(one: list[Any], other: list[Any]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))
