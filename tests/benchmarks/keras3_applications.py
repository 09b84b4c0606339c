"""Writes one model of Keras 3's `keras.applications`, in a process in which Keras 3 is Keras.

Run as `python keras3_applications.py FOLDER NAME`: exact.keras in float64, in which rounding hides
nothing; model.keras with its weights in float32; data.npz with images and the logits that Keras 3
makes of them in float64 (y_train, y_test); control.npz with the logits for the test split of a
model of which one kernel is 1 % larger.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

SMALLEST: dict[str, int] = {
    "ConvNeXtTiny": 32,
    "DenseNet121": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "InceptionResNetV2": 75,
    "InceptionV3": 75,
    "MobileNet": 32,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "NASNetMobile": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "VGG16": 32,
    "VGG19": 32,
    "Xception": 71,
}
"""The smallest model of every family, and the smallest side of its images."""

CLASSES = 10
_TRAIN, _TEST = 64, 32


def build(name: str) -> Any:
    """Return the model without its softmax, which would hide differences."""
    side = SMALLEST[name]
    return getattr(keras.applications, name)(
        weights=None, input_shape=(side, side, 3), classes=CLASSES, classifier_activation=None
    )


def randomize(model: Any, images: Any) -> None:
    """Give a model weights and statistics that let the signal through.

    Kernels keep the variance (He et al. 2015, eq. 10); the moving statistics are those of
    `images`, so that what normalisation layers give has the scale of what they were made for.
    """
    random = np.random.default_rng(0)
    for weight in model.weights:
        part = weight.path.rpartition("/")[2]
        if "kernel" in part:
            weight.assign(_kernel(random, weight.shape, "depthwise" in weight.path))
        elif part == "gamma":
            weight.assign(random.uniform(0.5, 1.5, weight.shape))
        elif part in ("beta", "bias"):
            weight.assign(random.normal(0.0, 0.1, weight.shape))
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 0.0
    model(images, training=True)
    for layer, momentum in zip(norms, momenta, strict=True):
        layer.momentum = momentum


def images_of(model: Any, count: int) -> Any:
    """Return images for a model, coarse patterns under noise, float32 (count, ...), 0 to 255."""
    random, shape = np.random.default_rng(1), (count, *model.input_shape[1:])
    coarse = random.uniform(0, 255, (count, 4, 4, 3))
    x = keras.ops.image.resize(coarse.astype("float32"), shape[1:3])
    return np.clip(np.asarray(x) + random.normal(0, 20, shape), 0, 255).astype("float32")


def _kernel(random: np.random.Generator, shape: tuple[int, ...], depthwise: bool) -> Any:
    fan_in = np.prod(shape[:2] if depthwise else shape[:-1])
    return random.normal(0.0, np.sqrt(2.0 / fan_in), shape)


def logits(model: Any, x: Any) -> Any:
    """Return what a model computes, operator by operator: compiled by XLA it rounds otherwise."""
    parts = [model(x[start : start + 32], training=False) for start in range(0, len(x), 32)]
    return np.concatenate([np.asarray(part) for part in parts])


def write(folder: Path, name: str) -> None:
    """Write the model and what it computes."""
    keras.config.set_dtype_policy("float64")
    model = build(name)
    x = images_of(model, _TRAIN + _TEST)
    randomize(model, x[:_TRAIN])
    y = logits(model, x)
    model.save(folder / "exact.keras")
    keras.config.set_dtype_policy("float32")
    rounded = build(name)
    rounded.set_weights(model.get_weights())
    rounded.save(folder / "model.keras")
    kernel = next(w for w in model.trainable_weights if "kernel" in w.path)
    kernel.assign(kernel * 1.01)
    changed = logits(model, x[_TRAIN:])
    np.savez(
        folder / "data.npz",
        x_train=x[:_TRAIN], y_train=y[:_TRAIN], x_test=x[_TRAIN:], y_test=y[_TRAIN:],
    )  # fmt: skip
    np.savez(folder / "control.npz", changed=changed)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
