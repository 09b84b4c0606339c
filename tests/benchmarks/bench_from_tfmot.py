"""The calls of tfmot's guides beside shrink's commands, on one model and the same examples.

    python -m tests.benchmarks.bench_from_tfmot [ROW...]

A small network is trained on shrink's training split of the digits and saved. Each row of
docs/from-tfmot.md then starts from that file: tfmot's calls as its guides write them, and shrink's
command. Both artifacts are scored on the same 360 test examples. A line of JSON for each row:
accuracy, bytes and bytes under gzip -9 of both. Ten minutes on an idle machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras as keras

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.opening import open_dataset
from shrink.tflite.interpreter import load
from tests.benchmarks.harness import say_json
from tests.cli.shell import shrink

L = keras.layers
_BATCH, _EPOCHS, _RATE = 64, 4, 1e-3
_TRAINED = f"--epochs {_EPOCHS} --optimizer-learning-rate {_RATE}"


def network() -> keras.Model:
    """Return a network whose layers tfmot takes, all of them; digits are 0 to 16."""
    x = inputs = keras.Input((8, 8, 1), name="picture")
    for filters, name in ((16, "first"), (32, "second")):
        x = L.Conv2D(filters, 3, padding="same", use_bias=False, name=name)(x)
        x = L.ReLU(name=f"{name}_relu")(L.BatchNormalization(momentum=0.9)(x))
    x = L.Flatten()(L.MaxPooling2D()(x))
    x = L.Dense(64, activation="relu", name="dense")(x)
    return keras.Model(inputs, L.Dense(10, name="logits")(x))


@dataclass(frozen=True)
class Digits:
    """shrink's digits and tfmot's training on them."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @property
    def updates(self) -> int:
        """Updates of a fine-tuning."""
        return _EPOCHS * math.ceil(len(self.y) / _BATCH)

    def fit(
        self, model: keras.Model, epochs: int = _EPOCHS, rate: float = _RATE, **keys: Any
    ) -> None:
        """Train a model."""
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate), loss)
        model.fit(self.x, self.y, _BATCH, epochs, verbose=0, **keys)

    def few(self) -> list[list[np.ndarray]]:
        """Return examples to calibrate with, as the TFLite converter reads them."""
        return [[each[None]] for each in self.x[:500]]


def opened(seed: int) -> Digits:
    """Return the splits that `--data digits` has under a seed."""
    dataset: Dataset = open_dataset(DataConfig(source="digits"), seed)
    arrays = []
    for examples in (dataset.train, dataset.test):
        x, y = examples.arrays(np.arange(len(examples)))
        arrays += [np.asarray(x, np.float32), np.asarray(y)]
    return Digits(*arrays)


def _converted(model: keras.Model, int8_on: list[list[np.ndarray]] | None = None) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if int8_on is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if int8_on:
            converter.representative_dataset = lambda: iter(int8_on)
    content: bytes = converter.convert()
    return content


def prune(model: keras.Model, digits: Digits) -> keras.Model:
    """The guide "Pruning in Keras example"."""
    schedule = tfmot.sparsity.keras.PolynomialDecay(
        0.0, 0.8, 0, int(0.6 * digits.updates), frequency=10
    )
    wrapped = tfmot.sparsity.keras.prune_low_magnitude(model, pruning_schedule=schedule)
    digits.fit(wrapped, callbacks=[tfmot.sparsity.keras.UpdatePruningStep()])
    return tfmot.sparsity.keras.strip_pruning(wrapped)


def cluster(model: keras.Model, digits: Digits) -> keras.Model:
    """The guide "Weight clustering in Keras example"."""
    start = tfmot.clustering.keras.CentroidInitialization.KMEANS_PLUS_PLUS
    wrapped = tfmot.clustering.keras.cluster_weights(
        model, number_of_clusters=16, cluster_centroids_init=start
    )
    digits.fit(wrapped)
    return tfmot.clustering.keras.strip_clustering(wrapped)


def aware(model: keras.Model, digits: Digits) -> keras.Model:
    """The guide "Quantization aware training in Keras example"."""
    quantized = tfmot.quantization.keras.quantize_model(model)
    digits.fit(quantized)
    return quantized


def pqat(model: keras.Model, digits: Digits) -> keras.Model:
    """The guide "Pruning preserving quantization aware training (PQAT) Keras example"."""
    annotated = tfmot.quantization.keras.quantize_annotate_model(prune(model, digits))
    quantized = tfmot.quantization.keras.quantize_apply(
        annotated, tfmot.experimental.combine.Default8BitPrunePreserveQuantizeScheme()
    )
    digits.fit(quantized)
    return quantized


