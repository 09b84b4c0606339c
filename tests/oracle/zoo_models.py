"""Small Keras models by combination: inputs, masks, loops, structure, and how they end.

The weights are random, and scaled so that outputs spread: labels are drawn from the model's own
outputs, so that its accuracy is far from chance without a training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

layers = keras.layers
Row = Mapping[str, str]

CLASSES, STEPS, TOKENS, WIDTH = 4, 6, 20, 12
INPUT_NAMES = {
    "one": ["x"],
    "two-ab": ["a", "b"],
    "two-za": ["z", "a"],
    "two-alike": ["b", "a"],
    "three": ["m", "c", "x"],
}
SIZES = {1: 4, 2: 3}
"""Length of the vectors beside the main input, by their place."""


@dataclass
class Head:
    """A dense layer whose weights are scaled once the model stands."""

    layer: Any
    features: Any


def input_shapes(row: Row) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an entry's inputs, without the batch, in the model's order."""
    names = INPUT_NAMES[row["inputs"]]
    main = _main_shape(row)
    alike = row["inputs"] == "two-alike"
    rest = {name: main if alike else (SIZES[i],) for i, name in enumerate(names) if i}
    return {names[0]: main, **rest}


def _main_shape(row: Row) -> tuple[int, ...]:
    if row["source"] in ("images", "csv"):
        return (8, 8, 3)
    if row["mask"] != "none":
        return (STEPS,)
    if row["shape"] == "map":
        return (8, 8, 1)
    return (STEPS, 4) if row["loop"] != "none" else (WIDTH,)


def build(row: Row, seed: int) -> Any:
    """Build an entry's model."""
    keras.utils.set_random_seed(seed)
    shapes = input_shapes(row)
    names = list(shapes)
    tokens = row["mask"] != "none"
    given = {
        n: layers.Input(s, name=n, dtype="int32" if tokens and n == names[0] else None)
        for n, s in shapes.items()
    }
    x = _features(given[names[0]], row)
    for name in names[1:]:
        x = layers.Add(name=f"with_{name}")([x, _beside(given[name], row, name, x)])
    x = _structure(x, row["structure"])
    heads: list[Head] = []
    two = row["outputs"] == "two"
    outputs = [_ending(x, row, heads, "zkind")]
    if two:
        outputs.append(_dense(x, 2, heads, name="angle"))
    model = keras.Model(list(given.values()), outputs if two else outputs[0], name="zoo")
    _spread(model, heads, row, seed)
    return model


def _centred(x: Any, dtype: str, name: str) -> Any:
    scale, offset = {"uint8": (1 / 64, -2.0), "int64": (1 / 4, 0.0)}.get(dtype, (1.0, 0.0))
    return layers.Rescaling(scale, offset, name=f"scale_{name}")(x)


def _features(x: Any, row: Row) -> Any:
    """Return (batch, WIDTH), or (batch, STEPS, WIDTH) where every step has an output."""
    steps = row["mask"] == "steps"
    if row["mask"] != "none":
        x = layers.Embedding(TOKENS, 8, mask_zero=True, name="embed")(x)
    else:
        x = _centred(x, row["dtype"], "main")
    if row["loop"] != "none":
        x = layers.Reshape((8, -1), name="rows")(x) if len(x.shape) == 4 else x
        kind = {"lstm": layers.LSTM, "gru": layers.GRU, "rnn": layers.SimpleRNN}[row["loop"]]
        return kind(WIDTH, return_sequences=steps, name="loop")(x)
    if row["mask"] == "pooled":
        x = layers.GlobalAveragePooling1D(name="pool")(x)
    if len(x.shape) == 4:
        x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu", name="conv")(x)
        x = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(x)
        x = layers.Flatten(name="flat")(x)
    return layers.Dense(WIDTH, activation="relu", name="first")(x)


def _beside(x: Any, row: Row, name: str, main: Any) -> Any:
    x = layers.Rescaling(1 / 50, name=f"scale_{name}")(x)
    x = layers.Flatten(name=f"flat_{name}")(x) if len(x.shape) > 2 else x
    x = layers.Dense(WIDTH, name=f"dense_{name}")(x)
    if len(main.shape) == 2:
        return x
    return layers.Reshape((1, WIDTH), name=f"step_{name}")(x)


def _structure(x: Any, structure: str) -> Any:
    if structure == "nested":
        inner = layers.Input(x.shape[1:], name="inner")
        y = layers.Dense(WIDTH, activation="tanh", name="dense")(inner)
        y = keras.Model(inner, layers.Dense(WIDTH, name="dense_out")(y), name="encoder")(x)
        return y
    if structure == "shared":
        dense = layers.Dense(WIDTH, activation="tanh", name="shared")
        return layers.Add(name="sum")([x, dense(dense(x))])
    return layers.Dense(WIDTH, activation="relu", name="second")(x)


