"""The quantization schemes: one function each, from a Keras model to a TFLite artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tf_keras as keras

from shrink.stages.quantize.config import QuantizeConfig
from shrink.tflite import convert

Calibration = Iterable[Sequence[np.ndarray]]
Scheme = Callable[[keras.Model, Calibration, QuantizeConfig], bytes]


def _static_int8(model: keras.Model, calibration: Calibration, config: QuantizeConfig) -> bytes:
    return convert.to_static_int8(model, calibration, *_types(config))


def _static_int16(model: keras.Model, calibration: Calibration, config: QuantizeConfig) -> bytes:
    return convert.to_static_int16(model, calibration, *_types(config))


SCHEMES: dict[str, Scheme] = {
    "float32": lambda model, calibration, config: convert.to_float32(model),
    "float16": lambda model, calibration, config: convert.to_float16(model),
    "dynamic_wi8_afp32": lambda model, calibration, config: convert.to_dynamic_int8(model),
    "static_wi8_ai8": _static_int8,
    "static_wi8_ai16": _static_int16,
}
"""Every scheme by its name; a new one is one function and one line here."""

INTEGER_SCHEMES = frozenset({"dynamic_wi8_afp32", "static_wi8_ai8", "static_wi8_ai16"})
"""Schemes that must leave at least one operator with integer weights."""


def _types(config: QuantizeConfig) -> tuple[str, str]:
    default = config.legal_types[0]
    return config.input_type or default, config.output_type or default
