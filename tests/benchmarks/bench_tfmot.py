"""Imports of models that tensorflow-model-optimization made, and int8 files beside tfmot's own.

    python -m tests.benchmarks.bench_tfmot [ARCHITECTURE...] [--kinds KIND...]

Each of ResNet8, DS-CNN and MobileNetV1 is trained on scikit-learn's digits, enlarged, then pruned,
clustered and trained quantization-aware by tfmot's calls alone, and saved. A line of JSON for each:
how near the imported model comes to tfmot's, what of zeros and clusters is left in shrink's int8
file, and the accuracy on 360 test examples of the float import, of tfmot's model, of shrink's file
and of the file that tfmot's guides make. `steps` are differences of the file's outputs from tfmot's
fake-quantized ones in steps of the file's output: the share within one, and the largest.
Ten minutes for each architecture on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits
from tensorflow_model_optimization.python.core.quantization.keras.collab_opts.cluster_preserve import (  # noqa: E501
    cluster_utils,
)

from models import ds_cnn, mobilenet_v1, resnet
from shrink.model.load import imported_from_tfmot, load_model
from shrink.pruning.masks import count_zeros, prunable_kernels
from shrink.quantization.source import FloatModel
from shrink.quantization.trained_ranges import ranges_of_file
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import static_int8
from shrink.tflite.interpreter import load
from shrink.tflite.weights import nonzero_parameters, parameters
from tests.benchmarks.harness import say_json
from tests.model.tfmot import zoo

_EPOCHS, _TUNING_EPOCHS, _BATCH = 12, 3, 32
ARCHITECTURES: dict[str, tuple[Callable[[], keras.Model], int]] = {
    "resnet8": (lambda: resnet.build(input_shape=(16, 16, 1)), 2),
    "ds_cnn": (lambda: ds_cnn.build(input_shape=(16, 16, 1), classes=10, momentum=0.9), 2),
    "mobilenet_v1": (
        lambda: _settling(mobilenet_v1.build(input_shape=(32, 32, 1), classes=10)),
        4,
    ),
}
"""Each with how many times the digits are enlarged."""


def _settling(model: keras.Model) -> keras.Model:
    """Have running statistics follow within a few hundred updates."""
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.9
    return model


class _Digits:
    """Digits in [0, 1]: 1,437 to train with, 360 to test with."""

    def __init__(self, times: int) -> None:
        images, labels = load_digits(return_X_y=True)
        large = np.repeat(np.repeat(images.reshape(-1, 8, 8, 1), times, 1), times, 2)
        order = np.random.default_rng(0).permutation(len(labels))
        x, y = (large[order] / 16).astype(np.float32), labels[order]
        self.train, self.test = (x[:-360], y[:-360]), (x[-360:], y[-360:])

    def batches(self, most: int | None = None) -> list[dict[str, np.ndarray]]:
        """Return training examples to calibrate with, as `CalibrationExamples` does."""
        few = self.train[0][: most or 500]
        return [{self.name: few[i : i + 50]} for i in range(0, len(few), 50)]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for batch in self.batches():
            for row in batch[self.name]:
                yield {self.name: row[None]}

    name = "picture"


def _fit(digits: _Digits, epochs: int) -> zoo.Fit:
    def fit(model: keras.Model, callbacks: list[keras.callbacks.Callback]) -> keras.Model:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-3 if epochs > 5 else 3e-4), loss)
        x, y = digits.train
        model.fit(x, y, _BATCH, epochs, verbose=0, callbacks=callbacks)
        return model

    return fit


def _accuracy(outputs: np.ndarray, digits: _Digits) -> float:
    return round(float(np.mean(np.argmax(outputs, 1) == digits.test[1])), 4)


def _tfmot_file(kind: str, model: keras.Model) -> bytes:
    """Return the int8 file that tfmot's guides make of a quantization-aware model."""
    stripped = cluster_utils.strip_clustering_cqat(model) if "cqat" in kind else model
    converter = tf.lite.TFLiteConverter.from_keras_model(stripped)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    content: bytes = converter.convert()
    return content


def _file_outputs(content: bytes, digits: _Digits) -> np.ndarray:
    runner = load(content)
    return np.asarray(runner.predict({runner.input_names[0]: digits.test[0]})[0])


def _steps(outputs: np.ndarray, wanted: np.ndarray, scale: float) -> list[float]:
    steps = np.abs(outputs - wanted) / scale
    return [round(float(np.mean(steps <= 1.001)), 4), round(float(steps.max()), 2)]


