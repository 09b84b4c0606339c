"""The quantization schemes: one function each, from a float model to a TFLite artifact."""

from __future__ import annotations

from collections.abc import Callable

from shrink.base.errors import StageError
from shrink.quantization import edge_quantizer
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.operators import weighted_operators
from shrink.quantization.policy import INT4_OPERATORS, Mode
from shrink.quantization.rounding import can_be_rounded, rounded_model
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import SCHEMES_WITHOUT_EXAMPLES, QuantizeConfig
from shrink.stages.quantize.static import static_int8, static_int16
from shrink.tflite.convert import Conversion, convert

Scheme = Callable[[FloatModel, CalibrationExamples, QuantizeConfig], Conversion]


def _float32(
    source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
) -> Conversion:
    return source.float32


def _float16(
    source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
) -> Conversion:
    if source.model is not None:
        return convert(source.model, "float16")
    return Conversion(edge_quantizer.to_float16(source.float32.content), ())


def _eight_bits(mode: Mode) -> Scheme:
    def scheme(
        source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
    ) -> Conversion:
        content, notes = source.float32.content, source.float32.notes
        return Conversion(edge_quantizer.quantize(content, mode), notes)

    return scheme


def _four_bits(mode: Mode) -> Scheme:
    def scheme(
        source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
    ) -> Conversion:
        content, notes = source.float32.content, source.float32.notes
        bits, wider = _widths(content, mode)
        if not bits:
            raise StageError(
                f"{config.scheme}: no operator of this model can have 4-bit weights, which "
                f"{' and '.join(sorted(INT4_OPERATORS[mode]))} can",
                hint="use scheme dynamic_wi8_afp32",
            )
        rounded = rounded_model(content, bits, calibration.batches())
        if wider:
            notes = (*notes, f"8-bit weights, as 4 bits are not to be had: {', '.join(wider)}")
        return Conversion(edge_quantizer.quantize(rounded, mode, bits), notes)

    return scheme


def _widths(content: bytes, mode: Mode) -> tuple[dict[str, int], list[str]]:
    operators = weighted_operators(content)
    legal = [o for o in operators if o.kind in INT4_OPERATORS[mode] and can_be_rounded(o)]
    wider = [o.name for o in operators if o not in legal]
    return {operator.name: 4 for operator in legal}, wider


SCHEMES: dict[str, Scheme] = {
    "float32": _float32,
    "float16": _float16,
    "dynamic_wi8_afp32": _eight_bits("dynamic"),
    "dynamic_wi4_afp32": _four_bits("dynamic"),
    "weight_only_wi8_afp32": _eight_bits("weight_only"),
    "weight_only_wi4_afp32": _four_bits("weight_only"),
    "static_wi8_ai8": static_int8,
    "static_wi8_ai16": static_int16,
}
"""Every scheme by its name but `mixed`, which needs a budget and data to keep it; a new one is
one function and one line here."""

INTEGER_SCHEMES = frozenset({"mixed", *SCHEMES}) - {"float32", "float16"}
"""Schemes that must leave at least one operator with integer weights."""

CALIBRATED_SCHEMES = frozenset({"mixed", *SCHEMES}) - set(SCHEMES_WITHOUT_EXAMPLES)
"""Schemes that look at training examples."""
