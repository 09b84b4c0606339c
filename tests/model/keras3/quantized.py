"""Models that Keras 3 quantized or fine-tuned with LoRA; `write_all` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers as L
from keras.quantizers import AWQConfig, GPTQConfig, Int4QuantizationConfig
from keras.src.quantizers.awq import AWQ
from keras.src.quantizers.gptq import GPTQ


def dense_net() -> Any:
    """Return a model with odd widths, an einsum of three axes and a frozen-in convolution."""
    inputs = keras.Input((6, 6, 3))
    x = L.Flatten()(L.Conv2D(4, 3, activation="relu")(inputs))
    x = L.Dense(33, activation="relu")(x)
    x = L.Dense(15, use_bias=False)(x)
    return keras.Model(inputs, L.EinsumDense("ab,bcd->acd", (3, 5), bias_axes="cd")(x))


def text_net() -> Any:
    """Return a model with embeddings and attention."""
    inputs = keras.Input((7,), dtype="int32")
    x = L.Embedding(30, 15)(inputs)
    x = L.GlobalAveragePooling1D()(L.MultiHeadAttention(2, 8)(x, x))
    return keras.Model(inputs, L.Dense(3)(x))


def quantized(build: Callable[[], Any], mode: str, config: Any = None) -> Any:
    """Return a model that Keras quantized, which then computes with float activations."""
    model = build()
    model.quantize(mode, config=config) if config else model.quantize(mode)
    return model


def calibrated(kind: Any, config: Any, mode: str) -> Any:
    """Return a model whose dense layers GPTQ or AWQ quantized on random inputs."""
    inputs = keras.Input((16,))
    dense = L.Dense(9, activation="relu")
    second = L.EinsumDense("ab,bc->ac", (5,))
    model = keras.Model(inputs, second(dense(inputs)))
    random = np.random.default_rng(0)
    for layer, width in ((dense, 16), (second, 9)):
        layer.quantize(mode, config=config)
        tool = kind(layer, config)
        x = random.normal(size=(64, width)).astype("float32")
        if hasattr(tool, "update_hessian_with_batch"):
            tool.update_hessian_with_batch(x)
            tool.quantize_and_correct_layer()
        else:
            tool.update_activation_magnitudes(x)
            tool.quantize_layer()
    return model


def lora(then: str | None = None) -> Any:
    """Return a model with LoRA factors that are not zero, maybe quantized first."""
    model = dense_net()
    if then:
        model.quantize(then)
    random = np.random.default_rng(1)
    for layer in model.layers:
        if isinstance(layer, L.Dense | L.EinsumDense):
            layer.enable_lora(2, lora_alpha=3)
            layer.lora_kernel_b.assign(random.normal(0, 0.1, layer.lora_kernel_b.shape))
    return model


def gptq(bits: int, group: int) -> Any:
    """Return a model that GPTQ quantized."""
    options = {"dataset": None, "tokenizer": None, "weight_bits": bits, "group_size": group}
    return calibrated(GPTQ, GPTQConfig(**options), "gptq")


def awq(group: int) -> Any:
    """Return a model that AWQ quantized."""
    return calibrated(AWQ, AWQConfig(dataset=None, tokenizer=None, group_size=group), "awq")


def half() -> Any:
    """Return a model of float16."""
    inputs = keras.Input((8,), dtype="float16")
    x = L.Dense(16, activation="relu", dtype="float16")(inputs)
    return keras.Model(inputs, L.Dense(4, dtype="float16")(x))


def augmented() -> Any:
    """Return a model that begins with augmentation, which does nothing at inference."""
    inputs = keras.Input((8, 8, 3))
    x = L.RandomRotation(0.1, fill_mode="nearest")(L.RandAugment(value_range=(0, 255))(inputs))
    return keras.Model(inputs, L.Dense(3)(L.Flatten()(L.CutMix()(x))))


@keras.saving.register_keras_serializable()
class Subclassed(keras.Model):
    """A model whose layers no file describes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.dense = L.Dense(3)

    def call(self, x: Any) -> Any:
        return self.dense(x)


def distiller() -> Any:
    """Return a distiller of Keras around two models."""
    teacher, student = (keras.Sequential([keras.Input((4,)), L.Dense(3)]) for _ in range(2))
    loss = keras.distillation.LogitsDistillation(temperature=2.0)
    made = keras.distillation.Distiller(teacher, student, loss)
    made.build((None, 4))
    return made


MODELS: dict[str, Callable[[], Any]] = {
    "dense_int8": lambda: quantized(dense_net, "int8"),
    "text_int4": lambda: quantized(text_net, "int4"),
    "dense_int4_small_groups": lambda: quantized(
        dense_net, "int4", Int4QuantizationConfig(block_size=8)
    ),
    "gptq": lambda: gptq(4, 8),
    "awq": lambda: awq(8),
    "half": half,
    "augmented": augmented,
    "subclassed": lambda: Subclassed(),
    "distiller": distiller,
    "lora_int8": lambda: lora("int8"),
}  # fmt: skip


def outputs_of(model: Any, x: np.ndarray) -> np.ndarray:
    """Return Keras' outputs without its rounding of activations."""
    for layer in model._flatten_layers():
        if getattr(layer, "inputs_quantizer", None) is not None:
            layer.inputs_quantizer = None
        if getattr(layer, "quantization_mode", None) == "float8":
            layer._dtype_policy = keras.DTypePolicy("float32")
    return np.asarray(model(x, training=False))


def write_all(folder: str) -> None:
    """Write for each model NAME.keras and NAME.npz (x0, y0), Keras' outputs of floats."""
    target = Path(folder)
    for name, build in MODELS.items():
        keras.utils.clear_session()
        keras.utils.set_random_seed(0)
        made = build()
        if not getattr(made, "inputs", None):
            made(np.zeros((1, 4), "float32"))
            made.save(target / f"{name}.keras")
            continue
        random = np.random.default_rng(0)
        shape = (3, *made.inputs[0].shape[1:])
        is_text = "int" in str(made.inputs[0].dtype)
        x = random.integers(0, 30, shape) if is_text else random.normal(size=shape)
        x = x.astype("int32" if is_text else "float32")
        made.save(target / f"{name}.keras")
        if name == "lora_int8":  # saving rounds the sum of kernel and factors anew
            made = keras.saving.load_model(target / f"{name}.keras")
        np.savez(target / f"{name}.npz", x0=x, y0=outputs_of(made, x))
