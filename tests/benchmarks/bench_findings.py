"""How many output codes of an int8 file equal those of the model that was trained under rounding.

Run: python -m tests.benchmarks.bench_findings

On the digits: tfmot's with the TFLite converter, shrink's with and without the bias correction that
belongs to models that were not trained so. Half a minute.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

from shrink.quantization.aware_model import aware_model
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from tests.benchmarks.harness import say
from tests.benchmarks.random_models import examples

L = keras.layers


def main() -> None:
    """Print shares of equal output codes on the test digits."""
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        _compare(Path(folder))


def _compare(folder: Path) -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    train, test = x[:1400], x[1400:]
    network = _convolutions((8, 8, 1), 10)
    _fit(network, train, labels[:1400], epochs=6, learning_rate=5e-3)
    trained = folder / "trained.keras"
    network.save(trained)

    say(f"{'trained under rounding':<44}{'equal codes':>12}{'accuracy':>10}")
    calibration = examples(train[:300])
    model = aware_model(network, calibration.batches())
    _fit(model.aware, train, labels[:1400], epochs=2, learning_rate=5e-4)
    simulated = model.aware.predict(test, verbose=0)
    source = model.source(calibration.batches())
    for name, config in {
        "shrink, biases as they were trained": QuantizeConfig(aware=True, epochs=2),
        "shrink, biases corrected all the same": QuantizeConfig(),
    }.items():
        content = SCHEMES["static_wi8_ai8"](source, calibration, config).content
        _say_codes(name, content, simulated, test, labels[1400:])

    import tensorflow as tf
    import tensorflow_model_optimization as tfmot

    other = tfmot.quantization.keras.quantize_model(keras.models.load_model(trained))
    _fit(other, train, labels[:1400], epochs=2, learning_rate=5e-4)
    converter = tf.lite.TFLiteConverter.from_keras_model(other)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.inference_output_type = converter.inference_input_type = tf.int8
    simulated = other.predict(test, verbose=0)
    _say_codes("tfmot, TFLite converter", converter.convert(), simulated, test, labels[1400:])


def _convolutions(shape: tuple[int, ...] = (32, 32, 3), classes: int = 10) -> Any:
    inputs = L.Input(shape)
    x = L.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    x = L.Conv2D(24, 3, strides=2, padding="same", activation="relu")(x)
    x = L.GlobalAveragePooling2D()(L.Conv2D(32, 3, strides=2, activation="relu")(x))
    return keras.Model(inputs, L.Dense(classes)(x))


def _fit(model: Any, x: Any, y: Any, epochs: int, learning_rate: float) -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(learning_rate), loss)
    model.fit(x, y, batch_size=32, epochs=epochs, verbose=0)


def _say_codes(name: str, content: bytes, simulated: Any, x: Any, labels: Any) -> None:
    """Print the share of output codes that the simulation's outputs are rounded to, too."""
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (into,), (out,) = interpreter.get_input_details(), interpreter.get_output_details()
    codes = []
    for row in x:
        scale, zero = into["quantization"]
        rounded = np.clip(np.rint(row[None] / scale) + zero, -128, 127)
        interpreter.set_tensor(into["index"], rounded.astype(np.int8))
        interpreter.invoke()
        codes.append(interpreter.get_tensor(out["index"])[0])
    scale, zero = out["quantization"]
    wanted = np.clip(np.rint(simulated / scale) + zero, -128, 127)
    right = float(np.mean(np.argmax(codes, axis=-1) == labels))
    say(f"{name:<44}{np.mean(np.array(codes) == wanted):>12.1%}{right:>10.1%}")


if __name__ == "__main__":
    main()
