"""Ranges of what a softmax or a sigmoid reads, by the error of the probabilities behind it.

Logits that reach from -110 to 70 have int8 steps of 0.7: each is a factor of two in probability.
But a softmax gives nothing to what lies 10 below the largest logit of its row. Of the ranges that
saturate, the one with the least squared error of the probabilities is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shrink.base.types import Array
from shrink.quantization.attention_masks import MASKED
from shrink.quantization.calibration import Batches, extremes_of, least_squares_of
from shrink.tflite.edit import exposing
from shrink.tflite.interpreter import load
from shrink.tflite.model import Subgraph, read

_RATIOS = np.geomspace(0.02, 1.0, 36)
_MOST_VALUES = 200_000
_LEAST_GAIN = 0.8
"""Error of the probabilities, as a part of what a least-squares range costs, to use another."""


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _sigmoid(logits: Array) -> Array:
    return 1 / (1 + np.exp(-logits))


_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {"SOFTMAX": _softmax, "LOGISTIC": _sigmoid}


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
    """Return a range for each tensor that only softmaxes or sigmoids read, if it helps them.

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
    for (index, function), parts in zip(read_by.items(), columns, strict=True):
        values = np.concatenate(parts)
        if not np.isfinite(values).all() or values.min() <= MASKED:
            continue  # `bounded_masks` sets the range of a masked softmax
        one = [{"": values}]
        extremes = extremes_of(one)[""]
        usual = least_squares_of(functools.partial(iter, one), levels, ())[""]
        rows = values.reshape(-1, values.shape[-1]).astype(np.float64)
        rows = rows[:: -(-rows.size // _MOST_VALUES)]
        error = _error_of(rows, function, levels)
        best = _best(extremes, usual, error)
        if error(best) < _LEAST_GAIN * error(usual):
            names = tuple(graph.tensors[i].name for i in of_one_scale(graph, index))
            found.append(SaturatedLogits(names, *best, extremes))
    return found


def _error_of(
    rows: Array, function: Callable[[Array], Array], levels: int
) -> Callable[[tuple[float, float]], float]:
    """Return the mean squared error of the probabilities as a function of the logits' range."""
    wanted = function(rows)

    def error(ends: tuple[float, float]) -> float:
        scale = (ends[1] - ends[0]) / (levels - 1)
        if scale <= 0:
            return np.inf
        low = np.rint(ends[0] / scale)
        codes = np.clip(np.rint(rows / scale), low, low + levels - 1)
        return float(np.mean((function(codes * scale) - wanted) ** 2))

    return error


def _best(
    extremes: tuple[float, float],
    usual: tuple[float, float],
    error: Callable[[tuple[float, float]], float],
) -> tuple[float, float]:
    """Return the range of least error: common ratios of both ends, then ratios of each end."""

    def least(ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
        return min(ranges, key=error)

    low, high = min(extremes[0], 0.0), max(extremes[1], 0.0)
    best = least([usual, *((low * ratio, high * ratio) for ratio in _RATIOS)])
    best = least([best, *((best[0], high * ratio) for ratio in _RATIOS)])
    best = least([best, *((low * ratio, best[1]) for ratio in _RATIOS)])
    return float(best[0]), float(best[1])


def _logits(graph: Subgraph) -> dict[int, Callable[[Array], Array]]:
    """Return the tensors that only softmaxes or only sigmoids read, with the function."""
    readers: dict[int, list[str]] = {index: ["the model"] for index in graph.outputs}
    for operator in graph.operators:
        for index in operator.inputs:
            readers.setdefault(index, []).append(operator.name)
    written = {index for operator in graph.operators for index in operator.outputs}
    return {
        index: _FUNCTIONS[kinds[0]]
        for index, kinds in readers.items()
        if index in written
        and kinds[0] in _FUNCTIONS
        and len(set(kinds)) == 1
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
