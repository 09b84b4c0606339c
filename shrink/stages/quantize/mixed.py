"""`mixed`: 4 or 8 bits for each operator, within what a recipe allows of bytes or of a metric."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping

from shrink.base import files
from shrink.base.errors import StageError
from shrink.base.figures import LOSS, format_change, metric_figure
from shrink.base.intervals import limit_below_resolution
from shrink.base.metrics import without_slices
from shrink.contract.details import MixedOperator, MixedPrecision
from shrink.quantization import edge_quantizer
from shrink.quantization.calibration import (
    CalibrationExamples,
    Ranges,
    extreme_ranges,
)
from shrink.quantization.edge_quantizer import (
    Mode,
    weighted_operators,
)
from shrink.quantization.mixed import (
    Assignment,
    least_error_within_bytes,
    measure_sensitivity,
    smallest_within_drop,
)
from shrink.quantization.rounding import can_be_rounded, rounded_model
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import keep_blocks_float
from shrink.task.artifact import evaluate_artifact, masks_of
from shrink.task.task import Task
from shrink.tflite.convert import Conversion
from shrink.tflite.suitability import MICRO_INT4_OPERATORS


def mixed_artifact(
    source: FloatModel,
    calibration: CalibrationExamples,
    config: QuantizeConfig,
    context: StageContext,
    file_bytes: Callable[[bytes], int] = len,
) -> tuple[Conversion, MixedPrecision]:
    """Return the artifact within the budget, and the table of its operators.

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
    if mode == "static":
        notes = (*notes, *keep_blocks_float(source, calibration, 8))
    operators = [
        operator
        for operator in weighted_operators(content)
        if can_be_rounded(operator)
        and (config.target == "litert" or operator.kind in MICRO_INT4_OPERATORS)
    ]
    if not operators:
        raise StageError(
            "mixed: no operator of this model can have 4-bit weights"
            + (" on TFLite Micro, which runs them in CONV_2D" if config.target == "tflm" else ""),
            hint="use scheme static_wi8_ai8",
        )
    batches = calibration.batches()

    def show(number: int) -> None:
        context.phase("measuring sensitivity, operators", number, len(operators))

    ranked = measure_sensitivity(content, operators, batches, show)
    built = itertools.count(1)
    borders = (config.artifact_input_type == "float32", config.artifact_output_type == "float32")

    @functools.cache
    def float_ranges() -> Ranges:
        return extreme_ranges(content, batches)

    def build(bits: Mapping[str, int], careful: bool) -> bytes:
        context.phase(f"searching: artifact {next(built)}")
        rounded = rounded_model(content, bits, batches) if careful else content
        if mode != "static":
            return edge_quantizer.quantize(rounded, mode, bits)
        ranges = float_ranges() if rounded is content else extreme_ranges(rounded, batches)
        ranges = {**ranges, **source.bounds}
        return edge_quantizer.quantize(
            rounded,
            mode,
            bits,
            ranges=ranges,
            float_borders=borders,
            floats=source.floats,
            integer_outputs=config.integer_outputs,
        )

    if config.file_bytes is not None:
        best = least_error_within_bytes(ranked, build, config.file_bytes, file_bytes)
    else:
        task = context.task(source.model)
        metric = "accuracy"
        if config.accuracy_drop is None:  # the first metric without slices, which validation lacks
            metric = next(iter(without_slices(task.metrics)), LOSS)
        drop_of = _drop_on_validation(source, context, task, metric)
        allowed = config.accuracy_drop or config.metric_drop or 0.0
        labels = context.dataset.validation.labels
        if labels is not None and metric_figure(metric).unit == "fraction":
            scores = [0.0] * len(labels)  # each label counts as right or wrong
            warning = limit_below_resolution(metric, allowed, scores, "validation", context.name)
            context.warnings += [warning] if warning else []
        best = smallest_within_drop(ranked, build, drop_of, allowed, metric)
    table = MixedPrecision(
        activations=config.activations,
        budget={
            "accuracy_drop": config.accuracy_drop,
            "metric_drop": config.metric_drop,
            "file_bytes": config.file_bytes,
        },
        validation_drop=best.drop,
        operators=tuple(
            MixedOperator(
                name=one.name,
                kind=one.kind,
                weight_bits=best.bits[one.name],
                parameters=one.parameters,
                error_at_4_bits=one.error,
            )
            for one in ranked
        ),
    )
    return Conversion(best.content, (*notes, _sentence(best))), table


def _drop_on_validation(
    source: FloatModel, context: StageContext, task: Task, metric: str
) -> Callable[[bytes], float]:
    """Return the function from an artifact to how much worse its metric is than the float model's.

    The metric is of the validation split; worse is positive, whichever way is better.
    """
    candidate = context.work / "candidate.tflite"
    validation, masks = context.dataset.validation, masks_of(source.model)
    scored: Task = dataclasses.replace(task, metrics=() if metric == LOSS else (metric,))
    sign = -1 if metric_figure(metric).larger_is_better else 1

    def value(content: bytes) -> float:
        files.write_bytes(candidate, content)
        found = evaluate_artifact(candidate, validation, scored, masks, with_intervals=False)
        return found.defined(metric)

    reference = value(source.float32.content)
    return lambda content: sign * (value(content) - reference)


def _sentence(best: Assignment) -> str:
    narrow = sum(width == 4 for width in best.bits.values())
    text = f"mixed: {narrow} of {len(best.bits)} operators have 4-bit weights"
    if best.drop is not None:
        figure = metric_figure(best.metric)
        change = -best.drop if figure.larger_is_better else best.drop
        points = " points" if figure.unit == "fraction" else ""
        measured = f"{best.metric} on validation {format_change(change + 0.0, figure.unit)}{points}"
        text += f"; {measured}, {best.tried} artifacts scored"
    return text