Guide = Callable[[keras.Model, Digits], bytes]
ROWS: Mapping[str, tuple[Guide, str]] = {
    "post-training int8": (
        lambda model, digits: _converted(model, digits.few()),
        "quantize base.keras --data digits --scheme static_wi8_ai8",
    ),
    "pruning": (
        lambda model, digits: _converted(prune(model, digits)),
        f"prune base.keras --data digits --sparsity 0.8 {_TRAINED}",
    ),
    "clustering": (
        lambda model, digits: _converted(cluster(model, digits)),
        f"cluster base.keras --data digits --clusters 16 {_TRAINED}",
    ),
    "aware": (
        lambda model, digits: _converted(aware(model, digits), []),
        f"quantize base.keras --data digits --scheme static_wi8_ai8 --aware {_TRAINED}",
    ),
    "pqat": (
        lambda model, digits: _converted(pqat(model, digits), []),
        "run pqat.yaml",
    ),
}
"""tfmot's way and shrink's command."""
PQAT = {
    "name": "pqat",
    "model": "base.keras",
    "data": {"source": "digits"},
    "training": {"optimizer": {"learning_rate": _RATE}},
    "stages": [
        {"prune": {"sparsity": 0.8, "epochs": _EPOCHS}},
        {"quantize": {"scheme": "static_wi8_ai8", "aware": True, "epochs": _EPOCHS}},
    ],
}
"""The recipe of the last row: only within one recipe does a stage keep the zeros of another."""


def scored(content: bytes, digits: Digits) -> dict[str, float]:
    """Return the figures of an artifact."""
    runner = load(content)
    outputs = np.asarray(runner.predict({runner.input_names[0]: digits.test_x})[0])
    right = float(np.mean(np.argmax(outputs, 1) == digits.test_y))
    return {
        "accuracy": round(right, 4),
        "bytes": len(content),
        "gzip_bytes": len(gzip.compress(content, 9, mtime=0)),
    }


def shrunk(command: str, folder: Path, seed: int) -> dict[str, float]:
    """Return the figures of the last stage of a command's report."""
    words = shlex.split(command)
    more = ["--set", f"training.seed={seed}"] if words[0] == "run" else ["--seed", str(seed)]
    (folder / "pqat.yaml").write_text(json.dumps(PQAT), encoding="utf-8")
    shrink(*words, *more, "--quiet", cwd=folder, store=folder / "store", fresh=True)
    name = "pqat" if words[0] == "run" else f"{words[0]}-{Path(words[1]).stem}"
    run = folder / "runs" / name
    stage = json.loads((run / "report.json").read_text("utf-8"))["stages"][-1]
    size = stage["size"]
    content = gzip_of(stage, run)
    return {
        "accuracy": round(stage["metrics"]["accuracy"], 4),
        "bytes": size["tflite_bytes"],
        "gzip_bytes": content,
        "nonzero_parameters": size["nonzero_parameters"],
    }


def gzip_of(stage: Mapping[str, Any], run: Path) -> int:
    """Return the bytes under gzip of the TFLite file that a stage's figures are of."""
    artifact = run / stage["artifact"]
    if artifact.suffix == ".tflite":
        content = artifact.read_bytes()
    else:
        content = _converted(keras.models.load_model(artifact, compile=False))
    return len(gzip.compress(content, 9, mtime=0))


def table(lines: str) -> str:
    """Return the table of docs/from-tfmot.md.

    Args:
        lines: those that this prints, which docs/from-tfmot.jsonl keeps.
    """
    rows = [json.loads(line) for line in lines.splitlines()]
    made = [
        "| | tfmot | bytes | gzip | shrink | bytes | gzip | command |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        cells = [_cells(row[side]) if side in row else " | | " for side in ("tfmot", "shrink")]
        command = f"`{row['command']}`" if "command" in row else ""
        made.append(f"| {row['row']} | {cells[0]} | {cells[1]} | {command} |")
    return "\n".join(made) + "\n"


def _cells(figures: Mapping[str, float]) -> str:
    return f"{figures['accuracy'] * 100:.2f} % | {figures['bytes']:,} | {figures['gzip_bytes']:,}"


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    digits = opened(arguments.seed)
    keras.utils.set_random_seed(arguments.seed)
    base = network()
    digits.fit(base, epochs=15, rate=1e-3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base.save(folder / "base.keras")
        say_json({"row": "base", "tfmot": scored(_converted(base), digits)})
        for row in arguments.rows:
            guide, command = ROWS[row]
            start = keras.models.load_model(folder / "base.keras", compile=False)
            say_json(
                {
                    "row": row,
                    "tfmot": scored(guide(start, digits), digits),
                    "shrink": shrunk(command, folder, arguments.seed),
                    "command": f"shrink {command}",
                }
            )


if __name__ == "__main__":
    main()
