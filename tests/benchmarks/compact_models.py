"""Models whose arenas bench_compact.py compares: int8, with random weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

L = keras.layers


def convolved(
    x: tf.Tensor,
    channels: int,
    kernel: int | tuple[int, int] = 3,
    stride: int = 1,
    act: bool = True,
) -> tf.Tensor:
    x = L.Conv2D(channels, kernel, stride, "same", use_bias=False)(x)
    x = L.BatchNormalization()(x)
    return L.ReLU(6.0)(x) if act else x


def depthwise(x: tf.Tensor, kernel: int = 3, stride: int = 1) -> tf.Tensor:
    x = L.DepthwiseConv2D(kernel, stride, "same", use_bias=False)(x)
    return L.ReLU(6.0)(L.BatchNormalization()(x))


def classified(inputs: tf.Tensor, x: tf.Tensor, classes: int) -> keras.Model:
    x = L.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, L.Dense(classes, activation="softmax")(x))


def mobilenet_v1(width: float = 0.25, size: int = 96) -> keras.Model:
    inputs = L.Input((size, size, 3))
    x = convolved(inputs, int(32 * width), 3, 2)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    for channels, stride in [*blocks, *[(512, 1)] * 5, (1024, 2), (1024, 1)]:
        x = convolved(depthwise(x, 3, stride), int(channels * width), 1)
    x = L.Flatten()(L.GlobalAveragePooling2D(keepdims=True)(x))
    return keras.Model(inputs, L.Dense(2, activation="softmax")(x))


def mobilenet_v2(width: float, size: int, classes: int) -> keras.Model:
    build = keras.applications.MobileNetV2
    return build(input_shape=(size, size, 3), alpha=width, weights=None, classes=classes)


def ds_cnn() -> keras.Model:
    inputs = L.Input((49, 10, 1))
    x = convolved(inputs, 64, (10, 4), 2)
    for _ in range(4):
        x = convolved(depthwise(x), 64, 1)
    x = L.Flatten()(L.GlobalAveragePooling2D(keepdims=True)(x))
    return keras.Model(inputs, L.Dense(12, activation="softmax")(x))


def unet(size: int = 96, channels: int = 8) -> keras.Model:
    inputs = x = L.Input((size, size, 3))
    skips = []
    for depth in range(3):
        x = convolved(convolved(x, channels << depth), channels << depth)
        skips.append(x)
        x = L.MaxPool2D(2)(x)
    x = convolved(convolved(x, channels << 3), channels << 3)
    for depth in reversed(range(3)):
        x = convolved(L.UpSampling2D(2)(x), channels << depth)
        x = L.Concatenate()([skips[depth], x])
        x = convolved(convolved(x, channels << depth), channels << depth)
    return keras.Model(inputs, L.Conv2D(2, 1)(x))


def efficientnet_lite(size: int = 128, width: float = 0.35) -> keras.Model:
    inputs = L.Input((size, size, 3))
    x = convolved(inputs, 16, 3, 2)
    before = 16
    stages = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)]
    for factor, full, repeats, first, kernel in [
        *stages,
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]:
        channels = max(8, int(full * width + 4) // 8 * 8)
        for number in range(repeats):
            y, stride = x, first if number == 0 else 1
            if factor != 1:
                y = convolved(y, before * factor, 1)
            y = convolved(depthwise(y, kernel, stride), channels, 1, act=False)
            x = L.Add()([x, y]) if stride == 1 and before == channels else y
            before = channels
    return classified(inputs, convolved(x, 256, 1), 100)


def inception(size: int = 64) -> keras.Model:
    inputs = L.Input((size, size, 3))
    x = convolved(inputs, 16, 3, 2)
    for block, c in enumerate([16, 24, 32]):
        for _ in range(2):
            two = convolved(convolved(x, c // 2, 1), c)
            three = convolved(convolved(convolved(x, c // 2, 1), c), c)
            pooled = convolved(L.AveragePooling2D(3, 1, "same")(x), c, 1)
            x = L.Concatenate()([convolved(x, c, 1), two, three, pooled])
        if block < 2:
            x = L.MaxPool2D(2)(x)
    return classified(inputs, x, 10)


def randomly_wired(size: int = 64, seed: int = 1, nodes: int = 9, width: int = 12) -> keras.Model:
    """Cells of random wiring, as those that papers on the order of operators use."""
    rng = np.random.default_rng(seed)
    inputs = L.Input((size, size, 3))
    x = convolved(inputs, width, 3, 2)
    for cell, c in enumerate([width, 2 * width, 4 * width]):
        outs, used = [x], set[int]()
        for _ in range(nodes):
            count = min(len(outs), int(rng.integers(1, 3)))
            ins = [int(one) for one in rng.choice(len(outs), size=count, replace=False)]
            used |= set(ins)
            given = [outs[i] if outs[i].shape[-1] == c else convolved(outs[i], c, 1) for i in ins]
            y = depthwise(given[0] if len(given) == 1 else L.Add()(given))
            outs.append(convolved(y, [c // 2, c, 2 * c][int(rng.integers(0, 3))], 1))
        ends = [outs[i] for i in range(1, len(outs)) if i not in used]
        x = convolved(ends[0] if len(ends) == 1 else L.Concatenate()(ends), c, 1)
        x = L.MaxPool2D(2)(x) if cell < 2 else x
    return classified(inputs, x, 10)


def nasnet() -> keras.Model:
    from tf_keras.src.applications.nasnet import NASNet

    return NASNet(
        input_shape=(64, 64, 3),
        penultimate_filters=96,
        num_blocks=1,
        stem_block_filters=8,
        skip_reduction=False,
        filter_multiplier=2,
        weights=None,
        classes=10,
    )


def resnet8() -> keras.Model:
    """The residual network of MLPerf Tiny for CIFAR-10."""
    inputs = L.Input((32, 32, 3))
    x = convolved(inputs, 16)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        y = convolved(convolved(x, channels, 3, stride), channels, act=False)
        x = x if stride == 1 else L.Conv2D(channels, 1, stride, "same")(x)
        x = L.ReLU()(L.Add()([x, y]))
    x = L.Flatten()(L.AveragePooling2D(8)(x))
    return keras.Model(inputs, L.Dense(10, activation="softmax")(x))


MODELS: dict[str, Callable[[], keras.Model]] = {
    "MobileNetV1 0.25 96": mobilenet_v1,
    "MobileNetV2 0.35 96": lambda: mobilenet_v2(0.35, 96, 100),
    "MobileNetV2 0.35 160": lambda: mobilenet_v2(0.35, 160, 100),
    "MobileNetV2 1.0 224": lambda: mobilenet_v2(1.0, 224, 1000),
    "ResNet8 CIFAR-10": resnet8,
    "U-Net 96": unet,
    "EfficientNet-Lite-like 128": efficientnet_lite,
    "inception-like 64": inception,
    "randomly wired 64": randomly_wired,
    "DS-CNN 49x10": ds_cnn,
    "NASNet-like 64": nasnet,
}


def int8_file(name: str) -> bytes:
    """Return a model of the table as an int8 .tflite file, made by TensorFlow's converter."""
    return converted(MODELS[name])


def converted(build: Callable[[], keras.Model], borders: tf.DType = tf.int8) -> bytes:
    """Return a model with random weights as an int8 .tflite file.

    Args:
        build: returns the model.
        borders: type of its inputs and outputs.
    """
    keras.utils.set_random_seed(0)
    model = build()
    rng = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, L.BatchNormalization):
            count = layer.moving_mean.shape[0]
            drawn = [rng.uniform(0.8, 1.6, count)] if layer.scale else []
            drawn += [rng.normal(0.2, 0.3, count)] if layer.center else []
            drawn += [rng.normal(0, 0.1, count), rng.uniform(0.3, 0.8, count)]
            layer.set_weights([one.astype(np.float32) for one in drawn])
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    shape = (1, *model.inputs[0].shape[1:])
    examples = [rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(8)]
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([one] for one in examples)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = borders
    content: bytes = converter.convert()
    return content


def stored_file(folder: Path, name: str) -> bytes:
    """Return a model of the table, kept in a folder once it is made."""
    path = folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.tflite"
    if not path.exists():
        path.write_bytes(int8_file(name))
    return path.read_bytes()
