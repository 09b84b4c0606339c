"""Trains small networks under combined settings, and under the plain ones, in one process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ShrinkError
from shrink.contract.job import Planning, StepJob
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices, open_devices
from shrink.engine.record import TrainingRecord
from shrink.stages.context import Planned, StageContext
from tests.jobs import quiet, step_job

FACTORS: dict[str, list[Any]] = {
    "architecture": ["sequential", "residual", "depthwise", "lstm", "two_inputs", "attention"],
    "precision": ["float32", "mixed_bfloat16", "mixed_float16"],
    "recompute": ["off", "auto", 2],
    "memory_limit": [None, 2**30],
    "replicas": [1, 2],
    "micro_batch_size": ["auto", 3],
    "batch_norm": ["per_micro_batch", "frozen", "synchronized"],
    "clipping": [{}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.05}],
    "schedule": ["constant", "cosine", "exponential", "step"],
    "restore_best": [False, True],
    "patience": [None, 1],
    "augment": [
        None,
        {"mixup": 0.4},
        {"flip": "both", "crop": 1, "rotate": 20},
        {"brightness": 0.2, "contrast": 0.2, "saturation": 0.2, "hue": 0.1, "cutout": 3},
    ],
    "cache": ["none", "validation", "memory", "disk"],
    # As one factor: weights of classes are refused where targets are real, and hide the rest.
    "loss_and_class_weights": [
        ["sparse_categorical_crossentropy", None],
        ["sparse_categorical_crossentropy", "balanced"],
        ["sparse_categorical_crossentropy", {"1": 3.0}],
        ["mean_squared_error", None],
        ["mean_squared_error", "balanced"],
    ],
}
CLASSES, BATCH_SIZE, PARTS = 3, 8, {"train": 21, "validation": 6, "test": 6}


PLAIN = {
    **{"recompute": "off", "memory_limit": None, "replicas": 1, "micro_batch_size": "auto"},
    "cache": "none",
}


def run_cases(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each case what came of it: refused, or trained, and how far from plain training.

    A process's devices are fixed: all cases have the same replicas and limit of memory.
    """
    devices = open_devices(
        TrainingConfig(replicas=cases[0]["replicas"], memory_limit=cases[0]["memory_limit"])
    )
    with tempfile.TemporaryDirectory() as folder:
        _write_data(Path(folder))
        return [_outcome(case, devices, Path(folder)) for case in cases]


def _outcome(case: Mapping[str, Any], devices: Devices, folder: Path) -> dict[str, Any]:
    try:
        model, record = _train(case, devices, folder)
    except ShrinkError as error:
        return {"refused": str(error)}
    except Exception as error:  # what a user would see as a crash
        return {"crashed": f"{type(error).__name__}: {error}"[:2000]}
    weights = model.get_weights()
    outcome = {
        "exact": record.exact,
        "updates": record.updates,
        "finite": all(np.isfinite(weight).all() for weight in weights),
    }
    if not record.exact or case["precision"] != "float32":
        return outcome
    one = Devices(tf.distribute.get_strategy(), ("CPU:0",), on_gpu=False)
    other, _ = _train({**case, **PLAIN}, one, folder)
    pairs = zip(weights, other.get_weights(), strict=True)
    return {**outcome, "difference": max(float(np.abs(a - b).max()) for a, b in pairs)}


