"""How often masks are chosen on a short ramp: shrink's masks beside tfmot's pruning.

    python -m tests.benchmarks.bench_prune_choices [SEED...]

Networks are trained on the digits, then pruned to 80 % in 80 updates of Adam at 1e-3 under Keras'
own `fit`, from the same weights and with the same seed: by tfmot with its frequency of 10, and by
shrink's masks chosen at every 10th, 5th, 2nd and each update of the 48 in which the sparsity rises.
A line of JSON for each training: the accuracy of float weights on 180 validation examples, on which
`frequency: auto` was chosen, and on the test examples. Ten minutes for three seeds.
"""

from __future__ import annotations

import argparse
import math
import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf
import tf_keras as keras

from models import ds_cnn
from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.pruning.masks import Masks, count_zeros, polynomial, prunable_kernels
from tests.benchmarks import bench_from_tfmot
from tests.benchmarks.harness import say_json

L = keras.layers
_SPARSITY = 0.8
_FREQUENCIES = (10, 5, 2, 1)


def _dense() -> keras.Model:
    x = inputs = keras.Input((8, 8, 1))
    x = L.Flatten()(x)
    for units in (128, 128, 64):
        x = L.Dense(units, activation="relu")(x)
    return keras.Model(inputs, L.Dense(10)(x))


def _ds_cnn() -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    x = L.UpSampling2D(2)(inputs)
    inner = ds_cnn.build(input_shape=(16, 16, 1), classes=10, momentum=0.9)
    for layer in inner.layers[1:]:
        x = layer(x)
    return keras.Model(inputs, x)


NETWORKS = {"convolutional": bench_from_tfmot.network, "dense": _dense, "ds_cnn": _ds_cnn}


class _AfterUpdate(keras.callbacks.Callback):
    """Calls masks as shrink's training does."""

    def __init__(self, masks: Masks) -> None:
        super().__init__()
        self._updates = 0
        self._masks = tf.function(lambda step: masks(tf.distribute.get_strategy(), step))

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._updates += 1
        self._masks(tf.constant(self._updates))


def _pruned(
    model: keras.Model, digits: bench_from_tfmot.Digits, frequency: int | None
) -> keras.Model:
    if frequency is None:
        return bench_from_tfmot.prune(model, digits)
    last = math.ceil(0.6 * digits.updates)
    kernels = [one.kernel for one in prunable_kernels(model)[0]]
    masks = Masks(kernels, polynomial(_SPARSITY, last), last, frequency)
    digits.fit(model, callbacks=[_AfterUpdate(masks)])
    return model


def main() -> None:
    """Print a line for each training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        digits = bench_from_tfmot.opened(seed)
        validation = open_dataset(DataConfig(source="digits"), seed).validation
        x, y = validation.arrays(np.arange(len(validation)))
        splits = ((np.asarray(x, np.float32), y), (digits.test_x, digits.test_y))
        for name in arguments.networks:
            keras.utils.set_random_seed(seed)
            base = NETWORKS[name]()
            digits.fit(base, epochs=15)
            for frequency in (None, *_FREQUENCIES):
                model = keras.models.clone_model(base)
                model.set_weights(base.get_weights())
                keras.utils.set_random_seed(seed + 100)
                model = _pruned(model, digits, frequency)
                right = [np.argmax(model.predict(x, verbose=0), 1) == y for x, y in splits]
                say_json(
                    {
                        "network": name,
                        "seed": seed,
                        "by": "tfmot" if frequency is None else f"shrink, every {frequency}",
                        "validation": round(float(np.mean(right[0])), 4),
                        "test": round(float(np.mean(right[1])), 4),
                        "zeros": round(count_zeros(model).fraction, 4),
                    }
                )


if __name__ == "__main__":
    main()
