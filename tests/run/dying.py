"""A recipe whose training ends its own process, as often as its model's file says."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forks
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
            os.kill(os.getpid(), getattr(signal, (HERE / "signal").read_text()))
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

    def notes(self, name: str) -> list[str]:
        return list(stage(read_report(self.root / "out"), name)["notes"])

    def write(self, deaths: Sequence[int | str], by: str = "SIGKILL", *, batch: int = 64) -> None:
        """Write recipe and model.

        Args:
            deaths: numbers of forward passes in a process, counted from 1, or `always`.
            by: the signal.
            batch: the global batch size.
        """
        texts = {"dying.py": _MODEL, "recipe.yaml": _RECIPE.replace("BATCH", str(batch))}
        self._write({**texts, "signal": by, "deaths.json": json.dumps(list(deaths))})

    def write_chain(self) -> None:
        """Write a recipe of three stages that train for some seconds each, and never die."""
        self._write({"plain.py": _PLAIN, "recipe.yaml": _CHAIN})

    def write_convolutional(self) -> None:
        """Write a recipe whose global batch needs more than 300 MB."""
        recipe = _RECIPE.replace("BATCH", "512").replace("epochs: 3", "epochs: 1")
        self._write({"dying.py": _CONVOLUTIONAL, "recipe.yaml": recipe})

    def _write(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            (self.root / name).write_text(text, encoding="utf-8")

    def run_until_a_new_checkpoint(self, seen: set[str]) -> int:
        """Kill the run once it has written a checkpoint of a step that is not yet in `seen`."""
        process = subprocess.Popen(
            command(*self._words),
            cwd=self.root,
            env=environment(self.root / "store"),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        while process.poll() is None:
            for manifest in (self.root / "store").glob("checkpoints/*/*/checkpoint.json"):
                if (key := manifest.parts[-3]) not in seen:
                    process.kill()
                    seen.add(key)
            time.sleep(0.005)
        return process.returncode

    @property
    def _words(self) -> list[str]:
        return ["run", str(self.root / "recipe.yaml"), "--output", str(self.root / "out")]

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the recipe to its end."""
        return forks.run(self._words, self.root, environment(self.root / "store"))

    def run_with(self, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run the recipe to its end, with what TensorFlow reads when it is imported."""
        return subprocess.run(
            command(*self._words),
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
_CHAIN = """
name: chain
model: plain.py:build
data: {source: digits}
stages:
  - train: {epochs: 200}
  - distill: {student: plain.py:build, teacher: train, epochs: 200}
  - prune: {method: magnitude, sparsity: 0.5, epochs: 200}
"""
_PLAIN = """
import tf_keras as keras


def build():
    layers = keras.layers
    inputs = layers.Input((8, 8, 1))
    hidden = layers.BatchNormalization()(layers.Dense(16)(layers.Flatten()(inputs)))
    hidden = layers.Dropout(0.2)(layers.ReLU()(hidden))
    return keras.Model(inputs, layers.Dense(10)(hidden))
"""


def hash_of_weights(artifact: Path) -> str:
    """Return a hash of the weights of a Keras file."""
    with zipfile.ZipFile(artifact) as archive, archive.open("model.weights.h5") as stream:
        return hashlib.sha256(stream.read()).hexdigest()
