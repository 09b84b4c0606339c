"""Toy teachers and students, and one distillation of them.

Run: python -m tests.stages.distill.toy FOLDER REPLICAS MICRO_BATCH_SIZE WEIGHTS
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras

from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.run import run
from tests.jobs import context_of

L = keras.layers
CLASSES = 4


def mlp(units: int, ending: str | None, outputs: int = CLASSES) -> keras.Model:
    """Return a network of one hidden layer for six numbers."""
    inputs = keras.Input((6,))
    hidden = L.Dense(units, activation="relu", name="hidden")(inputs)
    return keras.Model(inputs, L.Dense(outputs, activation=ending, name="end")(hidden))


def two(units: int) -> keras.Model:
    """Return a network that tells a class and an angle, for six numbers."""
    inputs = keras.Input((6,), name="x")
    hidden = L.Dense(units, activation="relu")(inputs)
    kind = L.Dense(CLASSES, activation="softmax", name="kind")(hidden)
    return keras.Model(inputs, [kind, L.Dense(1, activation="tanh", name="angle")(hidden)])


def of_images(units: int) -> keras.Model:
    """Return a network of one convolution for images of 5x5."""
    inputs = keras.Input((5, 5, 3))
    x = L.Rescaling(1 / 255)(inputs)
    hidden = L.Conv2D(units, 3, activation="relu", name="hidden")(x)
    return keras.Model(inputs, L.Dense(CLASSES)(L.GlobalAveragePooling2D()(hidden)))


def write_toys(root: Path) -> None:
    """Write data of classes and of values, and teachers and students for both."""
    random = np.random.default_rng(0)
    x = random.normal(size=(90, 6)).astype(np.float32)
    np.savez(root / "classes.npz", x=x, y=np.arange(90) % CLASSES)
    np.savez(root / "values.npz", x=x, y=x[:, :2] ** 2)
    np.savez(root / "two.npz", x=x, kind=np.arange(90) % CLASSES, angle=x[:, :1] / 4)
    images = random.integers(0, 256, (90, 5, 5, 3), np.uint8)
    np.savez(root / "pictures.npz", x=images, y=np.arange(90) % CLASSES)
    keras.utils.set_random_seed(1)
    of_images(16).save(root / "sees.keras")
    of_images(4).save(root / "small_sees.keras")
    two(16).save(root / "two.keras")
    two(4).save(root / "small_two.keras")
    mlp(16, None).save(root / "logits.keras")
    softmax = mlp(16, "softmax")
    softmax.set_weights(keras.models.load_model(root / "logits.keras").get_weights())
    softmax.save(root / "softmax.keras")
    mlp(4, None).save(root / "student.keras")
    mlp(16, None, 2).save(root / "values.keras")
    mlp(4, None, 2).save(root / "small_values.keras")


def distilled(
    folder: Path,
    work: Path,
    config: dict[str, Any],
    *,
    teachers: tuple[str, ...] = ("logits",),
    student: str = "student",
    data: str = "classes",
    training: dict[str, Any] | None = None,
    named: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
) -> Any:
    """Return the result of the stage; `folder` is that of `write_toys`."""
    roles = ["teacher", *(f"teacher-{n}" for n in range(2, len(teachers) + 1))]
    named_models = dict(zip(("model", *roles), (student, *teachers), strict=True))
    sgd = {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9}
    settings = {"global_batch_size": 16, "optimizer": sgd, **(training or {})}
    described = {"source": "npz", "path": str(folder / f"{data}.npz"), **(named or {})}
    keras.utils.set_random_seed(0)
    context = context_of(
        work,
        kind="distill",
        inputs={role: folder / f"{name}.keras" for role, name in named_models.items()},
        data=described,
        training=settings,
        task=task or {},
    )
    return run(DistillConfig.model_validate({"epochs": 2, **config}), context)


def main(folder: str, replicas: str, micro_batch_size: str, weights: str) -> None:
    """Distill once with so many replicas, and save the student's weights."""
    training = {"replicas": int(replicas), "micro_batch_size": int(micro_batch_size)}
    with tempfile.TemporaryDirectory() as work:
        result = distilled(Path(folder), Path(work), {"teacher_cache": "on"}, training=training)
    np.savez(weights, *result.model.get_weights())


if __name__ == "__main__":
    main(*sys.argv[1:])
