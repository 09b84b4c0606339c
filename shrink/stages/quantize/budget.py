"""The scheme `mixed`: from a float model and a budget to an artifact and its operator table."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from shrink.base import files
from shrink.base.errors import StageError
from shrink.quantization import edge_quantizer
from shrink.quantization.calibration import Batches, CalibrationExamples, Ranges, extreme_ranges
from shrink.quantization.edge_quantizer import Mode, int4_operators, weighted_operators
from shrink.quantization.mixed import (
    Assignment,
    Build,
    Sensitivity,
    least_error_within_bytes,
    measure_sensitivity,
    smallest_within_drop,
)
from shrink.quantization.rounding import can_be_rounded, rounded_model
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext
from shrink.stages.quantize.config import QuantizeConfig
from shrink.task.artifact import evaluate_artifact, masks_of
from shrink.task.interface import artifact_interface
from shrink.task.task import Task
from shrink.tflite.convert import Conversion


def mixed_artifact(
    source: FloatModel,
    calibration: CalibrationExamples,
    config: QuantizeConfig,
    context: StageContext,
    file_bytes: Callable[[bytes], int] = len,
) -> tuple[Conversion, dict[str, Any]]:
    """Return the artifact within the budget, and the table of its operators as plain data.

    Args:
        source: the float model.
        calibration: its examples.
        config: names the budget.
        context: of the stage.
        file_bytes: returns how large an artifact's file is, with what will be added to it.

    Raises:
        StageError: no operator can have 4 bits, the budget is out of reach, or accuracy is no
            measure of this model.
    """
    mode: Mode = "static" if config.activations == "int8" else "dynamic"
    content, notes = source.float32.content, source.float32.notes
    operators = [
        operator
        for operator in weighted_operators(content)
        if operator.kind in int4_operators(mode, config.target) and can_be_rounded(operator)
    ]
    if not operators:
        raise StageError(
            "mixed: no operator of this model can have 4-bit weights"
            + (" on TFLite Micro, which runs them in CONV_2D" if config.target == "tflm" else ""),
            hint="use scheme static_wi8_ai8",
        )
    batches = calibration.batches()
    context.phase("measuring sensitivity")
    ranked = measure_sensitivity(content, operators, batches)
    context.phase("searching")
    build = _builder(content, mode, config, batches)
    if config.file_bytes is not None:
        found = least_error_within_bytes(ranked, build, config.file_bytes, file_bytes)
    else:
        drop_of = _drop_on_validation(source, context)
        found = smallest_within_drop(ranked, build, drop_of, config.accuracy_drop or 0.0)
    return Conversion(found.content, (*notes, _sentence(found))), _table(found, ranked, config)


def _builder(content: bytes, mode: Mode, config: QuantizeConfig, batches: Batches) -> Build:
    borders = (config.artifact_input_type == "float32", config.artifact_output_type == "float32")

    @functools.cache
    def float_ranges() -> Ranges:
        return extreme_ranges(content, batches)

    def build(bits: Mapping[str, int], careful: bool) -> bytes:
        rounded = rounded_model(content, bits, batches) if careful else content
        if mode != "static":
            return edge_quantizer.quantize(rounded, mode, bits)
        unchanged = rounded is content
        ranges = float_ranges() if unchanged else extreme_ranges(rounded, batches)
        return edge_quantizer.quantize(rounded, mode, bits, ranges=ranges, float_borders=borders)

    return build


def _drop_on_validation(source: FloatModel, context: StageContext) -> Callable[[bytes], float]:
    candidate = context.work / "candidate.tflite"
    files.write_bytes(candidate, source.float32.content)
    if source.model is not None:
        task = context.task(source.model)
    else:
        task = context.task_of(artifact_interface(candidate))
    validation, masks = context.dataset.validation, masks_of(source.model)
    scored: Task = dataclasses.replace(task, metrics=("accuracy",))

    def accuracy(content: bytes) -> float:
        files.write_bytes(candidate, content)
        found = evaluate_artifact(candidate, validation, scored, masks)
        return found.metrics["accuracy"]

    reference = accuracy(source.float32.content)
    return lambda content: reference - accuracy(content)


def _sentence(found: Assignment) -> str:
    narrow = sum(width == 4 for width in found.bits.values())
    text = f"mixed: {narrow} of {len(found.bits)} operators have 4-bit weights"
    if found.drop is not None:
        change = f"accuracy on validation {-100 * found.drop:+.2f} points".replace("-0.00", "+0.00")
        text += f"; {change}, {found.tried} artifacts scored"
    return text


def _table(found: Assignment, ranked: list[Sensitivity], config: QuantizeConfig) -> dict[str, Any]:
    return {
        "activations": config.activations,
        "budget": {"accuracy_drop": config.accuracy_drop, "file_bytes": config.file_bytes},
        "validation_drop": found.drop,
        "operators": [
            {
                "name": one.name,
                "kind": one.kind,
                "weight_bits": found.bits[one.name],
                "parameters": one.parameters,
                "error_at_4_bits": one.error,
            }
            for one in ranked
        ],
    }