def _train(case: Mapping[str, Any], devices: Devices, folder: Path) -> tuple[Any, TrainingRecord]:
    """Train as a stage does: planned before, where memory is limited."""
    loss, class_weights = case["loss_and_class_weights"]
    sgd = {"name": "sgd", "momentum": 0.9, "learning_rate": 0.05, "schedule": case["schedule"]}
    training = {
        "global_batch_size": BATCH_SIZE,
        "class_weights": class_weights,
        "optimizer": {**sgd, **case["clipping"]},
        **{name: case[name] for name in vars(TrainingConfig()) if name in case},
    }
    data = {
        "source": "npz",
        "path": str(folder / "data.npz"),
        "inputs": ["x", "v"] if case["architecture"] == "two_inputs" else ["x"],
        "targets": ["real" if loss == "mean_squared_error" else "labels"],
        **{name: case[name] for name in ("augment", "cache")},
    }
    task = {"loss": loss, "monitor": "loss"}
    job = step_job(folder, data=data, training=training, task=task)
    keras.mixed_precision.set_global_policy(case["precision"])
    keras.utils.set_random_seed(0)
    with devices.scope():
        model = ARCHITECTURES[case["architecture"]]()
    if case["memory_limit"] is not None:
        start = model.get_weights()
        try:
            _stage(job, devices, model, planning=True)
        except Planned as planned:
            job = replace(job, planning=Planning(planned.plan))
        model.set_weights(start)
    return model, _stage(job, devices, model)


def _stage(job: StepJob, devices: Devices, model: Any, *, planning: bool = False) -> TrainingRecord:
    context = StageContext(job, quiet, planning=planning)
    context.__dict__["devices"] = devices  # in place of the property: opened once in a process
    return context.train(model, context.task(model).objective(), epochs=2)


def _write_data(folder: Path) -> None:
    arrays: dict[str, Any] = {}
    for seed, (part, count) in enumerate(PARTS.items()):
        random = np.random.default_rng(seed)
        x = random.uniform(size=(count, 8, 8, 3)).astype(np.float32)
        arrays |= {f"x_{part}": x, f"v_{part}": x[:, 0, :, 0]}
        arrays[f"labels_{part}"] = np.arange(count) % CLASSES
        arrays[f"real_{part}"] = random.normal(size=(count, CLASSES)).astype(np.float32)
    np.savez(folder / "data.npz", **arrays)


def _pooled(inputs: Any, hidden: Any) -> Any:
    pooled = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, dtype="float32")(pooled))


def _sequential() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.MaxPooling2D()(layers.Conv2D(4, 3, activation="relu")(inputs))
    return _pooled(inputs, layers.BatchNormalization()(layers.Conv2D(4, 3)(hidden)))


def _residual() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.Conv2D(4, 3, padding="same")(inputs)
    for _ in range(2):
        inner = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(hidden))
        hidden = layers.ReLU()(layers.add([hidden, inner]))
    return _pooled(inputs, hidden)


def _depthwise() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.ReLU(6.0)(layers.DepthwiseConv2D(3)(inputs))
    hidden = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(4, 1)(hidden)))
    return _pooled(inputs, layers.SeparableConv2D(4, 3)(hidden))


def _lstm() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.Dense(4, activation="relu")(layers.Reshape((8, 24))(inputs))
    hidden = layers.GRU(4)(layers.LSTM(4, return_sequences=True)(hidden))
    return keras.Model(inputs, layers.Dense(CLASSES, dtype="float32")(hidden))


def _two_inputs() -> Any:
    layers = keras.layers
    image, vector = layers.Input((8, 8, 3)), layers.Input((8,))
    seen = layers.GlobalMaxPooling2D()(layers.Conv2D(4, 3, activation="relu")(image))
    joined = layers.Dense(4)(layers.concatenate([seen, layers.Dense(4)(vector)]))
    return keras.Model([image, vector], layers.Dense(CLASSES, dtype="float32")(joined))


def _attention() -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.Dense(4)(layers.Reshape((8, 24))(inputs))
    hidden = layers.add([hidden, layers.MultiHeadAttention(2, 2)(hidden, hidden)])
    hidden = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(hidden))
    return keras.Model(inputs, layers.Dense(CLASSES, dtype="float32")(hidden))


ARCHITECTURES: Mapping[str, Callable[[], Any]] = {
    "sequential": _sequential,
    "residual": _residual,
    "depthwise": _depthwise,
    "lstm": _lstm,
    "two_inputs": _two_inputs,
    "attention": _attention,
}
