"""Ranges of logits before a softmax or a sigmoid, no wider than probabilities can resolve.

Logits that reach from -110 to 70 have int8 steps of 0.7: each is a factor of two in probability.
But a sigmoid beyond 10 is within 5e-5 of 0 or 1, and a softmax gives at most exp(-6) of a row, two
thirds of a step of 1/256, to all that lies 6 + ln(scores of a row) below the row's largest.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from shrink.quantization.attention_masks import MASKED, SHARE
from shrink.quantization.calibration import Batches, extremes_of, least_squares_of
from shrink.tflite.edit import exposing
from shrink.tflite.interpreter import load
from shrink.tflite.model import Subgraph, read

LARGEST_LOGIT = 10.0
"""A sigmoid is within 5e-5 of 0 or 1 from here on."""


@dataclass(frozen=True)
class SaturatedLogits:
    """A range of logits.

    Attributes:
        names: of the tensor, and of those whose scale a reshape carries over to it.
        low, high: real numbers; what lies beyond saturates.
        extremes: least and largest value in calibration.
    """

    names: tuple[str, ...]
    low: float
    high: float
    extremes: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.extremes
        return (
            f"{self.names[0]}: logits from {low:.1f} to {high:.1f} are clipped to {self.low:.1f} "
            f"to {self.high:.1f}: the finer steps make the probabilities more accurate"
        )


def saturated_logits(content: bytes, batches: Batches, levels: int = 256) -> list[SaturatedLogits]:
    """Return a narrower range for tensors that only softmaxes or sigmoids read, if there is one.

    Args:
        content: a float .tflite model.
        batches: examples, by the names of the model's inputs.
        levels: codes of the integer type.
    """
    graph = read(content)[0]
    read_by = _logits(graph)
    if not read_by:
        return []
    runner = load(exposing(content, list(read_by)))
    columns = list(zip(*(runner.predict(arrays) for arrays in batches), strict=True))
    found = []
    for (index, reader), parts in zip(read_by.items(), columns, strict=True):
        values = np.concatenate(parts)
        if not np.isfinite(values).all() or values.min() <= MASKED:
            continue  # `bounded_masks` sets the range of a masked softmax
        one = [{"": values}]
        usual = least_squares_of(functools.partial(iter, one), levels, ())[""]
        low, high = -LARGEST_LOGIT, LARGEST_LOGIT
        if reader == "SOFTMAX":
            least = float(values.max(axis=-1).min())
            low, high = least - SHARE - math.log(values.shape[-1]), usual[1]
        ends = max(min(low, 0.0), usual[0]), min(high, usual[1])
        if ends != usual:
            names = tuple(graph.tensors[i].name for i in of_one_scale(graph, index))
            found.append(SaturatedLogits(names, *ends, extremes_of(one)[""]))
    return found


def _logits(graph: Subgraph) -> dict[int, str]:
    """Return the tensors that only softmaxes or only sigmoids read, with the operator's name."""
    readers: dict[int, list[str]] = {index: ["the model"] for index in graph.outputs}
    for operator in graph.operators:
        for index in operator.inputs:
            readers.setdefault(index, []).append(operator.name)
    written = {index for operator in graph.operators for index in operator.outputs}
    return {
        index: kinds[0]
        for index, kinds in readers.items()
        if index in written
        and set(kinds) in ({"SOFTMAX"}, {"LOGISTIC"})
        and all(readers[before] == ["RESHAPE"] for before in of_one_scale(graph, index)[1:])
    }


def of_one_scale(graph: Subgraph, index: int) -> list[int]:
    """Return a tensor, and those before it whose scale a reshape carries over to it."""
    made = {operator.outputs[0]: operator for operator in graph.operators if operator.outputs}
    found = [index]
    while index in made and made[index].name == "RESHAPE":
        index = made[index].inputs[0]
        found.append(index)
    return found
