"""Training memory of a model at one batch size, without data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.config import TrainingConfig
from shrink.engine.devices import open_devices
from shrink.engine.microbatch import MicroBatchTrainer
from shrink.engine.objective import SupervisedObjective
from shrink.engine.optimizer import build_optimizer
from shrink.errors import ModelError
from shrink.measure.memory import AllocatorPeak, host_peak_bytes
from shrink.model.load import load_source

_STEPS = 3


def profile(job: Mapping[str, Any], send: Callable[..., None]) -> dict[str, Any]:
    """Train a few steps on random inputs and return what memory that took.

    The loss is the mean square of the outputs and the optimizer Adam: what a training step holds
    hardly depends on either.

    Returns:
        `batch_size`, `training_peak_bytes`, `training_peak_predicted_bytes` (null: nothing
        predicts it yet), `largest_batch_size` (null, likewise), `training_host_peak_bytes`,
        `layers` with `name`, `activation_bytes` at this batch size and `parameter_bytes`, and
        `notes`.
    """
    batch_size = int(job["batch_size"])
    config = TrainingConfig(global_batch_size=batch_size, memory_limit=job["memory_limit"])
    devices = open_devices(config)
    keras.utils.set_random_seed(config.seed)
    with devices.scope():
        model = load_source(job["model"])
        trainer = MicroBatchTrainer(
            model,
            SupervisedObjective("mean_squared_error", from_logits=True),
            (),
            micro_batch_size=batch_size,
            most_rows=batch_size,
            never_empty=True,
        )
        optimizer = build_optimizer(config.optimizer, total_updates=_STEPS)
        trainer.compile(optimizer=optimizer)
        optimizer.build(model.trainable_variables)
    peak = AllocatorPeak(devices.device_names)
    x, y = random_batch(model, batch_size)
    trainer.train_on_batch(x, y)  # builds the graph, which is no part of a step's memory
    peak.reset()
    for _ in range(_STEPS):
        trainer.train_on_batch(x, y)
    measured = peak.peak()
    return {
        "model": job["name"],
        "batch_size": batch_size,
        "training_peak_bytes": measured,
        "training_peak_predicted_bytes": None,
        "largest_batch_size": None,
        "training_host_peak_bytes": host_peak_bytes(),
        "layers": layer_memory(model, batch_size),
        "devices": list(devices.device_names),
        "notes": [
            *([] if measured is not None else [f"training_peak_bytes: {peak.note}"]),
            "training_peak_predicted_bytes, largest_batch_size: one batch size was measured, "
            "nothing is predicted from it",
        ],
    }


def random_batch(model: keras.Model, batch_size: int) -> tuple[Any, Any]:
    """Return random inputs and zero targets for every input and output of a model."""
    rng = np.random.default_rng(0)
    inputs = [_random(tensor, batch_size, rng) for tensor in model.inputs]
    targets = [np.zeros((batch_size, *_sides(t)), np.float32) for t in model.outputs]
    return (
        inputs[0] if len(inputs) == 1 else inputs,
        targets[0] if len(targets) == 1 else targets,
    )


def layer_memory(model: keras.Model, batch_size: int) -> list[dict[str, Any]]:
    """Return each layer's output and weights in bytes, the largest output first."""
    rows = []
    for layer in model.layers:
        outputs = tf.nest.flatten(layer.output)
        elements = sum(
            int(np.prod([side or 1 for side in t.shape[1:]])) * t.dtype.size for t in outputs
        )
        weights = sum(int(np.prod(w.shape)) * w.dtype.size for w in layer.weights)
        rows.append(
            {
                "name": layer.name,
                "activation_bytes": elements * batch_size,
                "parameter_bytes": weights,
            }
        )
    return sorted(rows, key=lambda row: -int(row["activation_bytes"]))


def _random(tensor: Any, batch_size: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    shape = (batch_size, *_sides(tensor))
    if tensor.dtype.is_integer:
        return np.zeros(shape, tensor.dtype.as_numpy_dtype)
    return rng.uniform(size=shape).astype(np.float32)


def _sides(tensor: Any) -> tuple[int, ...]:
    if any(side is None for side in tensor.shape[1:]):
        raise ModelError(
            f"the tensor {tensor.name!r} has sides of unknown length {tuple(tensor.shape)}",
            hint="profile a model with fixed input shapes",
        )
    return tuple(tensor.shape[1:])
