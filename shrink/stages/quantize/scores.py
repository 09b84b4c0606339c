"""Clips the range of logits to what their probabilities can resolve.

Raw outputs of a head hold offsets of boxes near 0 and logits down to -40 in one tensor. An int8
scale for all of them has a fifth of a unit, which moves edges by tens of percent, while nothing
tells a logit of -40 from one of -10: both are probabilities of 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.base.types import Array
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.probabilities import LARGEST_LOGIT, of_one_scale, saturated_logits
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext
from shrink.stages.quantize.config import QuantizeConfig
from shrink.task.detector import Detector
from shrink.tflite.interpreter import load
from shrink.tflite.model import read


def bound_scores(
    source: FloatModel,
    config: QuantizeConfig,
    context: StageContext,
    calibration: CalibrationExamples,
) -> list[str]:
    """Let logits saturate where the probabilities behind them do; return a note for each tensor.

    Args:
        source: gets the `bounds` of its tensors.
        config: of the stage; only 8-bit activations are coarse enough to need it.
        context: knows how outputs are decoded.
        calibration: examples that say what ranges there are.
    """
    integers = config.scheme == "static_wi8_ai8" or (
        config.scheme == "mixed" and config.activations == "int8"
    )
    if not integers or not context.has_data or source.ranges:
        return []
    bounds, notes = dict[str, tuple[float, float]](), []
    for logits in saturated_logits(source.float32.content, calibration.batches()):
        bounds |= dict.fromkeys(logits.names, (logits.low, logits.high))
        notes.append(str(logits))
    source.bounds = bounds
    return notes + _bound_detections(source, config, context, calibration)


def _bound_detections(
    source: FloatModel,
    config: QuantizeConfig,
    context: StageContext,
    calibration: CalibrationExamples,
) -> list[str]:
    """Bound the logits among a detector's outputs, whose sigmoid is not in the file."""
    if config.split_outputs or not context.has_targets:
        return []
    if context.task_config.decode is None:
        return []
    task = context.task(source.model)
    channels = task.detector.head.logit_channels() if isinstance(task.detector, Detector) else None
    if channels is None:
        return []
    content = source.float32.content
    runner, graph = load(content), read(content)[0]
    found = [runner.predict(arrays) for arrays in calibration.batches()]
    outputs = [graph.outputs[position] for position in runner.output_positions]
    bounds, notes = dict[str, tuple[float, float]](), []
    for index, logits, column in zip(outputs, channels, zip(*found, strict=True), strict=True):
        limits = np.where(logits, LARGEST_LOGIT, np.inf)
        saturated = [np.clip(each, -limits, limits) for each in column]
        ends, kept = _extremes(column), _extremes(saturated)
        if kept != ends:
            named = [graph.tensors[i].name for i in of_one_scale(graph, index)]
            bounds |= dict.fromkeys(named, kept)
            notes.append(
                f"{named[0]}: logits beyond {LARGEST_LOGIT:g} on either side count as that, so "
                f"that one scale reaches from {kept[0]:.1f} to {kept[1]:.1f} in place of "
                f"{ends[0]:.1f} to {ends[1]:.1f}"
            )
    source.bounds = {**source.bounds, **bounds}
    return notes


def _extremes(arrays: Sequence[Array]) -> tuple[float, float]:
    return min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)
