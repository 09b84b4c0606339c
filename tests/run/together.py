"""Runs of two workers on this machine."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras

from tests.cli.shell import command, environment

_MODEL = """
import tf_keras as keras
def build():
    layers = keras.layers
    inputs = layers.Input((8, 8, 1))
    hidden = layers.BatchNormalization()(layers.Conv2D(4, 3)(inputs))
    return keras.Model(inputs, layers.Dense(10)(layers.Flatten()(hidden)))
"""
_RECIPE = """
name: together
model: tiny.py:build
data: {source: digits}
training:
  {global_batch_size: 100, micro_batch_size: 20, batch_norm: synchronized,
   optimizer: {name: sgd, momentum: 0.9, learning_rate: 0.01}}
stages:
  - train: {epochs: EPOCHS}
  - quantize: {scheme: float16}
"""


def write_recipe(root: Path, epochs: int) -> None:
    """Write the model and the recipe."""
    (root / "tiny.py").write_text(_MODEL, encoding="utf-8")
    (root / "recipe.yaml").write_text(_RECIPE.replace("EPOCHS", str(epochs)), encoding="utf-8")


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_worker(root: Path, ports: Sequence[int], index: int) -> subprocess.Popen[str]:
    """Start `shrink run` as one of several workers; what it says goes to `worker-<index>.log`."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    with (root / f"worker-{index}.log").open("a", encoding="utf-8") as log:
        return subprocess.Popen(
            command("run", root / "recipe.yaml", "--output", root / f"out-{index}"),
            cwd=root,
            env=environment(root / "store", {"TF_CONFIG": config}),
            stdout=log,
            stderr=log,
            text=True,
        )


def said(root: Path, index: int) -> str:
    """Return what a worker has said so far."""
    return (root / f"worker-{index}.log").read_text(encoding="utf-8")


def wait_for(happened: Callable[[], bool], seconds: float = 240) -> None:
    """Wait until something has happened."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.2)


def weights(folder: Path) -> list[Any]:
    """Return the weights of a run's trained model."""
    model = keras.models.load_model(folder / "artifacts" / "00-train.keras", compile=False)
    return list(model.get_weights())


def difference(one: Path, other: Path) -> float:
    """Return the largest absolute difference of two runs' trained weights."""
    pairs = zip(weights(one), weights(other), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)
