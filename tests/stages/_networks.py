"""Small networks of common kinds, with data that they fit, for tests of whole stages.

As in the oracle's zoo, labels are drawn from the network's own outputs: it is far from guessing
without a training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras

from tests.oracle import keras_models
from tests.oracle.keras_models import predict
from tests.oracle.truth import Output, Truth

L = keras.layers
CLASSES, STEPS, TOKENS = 4, 6, 20
NAMES = ("second", "third")
SPLITS = {"train": 72, "validation": 24, "test": 60}
NOISE = 0.15
"""Fraction of labels that are drawn instead of taken from the network."""


@dataclass(frozen=True)
class Network:
    """One of them on disk.

    Attributes:
        folder: with `model.keras`, `model.tflite`, `other.keras`, `student.keras` and `data.npz`.
        data: the recipe's `data` section.
        truth: its test examples.
    """

    folder: Path
    data: dict[str, Any]
    truth: Truth


NOTHING = Truth({}, [Output("kind", "sparse_categorical_crossentropy")], {})
"""Of examples that nobody looks at."""


def write(name: str, folder: Path) -> Network:
    """Write the network of this name, another one, a student for it, and examples."""
    folder.mkdir(parents=True, exist_ok=True)
    model = NETWORKS[name](8, 0)
    _spread(model)
    model.save(folder / "model.keras")
    keras_models.convert(model, folder).rename(folder / "model.tflite")
    NETWORKS[name](8, 2).save(folder / "other.keras")
    NETWORKS[name](4, 1).save(folder / "student.keras")
    outputs = OUTPUTS.get(name, [Output("kind", "sparse_categorical_crossentropy")])
    rng = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for part, count in SPLITS.items():
        inputs = _examples(model, count, rng)
        values = predict(model, inputs)
        targets = {
            output.name: _target(output, value, rng)
            for output, value in zip(outputs, values, strict=True)
        }
        arrays |= {f"{key}_{part}": array for key, array in {**inputs, **targets}.items()}
    with (folder / "data.npz").open("wb") as file:
        np.savez(file, **arrays)
    named = {"inputs": list(inputs), "targets": list(targets)}
    truth = Truth(inputs, outputs, targets, metrics=_metrics(outputs), train_examples=72)
    return Network(folder, {"source": "npz", "path": str(folder / "data.npz"), **named}, truth)


def task(network: Network) -> dict[str, Any]:
    """Return the recipe's `task` section."""
    losses = {output.name: output.loss for output in network.truth.outputs}
    loss: Any = losses if len(losses) > 1 else next(iter(losses.values()))
    return {"loss": loss, "metrics": network.truth.metrics}


def _metrics(outputs: list[Output]) -> list[str]:
    by_loss = {"binary_crossentropy": "binary_accuracy", "mean_squared_error": "mean_squared_error"}
    return [by_loss.get(output.loss, "accuracy") for output in outputs]