def _clusters(model: keras.Model) -> int:
    return max(len(np.unique(one.kernel.numpy())) for one in prunable_kernels(model)[0])


def measure(kind: str, made: keras.Model, path: Path, digits: _Digits) -> dict[str, Any]:
    """Return the figures of one model that tfmot made and saved."""
    wanted = np.asarray(made.predict(digits.test[0], verbose=0))
    model = load_model(path)
    ours = np.asarray(model.predict(digits.test[0], verbose=0))
    source = FloatModel(model)
    found = imported_from_tfmot(model)
    if found is not None and found.ranges:
        source.ranges = ranges_of_file(source, found.ranges, digits.batches())
    config = QuantizeConfig(dense_scales="tensor" if source.ranges else "channel")
    content = static_int8(source, digits, config).content  # type: ignore[arg-type]
    scale = load(content).output_details[0].scale
    file = _file_outputs(content, digits)
    row: dict[str, Any] = {
        "difference": float(np.abs(ours - wanted).max() / np.abs(wanted).max()),
        "zeros": round(count_zeros(model).fraction, 4),
        "zeros_int8": round(1 - nonzero_parameters(content) / parameters(content), 4),
        "clusters": _clusters(model),
        "ranges": [len(source.ranges), len(found.ranges) if found else 0],
        "accuracy": {
            "tfmot": _accuracy(wanted, digits),
            "import": _accuracy(ours, digits),
            "int8": _accuracy(file, digits),
        },
        "int8_bytes": len(content),
    }
    if "qat" in kind:
        theirs = _tfmot_file(kind, made)
        outputs = _file_outputs(theirs, digits)
        row["accuracy"]["tfmot_int8"] = _accuracy(outputs, digits)
        row["tfmot_int8_bytes"] = len(theirs)
        row["steps"] = _steps(file, wanted, scale)
        row["tfmot_steps"] = _steps(outputs, wanted, scale)
    return row


def table(lines: str) -> str:
    """Return the table of docs/from-tfmot.md.

    Args:
        lines: those that this prints, which docs/tfmot-imports.jsonl keeps.
    """
    made = [
        "| | | zeros | tfmot's int8 | bytes | within a step "
        "| shrink's int8 | bytes | within a step |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in map(json.loads, lines.splitlines()):
        accuracy, zeros = row["accuracy"], f"{row['zeros']:.1%}"
        theirs = " | | "
        if "tfmot_steps" in row:
            theirs = f"{accuracy['tfmot_int8']:.2%} | {row['tfmot_int8_bytes']:,} | "
            theirs += _within(row["tfmot_steps"])
        ours = f"{accuracy['int8']:.2%} | {row['int8_bytes']:,} | {_within(row.get('steps'))}"
        made.append(f"| {row['model']} | {row['kind']} | {zeros} | {theirs} | {ours} |")
    return "\n".join(made) + "\n"


def _within(steps: list[float] | None) -> str:
    return "" if steps is None else f"{steps[0]:.1%}, most {steps[1]:.0f}"


def main() -> None:
    """Print a line for each kind of each architecture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architectures", nargs="*", default=list(ARCHITECTURES))
    kinds = [kind for kind in zoo.MADE if kind != "annotated"]
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    parser.add_argument(
        "--epochs", type=int, default=_EPOCHS, help="of the training before tfmot's"
    )
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(2)
    for architecture in arguments.architectures:
        keras.utils.set_random_seed(0)
        build, times = ARCHITECTURES[architecture]
        digits = _Digits(times)
        base = _fit(digits, arguments.epochs)(build(), [])
        digits.name = base.input_names[0]
        updates = _TUNING_EPOCHS * len(digits.train[0]) // _BATCH // 2
        with tempfile.TemporaryDirectory() as folder:
            for kind in arguments.kinds:
                make = zoo.MADE[kind]
                started = time.process_time()
                start = keras.models.clone_model(base)
                start.set_weights(base.get_weights())
                more = {"updates": updates} if kind == "pruned" else {}
                made = make(start, _fit(digits, _TUNING_EPOCHS), **more)
                path = zoo.saved(made, Path(folder), ".h5" if "qat" in kind else ".keras")
                row = measure(kind, made, path, digits)
                seconds = round(time.process_time() - started)
                say_json({"model": architecture, "kind": kind, **row, "cpu_s": seconds})


if __name__ == "__main__":
    main()
