"""A recipe whose training ends its own process, as often as its model's file says."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.shell import command, environment, read_report, stage

# The layer sees every micro-batch that is trained on; a marker file for each death keeps count.
_MODEL = '''
import json, os, pathlib, signal
import tensorflow as tf
import tf_keras as keras

HERE = pathlib.Path(__file__).parent


def observe(rows):
    """End this process at the forward passes that deaths.json names, each once."""
    SEEN["passes"] += 1
    for place in json.loads((HERE / "deaths.json").read_text()):
        marker = HERE / f"died-{place}"
        if place == "always" or (SEEN["passes"] == place and not marker.exists()):
            marker.touch()
            who = os.getppid() if (HERE / "parent").exists() else os.getpid()
            os.kill(who, getattr(signal, (HERE / "signal").read_text()))
            signal.pause()  # a parent takes its worker with it
    return rows


SEEN = {"passes": 0}


@keras.utils.register_keras_serializable("tests")
class Observed(keras.layers.Dense):
    def call(self, inputs, training=None):
        if training:
            rows = tf.numpy_function(observe, [tf.shape(inputs)[0]], tf.int32)
            with tf.control_dependencies([rows]):
                inputs = tf.identity(inputs)
        return super().call(inputs)


def build():
    layers = keras.layers
    inputs = layers.Input((8, 8, 1))
    hidden = layers.ReLU()(layers.Dense(16)(layers.Flatten()(inputs)))
    return keras.Model(inputs, Observed(10)(hidden))
'''


_CONVOLUTIONAL = """
import tf_keras as keras


def build():
    layers = keras.layers
    inputs = layers.Input((8, 8, 1))
    hidden = layers.UpSampling2D(4)(inputs)
    for _ in range(2):
        hidden = layers.Conv2D(48, 3, padding="same", activation="relu")(hidden)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(hidden)))
"""


@dataclass(frozen=True)
class DyingRun:
    """A folder with a recipe, a model whose training dies, a store and a run folder."""

    root: Path

    @property
    def training(self) -> dict[str, Any]:
        return dict(stage(read_report(self.root / "out"), "train")["training"])

    @property
    def notes(self) -> list[str]:
        return list(stage(read_report(self.root / "out"), "train")["notes"])

    @property
    def artifact(self) -> Path:
        return self.root / "out" / "artifacts" / "00-train.keras"

    def write(
        self,
        deaths: Sequence[int | str],
        by: str = "SIGKILL",
        *,
        batch: int = 64,
        chain: bool = False,
        parent: bool = False,
    ) -> None:
        """Write recipe and model.

        Args:
            deaths: numbers of forward passes in a process, counted from 1, or `always`.
            by: the signal.
            batch: the global batch size.
            chain: distill and prune too.
            parent: the signal goes to the worker's parent.
        """
        recipe = _RECIPE.replace("BATCH", str(batch)) + (_CHAIN if chain else "")
        texts = {"dying.py": _MODEL, "recipe.yaml": recipe, "signal": by}
        texts["deaths.json"] = json.dumps(list(deaths))
        if parent:
            texts["parent"] = ""
        self._write(texts)

    def write_convolutional(self) -> None:
        """Write a recipe whose global batch needs more than 300 MB."""
        recipe = _RECIPE.replace("BATCH", "512").replace("epochs: 3", "epochs: 1")
        self._write({"dying.py": _CONVOLUTIONAL, "recipe.yaml": recipe})

    def _write(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            (self.root / name).write_text(text, encoding="utf-8")

    def allow_one_more_death(self) -> None:
        """Forget the deaths so far."""
        for marker in self.root.glob("died-*"):
            marker.unlink()

    def run(
        self, env: Mapping[str, str] | None = None, *flags: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the recipe to its end."""
        return subprocess.run(
            command("run", self.root / "recipe.yaml", "--output", self.root / "out", *flags),
            cwd=self.root,
            env=environment(self.root / "store", env),
            capture_output=True,
            text=True,
            check=False,
        )


_RECIPE = """
name: dying
model: dying.py:build
data: {source: digits}
training: {global_batch_size: BATCH}
stages:
  - train: {epochs: 3}
"""
_CHAIN = """  - distill: {student: dying.py:build, teacher: train, epochs: 3}
  - prune: {method: magnitude, sparsity: 0.5, epochs: 3}
"""


def hash_of_weights(artifact: Path) -> str:
    """Return a hash of the weights of a Keras file."""
    with zipfile.ZipFile(artifact) as archive, archive.open("model.weights.h5") as stream:
        return hashlib.sha256(stream.read()).hexdigest()
