"""Clips the logits of a detector to what their probabilities can resolve.

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
from shrink.tflite.interpreter import load
from shrink.tflite.model import read

_LARGEST = 10.0
"""A sigmoid is within 5e-5 of 0 or 1 from here on."""


def bound_scores(
    source: FloatModel,
    config: QuantizeConfig,
    context: StageContext,
    calibration: CalibrationExamples,
) -> list[str]:
    """Let a detector's logits, whose sigmoid is not in the file, saturate at 10 on either side.

    Args:
        source: gets the `bounds` of its tensors.
        config: of the stage; only 8-bit activations are coarse enough to need it.
        context: knows how outputs are decoded.
        calibration: examples that say what ranges there are.

    Returns:
        A note for each tensor.
    """
    integers = config.scheme == "static_wi8_ai8" or (
        config.scheme == "mixed" and config.activations == "int8"
    )
    if not integers or config.split_outputs or source.ranges:
        return []
    if not context.has_targets or context.task_config.decode is None:
        return []
    task = context.task(source.model)
    channels = task.detector.head.logit_channels() if isinstance(task.detector, Detector) else None
    if channels is None:
        return []
    content = source.float32.content
    runner, graph = load(content), read(content)[0]
    made = {o.outputs[0]: o for o in graph.operators if o.outputs}
    found = [runner.predict(arrays) for arrays in calibration.batches()]
    outputs = [graph.outputs[position] for position in runner.output_positions]
    bounds, notes = dict[str, tuple[float, float]](), []
    for index, logits, column in zip(outputs, channels, zip(*found, strict=True), strict=True):
        limits = np.where(logits, _LARGEST, np.inf)
        saturated = [np.clip(each, -limits, limits) for each in column]
        ends, kept = _extremes(column), _extremes(saturated)
        if kept != ends:
            named = [index]
            while named[-1] in made and made[named[-1]].name == "RESHAPE":  # it has this scale
                named.append(made[named[-1]].inputs[0])
            bounds |= {graph.tensors[i].name: kept for i in named}
            notes.append(
                f"{graph.tensors[index].name}: logits are clipped at ±{_LARGEST:g}, so that one "
                f"scale covers {kept[0]:.1f} to {kept[1]:.1f} instead of {ends[0]:.1f} to "
                f"{ends[1]:.1f}"
            )
    source.bounds = bounds
    return notes


def _extremes(arrays: Sequence[Array]) -> tuple[float, float]:
    return min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)
