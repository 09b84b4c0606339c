"""The quantization schemes: one function each, from a Keras model to a TFLite artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tf_keras as keras

from shrink.stages.quantize.config import QuantizeConfig
from shrink.tflite.convert import Conversion, Precision, convert

Calibration = Iterable[Sequence[np.ndarray]]
Scheme = Callable[[keras.Model, Calibration, QuantizeConfig], Conversion]


def _without_calibration(precision: Precision) -> Scheme:
    return lambda model, calibration, config: convert(model, precision)


def _static(precision: Precision) -> Scheme:
    def scheme(model: keras.Model, calibration: Calibration, config: QuantizeConfig) -> Conversion:
        default = config.legal_types[0]
        types = (config.input_type or default, config.output_type or default)
        return convert(model, precision, calibration, *types)

    return scheme


SCHEMES: dict[str, Scheme] = {
    "float32": _without_calibration("float32"),
    "float16": _without_calibration("float16"),
    "dynamic_wi8_afp32": _without_calibration("dynamic_int8"),
    "static_wi8_ai8": _static("static_int8"),
    "static_wi8_ai16": _static("static_int16"),
}
"""Every scheme by its name; a new one is one function and one line here."""

INTEGER_SCHEMES = frozenset({"dynamic_wi8_afp32", "static_wi8_ai8", "static_wi8_ai16"})
"""Schemes that must leave at least one operator with integer weights."""
