"""Every scheme of quantization: from a model to an artifact."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

from shrink.base.errors import InternalError, ModelError, StageError
from shrink.quantization import edge_quantizer
from shrink.quantization.bias_correction import with_corrected_biases
from shrink.quantization.calibration import (
    CalibrationExamples,
    Ranges,
    extreme_ranges,
    extremes_of,
    least_squares_ranges,
    tensor_values,
)
from shrink.quantization.edge_quantizer import (
    MATRIX_OPERATORS,
    Mode,
    weighted_operators,
)
from shrink.quantization.float_blocks import MASKED, coarse_blocks
from shrink.quantization.kernel_grids import with_grids_of_kernels
from shrink.quantization.rounding import can_be_rounded, rounded_model
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.noise import noise
from shrink.tflite.convert import Conversion, Precision, convert
from shrink.tflite.edit import with_exact_constants, without_constant_names
from shrink.tflite.model import Subgraph, read
from shrink.tflite.suitability import check_runs
from shrink.tflite.weights import float_operators

# Both models run the same examples, so that few are enough to see the shift of a mean.
_CORRECTED_ON = 100
_BLOCK_EXAMPLES = 100
# Noise above a tenth of the signal's power is no rounding of 8 bits: something went wrong.
_MOST_NOISE = 0.1


def static_int8(
    source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
) -> Conversion:
    """Quantize to int8 with least-squares ranges, then correct the biases.

    ai-edge-quantizer takes the ranges; the TFLite converter, which knows more operators, does what
    that refuses, leaves in float, or gets wrong. Weights that were trained under rounding have
    biases that were, too: a correction towards the same weights unrounded would undo that. What
    values decide is left out of an untrained model: operators, types and bytes are the same.

    Raises:
        StageError: neither can quantize the model.
    """
    few, notes = calibration.batches(_CORRECTED_ON), keep_blocks_float(source, calibration, 8)
    conversion = _by_quantizer(source, calibration, config, 8)
    if isinstance(conversion, StageError):
        conversion = _by_converter(source, calibration, config, "static_int8", conversion)
    elif (
        source.model is not None
        and not source.untrained
        and noise(conversion, source, few) > _MOST_NOISE
    ):
        try:
            other = _by_converter(source, calibration, config, "static_int8")
        except StageError as error:
            why = (
                "outputs are far from those of the float model, and the TFLite converter cannot "
                f"quantize it instead: {error.message}"
            )
            conversion = Conversion(conversion.content, (*conversion.notes, why))
        else:
            conversion = min((conversion, other), key=lambda one: noise(one, source, few))
    notes = (*notes, *conversion.notes)
    if source.untrained:
        return Conversion(without_constant_names(conversion.content), notes)
    if config.aware or source.ranges:
        rounded = with_grids_of_kernels(conversion.content, source.float32.content)
        return Conversion(without_constant_names(rounded), notes)
    try:
        content = with_corrected_biases(
            conversion.content, source.float32.content, few, source.bounds
        )
    except ModelError as error:
        why = f"biases are not corrected, as the model cannot be run in parts: {error.message}"
        return Conversion(conversion.content, (*notes, why))
    return Conversion(without_constant_names(content), notes)


def keep_blocks_float(
    source: FloatModel, calibration: CalibrationExamples, bits: Literal[8, 16]
) -> tuple[str, ...]:
    """Add blocks that integers are too coarse for to the `floats` of a model; return notes."""
    content, batches = source.float32.content, calibration.batches(_BLOCK_EXAMPLES)
    names, notes = coarse_blocks(content, batches, bits, source.ranges)
    source.floats |= names
    return tuple(notes)


def static_int16(
    source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
) -> Conversion:
    """Quantize weights to int8 and activations to int16.

    Raises:
        StageError: the model cannot be quantized so.
    """
    notes = keep_blocks_float(source, calibration, 16)
    if source.model is not None and not source.floats:
        return _by_converter(source, calibration, config, "static_int16")
    made = _by_quantizer(source, calibration, config, 16)
    if not isinstance(made, StageError):
        return Conversion(made.content, (*notes, *made.notes))
    converted = _by_converter(source, calibration, config, "static_int16", made)
    why = f"{', '.join(sorted(source.floats))} cannot stay float after all: {made.message}"
    return Conversion(converted.content, (*converted.notes, why))


def _by_converter(
    source: FloatModel,
    calibration: CalibrationExamples,
    config: QuantizeConfig,
    precision: Precision,
    otherwise: StageError | None = None,
) -> Conversion:
    if source.model is None:
        raise otherwise or InternalError("a .tflite file cannot be converted again")
    types = (config.artifact_input_type, config.artifact_output_type)
    measured: Ranges = {}
    if source.floats:
        # It would calibrate a tensor that is masked in place with the mask in it, and give what is
        # masked and the result one scale.
        near = _read_or_written(read(source.float32.content)[0], source.floats)
        found = tensor_values(source.float32.content, calibration.batches())
        measured = extremes_of(
            {n: a[a > MASKED] if n in source.floats else a for n, a in each.items() if n in near}
            for each in found
        )
    made = convert(
        source.model,
        precision,
        calibration,
        *types,
        dense_per_tensor=config.dense_scales == "tensor",
        ranges={**measured, **source.bounds, **source.ranges},
        floats=source.floats,
    )
    with tempfile.TemporaryDirectory(prefix="shrink-convert-") as folder:
        check_runs(made.content, Path(folder) / "converted.tflite")  # some kernels abort
    return made


def _read_or_written(graph: Subgraph, floats: Collection[str]) -> set[str]:
    """Return the names of the tensors that float operators read or write."""
    return {
        graph.tensors[i].name
        for one in graph.operators
        if any(graph.tensors[i].name in floats for i in one.outputs)
        for i in (*one.inputs, *one.outputs)
    }


def _by_quantizer(
    source: FloatModel,
    calibration: CalibrationExamples,
    config: QuantizeConfig,
    bits: Literal[8, 16],
) -> Conversion | StageError:
    """Return what ai-edge-quantizer makes, or why it does not."""
    types = (config.artifact_input_type, config.artifact_output_type)
    if "uint8" in types:
        return StageError(
            "uint8 inputs and outputs cannot be made from a .tflite file",
            hint="use int8 or float32, or start from the Keras model",
        )
    content = source.float32.content
    if any(operator.name == "WHILE" for graph in read(content) for operator in graph.operators):
        return StageError(
            "a loop over steps (WHILE) has no integer form",
            hint="use scheme dynamic_wi8_afp32, or start from the Keras model, whose steps can be "
            "written one after the other",
        )
    measure = least_squares_ranges if bits == 8 else extreme_ranges
    try:
        if bits not in source.measured:
            source.measured[bits] = measure(content, calibration.batches())
        static = edge_quantizer.quantize(
            content,
            "static",
            ranges={**source.measured[bits], **source.bounds, **source.ranges},
            activation_bits=bits,
            float_borders=(types[0] == "float32", types[1] == "float32"),
            dense_per_tensor=config.dense_scales == "tensor",
            floats=source.floats,
            integer_outputs=config.integer_outputs,
        )
    except StageError as error:
        return error
    left = {*float_operators(static, source.floats)} if source.model is not None else set[str]()
    if source.floats:
        left.discard("CAST")  # makes a mask of booleans
    if left:
        return StageError(f"ai-edge-quantizer leaves float operators: {', '.join(sorted(left))}")
    return Conversion(static, source.float32.notes)


Scheme = Callable[[FloatModel, CalibrationExamples, QuantizeConfig], Conversion]


def _float16(
    source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
) -> Conversion:
    if source.model is None:
        return Conversion(edge_quantizer.to_float16(source.float32.content), ())
    half = convert(source.model, "float16")
    content, kept = with_exact_constants(half.content, source.float32.content)
    if not kept:
        return half
    note = f"float32 constants, as float16 may be too coarse: {kept} that shift or scale channels"
    return Conversion(content, (*half.notes, note))


def _eight_bits(mode: Mode) -> Scheme:
    return lambda source, calibration, config: Conversion(
        edge_quantizer.quantize(source.float32.content, mode), source.float32.notes
    )


def _four_bits(mode: Mode) -> Scheme:
    def scheme(
        source: FloatModel, calibration: CalibrationExamples, config: QuantizeConfig
    ) -> Conversion:
        content, notes = source.float32.content, source.float32.notes
        operators = weighted_operators(content)
        narrow = [o for o in operators if can_be_rounded(o)]
        bits = {operator.name: 4 for operator in narrow}
        wider = [operator.name for operator in operators if operator not in narrow]
        if not bits:
            raise StageError(
                f"{config.scheme}: no operator of this model can have 4-bit weights, which "
                f"{' and '.join(sorted(MATRIX_OPERATORS))} can",
                hint="use scheme dynamic_wi8_afp32",
            )
        rounded = content
        if not source.untrained:
            rounded = rounded_model(content, bits, calibration.batches())
        if wider:
            notes = (
                *notes,
                f"8-bit weights, because 4 bits are not supported there: {', '.join(wider)}",
            )
        return Conversion(edge_quantizer.quantize(rounded, mode, bits), notes)

    return scheme


SCHEMES: dict[str, Scheme] = {
    "float32": lambda source, calibration, config: source.float32,
    "float16": _float16,
    "dynamic_wi8_afp32": _eight_bits("dynamic"),
    "dynamic_wi4_afp32": _four_bits("dynamic"),
    "weight_only_wi8_afp32": _eight_bits("weight_only"),
    "weight_only_wi4_afp32": _four_bits("weight_only"),
    "static_wi8_ai8": static_int8,
    "static_wi8_ai16": static_int16,
}
"""How each of `SCHEME_TRAITS` is made; `mixed`, which keeps a budget, is `mixed_artifact`."""