def _target(output: Output, value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if output.loss == "mean_squared_error":
        return (value + 0.2 * rng.normal(size=value.shape)).astype(np.float32)
    if output.loss == "binary_crossentropy":
        return ((value > 0.5) ^ (rng.random(value.shape) < NOISE)).astype(np.int64)
    drawn = rng.integers(0, CLASSES, len(value))
    return np.where(rng.random(len(value)) < NOISE, drawn, value.argmax(-1)).astype(np.int64)


def _examples(model: Any, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {}
    for tensor in model.inputs:
        name, shape = tensor.name.split(":")[0], (count, *tensor.shape[1:])
        if name.startswith("tokens"):
            found[name] = rng.integers(0, TOKENS, shape).astype(tensor.dtype.as_numpy_dtype)
        else:
            found[name] = rng.normal(size=shape).astype(np.float32)
    return found


def _spread(model: Any) -> None:
    """Scale each closing layer, so that its outputs differ from example to example."""
    rng = np.random.default_rng(0)
    closing = [model.get_layer(name) for name in model.output_names]
    inner = keras.Model(model.inputs, [layer.input for layer in closing])
    for layer, features in zip(closing, predict(inner, _examples(model, 200, rng)), strict=True):
        kernel = rng.normal(size=layer.kernel.shape)
        kernel *= 2.0 / (features @ kernel).std(0)
        layer.kernel.assign(kernel)
        layer.bias.assign(-(features @ kernel).mean(0))


def _image() -> Any:
    return L.Input((8, 8, 3), name="picture")


def _classes(hidden: Any, inputs: Any, ending: str | None = "softmax") -> Any:
    return keras.Model(inputs, L.Dense(CLASSES, activation=ending, name="kind")(hidden))


def _plain(width: int) -> Any:
    inputs = _image()
    hidden = L.Conv2D(width, 3, padding="same", activation="relu", name="first")(inputs)
    hidden = L.Conv2D(2 * width, 3, activation="relu", name="second")(L.MaxPooling2D()(hidden))
    return _classes(
        L.Dense(2 * width, activation="relu", name="third")(L.Flatten()(hidden)), inputs
    )


def _residual(width: int) -> Any:
    inputs = _image()
    hidden = L.Conv2D(width, 3, padding="same", name="first")(inputs)
    for block in range(2):
        inner = L.Conv2D(width, 3, padding="same", use_bias=False, name=NAMES[block])(hidden)
        inner = L.ReLU()(L.BatchNormalization()(inner))
        inner = L.Conv2D(width, 3, padding="same", name=f"outer{block}")(inner)
        hidden = L.ReLU()(L.Add()([hidden, inner]))
    return _classes(L.GlobalAveragePooling2D()(hidden), inputs, None)


def _depthwise(width: int) -> Any:
    inputs = _image()
    hidden = L.Conv2D(width, 3, strides=2, padding="same", use_bias=False, name="first")(inputs)
    hidden = L.ReLU(6.0)(L.BatchNormalization()(hidden))
    for block in range(2):
        hidden = L.DepthwiseConv2D(3, padding="same", use_bias=False, name=f"deep{block}")(hidden)
        hidden = L.ReLU(6.0)(L.BatchNormalization()(hidden))
        hidden = L.Conv2D(2 * width, 1, use_bias=False, name=NAMES[block])(hidden)
        hidden = L.ReLU(6.0)(L.BatchNormalization()(hidden))
    return _classes(L.GlobalAveragePooling2D()(hidden), inputs)


def _sequence(width: int) -> Any:
    inputs = L.Input((STEPS,), name="tokens", dtype="int32")
    hidden = L.LSTM(width, name="loop")(L.Embedding(TOKENS, width, name="first")(inputs))
    return _classes(L.Dense(width, activation="relu", name="second")(hidden), inputs)


def _pooled(width: int) -> Any:
    inputs = L.Input((STEPS,), name="tokens")  # float32, as Keras makes it where nothing is said
    hidden = L.Embedding(TOKENS, width, name="table")(inputs)
    hidden = L.Conv1D(width, 3, activation="relu", name="first")(hidden)
    hidden = L.Dense(width, activation="relu", name="second")(L.GlobalAveragePooling1D()(hidden))
    return _classes(hidden, inputs)


def _two(width: int) -> Any:
    image, facts = _image(), L.Input((5,), name="facts")
    seen = L.Conv2D(width, 3, strides=2, activation="relu", name="first")(image)
    joined = L.Concatenate()([L.Flatten()(seen), L.Dense(width, name="second")(facts)])
    hidden = L.Dense(2 * width, activation="relu", name="third")(joined)
    kind = L.Dense(CLASSES, activation="softmax", name="kind")(hidden)
    return keras.Model([image, facts], [kind, L.Dense(2, name="angle")(hidden)])


def _labels(width: int) -> Any:
    inputs = _image()
    hidden = L.Conv2D(width, 3, strides=2, activation="relu", name="first")(inputs)
    hidden = L.Dense(2 * width, activation="relu", name="second")(L.Flatten()(hidden))
    return keras.Model(inputs, L.Dense(3, activation="sigmoid", name="marks")(hidden))


OUTPUTS: Mapping[str, list[Output]] = {
    "residual": [Output("kind", "sparse_categorical_crossentropy", from_logits=True)],
    "two": [
        Output("kind", "sparse_categorical_crossentropy"),
        Output("angle", "mean_squared_error"),
    ],
    "labels": [Output("marks", "binary_crossentropy")],
}


def _seeded(build: Callable[[int], Any]) -> Callable[[int, int], Any]:
    def seeded(width: int, seed: int) -> Any:
        keras.utils.set_random_seed(seed)
        return build(width)

    return seeded


NETWORKS: Mapping[str, Callable[[int, int], Any]] = {
    name: _seeded(build)
    for name, build in {
        "plain": _plain,
        "residual": _residual,
        "depthwise": _depthwise,
        "sequence": _sequence,
        "pooled": _pooled,
        "two": _two,
        "labels": _labels,
    }.items()
}
"""By name, from a width and a seed to the model."""
