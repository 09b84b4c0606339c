"""Detector outputs whose logits need no more range than a sigmoid tells apart.

Raw outputs of a head hold offsets of boxes near 0 and logits down to -40 in one tensor. An int8
scale for all of them has a fifth of a unit, which moves edges by tens of percent, while nothing
tells a logit of -40 from one of -10: both are probabilities of 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.base.types import Array
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext
from shrink.stages.quantize.config import QuantizeConfig
from shrink.task.detector import Detector
from shrink.task.interface import artifact_interface
from shrink.tflite.interpreter import load
from shrink.tflite.model import Subgraph, read

LARGEST_LOGIT = 10.0
"""A sigmoid is within 5e-5 of 0 or 1 from here on."""


def bound_scores(
    source: FloatModel,
    config: QuantizeConfig,
    context: StageContext,
    calibration: CalibrationExamples,
) -> list[str]:
    """Let a detector's logits saturate where its probabilities do; return a note for each output.

    Args:
        source: gets the `bounds` of its outputs; where nothing would change it gets none.
        config: of the stage; only 8-bit activations are coarse enough to need it.
        context: knows how outputs are decoded.
        calibration: examples that tell the ranges.
    """
    scheme = config.scheme == "static_wi8_ai8" or (
        config.scheme == "mixed" and config.activations == "int8"
    )
    if not scheme or config.split_outputs or not context.has_targets or source.ranges:
        return []
    channels = _logit_channels(source, context)
    if channels is None:
        return []
    content = source.float32.content
    runner, graph = load(content), read(content)[0]
    found = [runner.predict(arrays) for arrays in calibration.batches()]
    outputs = [graph.outputs[position] for position in runner.output_positions]
    bounds, notes = dict[str, tuple[float, float]](), []
    for index, logits, column in zip(outputs, channels, zip(*found, strict=True), strict=True):
        ends, kept = _ends(column, logits)
        if kept != ends:
            named = _of_one_scale(graph, index)
            bounds |= dict.fromkeys(named, kept)
            notes.append(
                f"{named[0]}: logits beyond {LARGEST_LOGIT:g} on either side count as that, so "
                f"that one scale reaches from {kept[0]:.1f} to {kept[1]:.1f} in place of "
                f"{ends[0]:.1f} to {ends[1]:.1f}"
            )
    source.bounds = bounds
    return notes


def _logit_channels(source: FloatModel, context: StageContext) -> list[Array] | None:
    if context.task_config.decode is None:
        return None
    if source.model is not None:
        task = context.task(source.model)
    else:
        task = context.task_of(artifact_interface(context.input_path()))
    return task.detector.head.logit_channels() if isinstance(task.detector, Detector) else None


def _of_one_scale(graph: Subgraph, index: int) -> list[str]:
    """Return the names of a tensor and of those whose scale a reshape carries over to it."""
    made = {operator.outputs[0]: operator for operator in graph.operators if operator.outputs}
    names = [graph.tensors[index].name]
    while index in made and made[index].name == "RESHAPE":
        index = made[index].inputs[0]
        names.append(graph.tensors[index].name)
    return names


def _ends(
    outputs: Sequence[Array], logits: Array
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return least and largest value of an output, as it is and with its logits saturated."""
    limits = np.where(logits, LARGEST_LOGIT, np.inf)
    saturated = [np.clip(each, -limits, limits) for each in outputs]
    return _extremes(outputs), _extremes(saturated)


def _extremes(arrays: Sequence[Array]) -> tuple[float, float]:
    return min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)
