"""What every reference architecture has to pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

PLAIN = {
    "InputLayer", "Rescaling", "Conv2D", "DepthwiseConv2D", "Dense", "BatchNormalization", "ReLU",
    "Add", "Dropout", "MaxPooling2D", "GlobalMaxPooling2D", "GlobalAveragePooling2D", "Conv1D",
    "UpSampling2D", "Concatenate", "Flatten",
}  # fmt: skip


def randomise(model: keras.Model) -> None:
    """Give every weight, batch-norm statistics included, a value that its initialiser does not."""
    random = np.random.default_rng(0)
    # Between 0.5 and 1.5 times, plus a little: variances stay positive.
    model.set_weights(
        [
            w * random.uniform(0.5, 1.5, w.shape) + 0.01 * random.random(w.shape)
            for w in model.get_weights()
        ]
    )


def settle(model: keras.Model) -> None:
    """Set batch-norm statistics to those of a batch, so that a deep model's signal survives."""
    norms = [x for x in model.layers if isinstance(x, keras.layers.BatchNormalization)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(batch(model, 32, seed=2), training=True)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def batch(model: keras.Model, count: int = 4, seed: int = 1) -> np.ndarray:
    """Return (count, *input shape) float32 examples in 0..1."""
    random = np.random.default_rng(seed)
    return random.random((count, *model.input_shape[1:]), dtype=np.float32)


def survives_saving(model: keras.Model, folder: Path) -> bool:
    """Tell whether outputs that differ from those of fresh weights are equal after a load."""
    before = model.predict(batch(model), verbose=0)
    randomise(model)
    expected = model.predict(batch(model), verbose=0)
    model.save(folder / "model.keras")
    loaded = keras.models.load_model(folder / "model.keras", compile=False)
    equal = np.array_equal(loaded.predict(batch(model), verbose=0), expected)
    return equal and not np.allclose(before, expected)


def int8(model: keras.Model, *, dense_per_tensor: bool = False) -> bytes:
    """Convert to full int8 with a batch of 1, calibrated on 8 random examples."""
    spec = tf.TensorSpec([1, *model.input_shape[1:]], tf.float32)
    function = tf.function(lambda x: model(x, training=False), autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function(spec)], model
    )
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    converter._experimental_disable_per_channel_quantization_for_dense_layers = dense_per_tensor
    converter.representative_dataset = lambda: _examples(model)
    return bytes(converter.convert())


def _examples(model: keras.Model) -> Iterator[list[Any]]:
    for example in batch(model, 8):
        yield [example[None]]


def int8_correlation(content: bytes, model: keras.Model) -> float:
    """Return the correlation of the artifact's outputs with the float model's."""
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert source["dtype"] is np.int8
    assert target["dtype"] is np.int8
    scale, zero = source["quantization"]
    found = []
    for example in batch(model, 8):
        codes = np.clip(np.round(example[None] / scale) + zero, -128, 127).astype(np.int8)
        interpreter.set_tensor(source["index"], codes)
        interpreter.invoke()
        found.append(interpreter.get_tensor(target["index"])[0].astype(np.float64))
    expected = model.predict(batch(model, 8), verbose=0)
    return float(np.corrcoef(np.ravel(found), np.ravel(expected))[0, 1])
