"""A recipe so small that a run of it costs little more than TensorFlow's import."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BUILDER = """
import tf_keras as keras

layers = keras.layers


def build(width=1.0, classes=3):
    inputs = layers.Input((4,))
    hidden = layers.Dense(round(8 * width), activation="relu")(inputs)
    return keras.Model(inputs, layers.Dense(classes)(hidden))


def build_large():
    return build(width=4000)
"""

RECIPE = """\
name: toy
model: toy.py:build
data: {source: npz, path: toy.npz}
training: {global_batch_size: 16}
stages:
  - train: {epochs: 1}
"""


def write_toy(folder: Path, recipe: str = RECIPE) -> Path:
    """Write a builder, its data and a recipe into `folder`; return the recipe's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy.py").write_text(BUILDER, encoding="utf-8")
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 4)).astype(np.float32)
    np.savez(folder / "toy.npz", x=x, y=np.arange(60) % 3)
    path = folder / "toy.yaml"
    path.write_text(recipe, encoding="utf-8")
    return path