def _dense(x: Any, units: int, heads: list[Head], **config: Any) -> Any:
    layer = layers.Dense(units, **config)
    heads.append(Head(layer, x))
    return layer(x)


def _ending(x: Any, row: Row, heads: list[Head], name: str) -> Any:
    """Return the first output, whose last layer has the name."""
    ending = row["ending"]
    if ending == "linear":
        return _dense(x, 3, heads, name=name)
    if ending.startswith("sigmoid"):
        return _binary(x, ending, heads, name)
    if ending == "logits":
        return _dense(x, CLASSES, heads, name=name)
    if ending == "softmax_activation":
        return _dense(x, CLASSES, heads, activation="softmax", name=name)
    return _composed(x, ending, heads, name)


def _binary(x: Any, ending: str, heads: list[Head], name: str) -> Any:
    if ending == "sigmoid_activation":
        return _dense(x, 1, heads, activation="sigmoid", name=name)
    if ending == "sigmoid_logits":
        return _dense(x, 1, heads, name=name)
    if ending == "sigmoid_op":
        y = tf.sigmoid(_dense(x, 1, heads, name="before"))
        return layers.Activation("linear", name=name)(y)
    both = [_dense(x, 1, heads, activation="sigmoid", name=f"factor{i}") for i in range(2)]
    return layers.Multiply(name=name)(both)


def _composed(x: Any, ending: str, heads: list[Head], name: str) -> Any:
    """Probabilities that some operation hands on."""
    if ending == "softmax_op":
        y = tf.nn.softmax(_dense(x, CLASSES, heads, name="before"))
        return layers.Activation("linear", name=name)(y)
    if ending == "softmax_concat":
        yes = _dense(x, 1, heads, activation="sigmoid", name="yes")
        return layers.Concatenate(name=name)([1.0 - yes, yes])
    if ending == "softmax_average":
        each = [_dense(x, CLASSES, heads, activation="softmax", name=f"e{i}") for i in range(2)]
        return layers.Average(name=name)(each)
    if ending == "softmax_nested":
        inner = layers.Input(x.shape[1:], name="head_inner")
        layer = layers.Dense(CLASSES, name="dense")
        heads.append(Head(layer, x))
        y = layers.Activation("softmax", name="last")(layer(inner))
        return keras.Model(inner, y, name=name)(x)
    assert ending == "softmax_permute", ending
    y = _dense(x, CLASSES, heads, activation="softmax", name="before")
    y = layers.Permute((2, 1), name="turn")(layers.Reshape((1, CLASSES), name="row")(y))
    return layers.Reshape((CLASSES,), name=name)(y)


def _spread(model: Any, heads: list[Head], row: Row, seed: int) -> None:
    """Give each head weights and biases for outputs of mean 0 and deviation 2 before the ending."""
    rng = np.random.default_rng(seed)
    for layer in model.layers:
        if layer.name.startswith("dense_"):  # what the other inputs say has to matter
            layer.kernel.assign(layer.kernel * 2.0)
    arrays = examples(row, 200, rng)
    held = keras.Model(model.inputs, [head.features for head in heads])
    found = held(
        [
            tf.constant(a.astype(t.dtype.as_numpy_dtype))
            for a, t in zip(arrays.values(), model.inputs, strict=True)
        ]
    )
    found = found if isinstance(found, list) else [found]
    for head, features in zip(heads, found, strict=True):
        features = np.asarray(features).reshape(-1, features.shape[-1])
        kernel = rng.normal(size=head.layer.kernel.shape)
        products = features @ kernel
        kernel *= 2.0 / products.std(0)
        head.layer.kernel.assign(kernel)
        head.layer.bias.assign(-(features @ kernel).mean(0))


def examples(row: Row, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return n examples of every input, in the dtype of the data."""
    found: dict[str, np.ndarray] = {}
    for place, (name, shape) in enumerate(input_shapes(row).items()):
        if place:
            found[name] = (50 * rng.normal(size=(n, *shape))).astype(np.float32)
        elif row["mask"] != "none":
            values = rng.integers(1, TOKENS, (n, *shape))
            lengths = rng.integers(2, STEPS + 1, n)
            values[np.arange(STEPS) >= lengths[:, None]] = 0
            found[name] = values.astype(row["dtype"])
        elif row["dtype"] == "uint8":
            found[name] = rng.integers(0, 256, (n, *shape)).astype(np.uint8)
        elif row["dtype"] == "int64":
            found[name] = rng.integers(-8, 9, (n, *shape))
        else:
            found[name] = rng.normal(size=(n, *shape)).astype(row["dtype"])
    return found
