"""Masks of attention that integers can hold.

A mask is added to the scores of a softmax as 0 or a number near -1e9, or put in their place. An
integer tensor that holds both has steps of millions: all scores become equal, and what is left of
attention is noise. The number itself means nothing. Whatever lies K below the largest score of its
row has a share of at most exp(-K), so that it may as well be the least number that is still told
apart, and lower ones saturate there.

    b = min(0, min over rows of the largest score that is not masked) - K
    K = 6 + ln(scores of a row)

A row has at most exp(-6) of its softmax, two thirds of a step of 1/256, on what is masked. The
mask adds b - max(scores), which brings any score to b or below, and the sum has the range from b to
the largest score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shrink.quantization.calibration import Batches, Ranges
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.interpreter import load
from shrink.tflite.model import Operator, Subgraph, Tensor, read, values

MASKED = -1e4
"""Scores at or below this are masked: no model has such scores of its own."""
SHARE = 6.0
"""exp(-SHARE) is what a row may have, all in all, on what is masked."""
_MOVING = frozenset(
    {"RESHAPE", "EXPAND_DIMS", "SQUEEZE", "TRANSPOSE", "STRIDED_SLICE", "SLICE", "BROADCAST_TO"}
)
_CHUNK = 16


@dataclass(frozen=True)
class BoundedMasks:
    """A float model whose masks are numbers that integers can hold.

    Attributes:
        content: the .tflite file, with other constants.
        ranges: of the tensors that have to saturate, and of the masks, by name.
        layers: the name of each masked softmax's input, with its bound.
    """

    content: bytes
    ranges: Ranges
    layers: Mapping[str, float]


@dataclass(frozen=True)
class _Mask:
    """A masked softmax: what it reads, the scores before the mask, and where the constant is."""

    masked: int
    scores: int
    added: int | None
    constant: tuple[int, int]


def bounded_masks(content: bytes, batches: Batches) -> BoundedMasks | None:
    """Return a float model with bounded masks; None where no softmax has a mask.

    Args:
        content: a float .tflite model.
        batches: examples that say what scores there are, by the names of the model's inputs.
    """
    graph = read(content)[0]
    masks = list(_masks(graph))
    if not masks:
        return None
    bounds = _bounds(content, graph, masks, batches)
    constants: dict[tuple[int, int], np.ndarray] = {}
    ranges: dict[str, tuple[float, float]] = {}
    for place in dict.fromkeys(mask.constant for mask in masks):
        # One constant for several softmaxes is as low as the lowest of them needs.
        users = [mask for mask in masks if mask.constant == place]
        level = min(bounds[mask.masked].level(mask) for mask in users)
        tensor = graph.tensors[graph.operators[place[0]].inputs[place[1]]]
        stored = _stored(tensor)
        constants[place] = np.where(stored <= MASKED, np.float32(level), stored)
        for mask in users:
            own = bounds[mask.masked]
            ranges[graph.tensors[mask.masked].name] = own.low, own.high
            if mask.added is not None:
                ranges[graph.tensors[mask.added].name] = level, max(0.0, float(stored.max()))
    layers = {graph.tensors[m.masked].name: bounds[m.masked].low for m in masks}
    return BoundedMasks(with_constants(content, constants), ranges, layers)


def scores_of_masks(graph: Subgraph) -> set[int]:
    """Return the tensors that hold the scores of masked softmaxes before their masks."""
    made = {index: o for o in graph.operators for index in o.outputs}
    return {i for mask in _masks(graph) for i in (mask.scores, _origin(mask.scores, made))}


@dataclass(frozen=True)
class _Bounds:
    """What a masked softmax reads: its bound, its largest score, and that before the mask."""

    low: float
    high: float
    before: float

    def level(self, mask: _Mask) -> float:
        """Return what stands for the number that masks: added to scores, or in their place."""
        return self.low if mask.added is None else self.low - self.before


def _bounds(
    content: bytes, graph: Subgraph, masks: Sequence[_Mask], batches: Batches
) -> dict[int, _Bounds]:
    """Return the bounds of each masked tensor, by its index."""
    tensors = sorted({index for mask in masks for index in (mask.masked, mask.scores)})
    runner = load(exposing(content, tensors))
    tops: dict[int, list[float]] = {mask.masked: [] for mask in masks}
    before = dict.fromkeys(tops, 0.0)
    for arrays in batches:
        outputs = dict(zip(tensors, runner.predict(arrays, batch_size=_CHUNK), strict=True))
        for mask in masks:
            rows = outputs[mask.masked].max(axis=-1)
            known = rows[rows > MASKED]
            tops[mask.masked] += [float(known.min()), float(known.max())] if known.size else []
            before[mask.masked] = max(before[mask.masked], float(outputs[mask.scores].max()))
    margins = {index: SHARE + math.log(graph.tensors[index].shape[-1]) for index in tops}
    return {
        index: _Bounds(min([0.0, *ends]) - margins[index], max([0.0, *ends]), before[index])
        for index, ends in tops.items()
    }


def _masks(graph: Subgraph) -> Iterator[_Mask]:
    made = {index: o for o in graph.operators for index in o.outputs}
    number = {id(operator): index for index, operator in enumerate(graph.operators)}
    for operator in graph.operators:
        if operator.name != "SOFTMAX":
            continue
        source = made.get(_origin(operator.inputs[0], made))
        if source is None:
            continue
        if source.name == "ADD":
            for added, scores in (source.inputs, source.inputs[::-1]):
                place = _constant(graph, added, source, made, number)
                if place is not None:
                    yield _Mask(source.outputs[0], scores, added, place)
                    break
        elif source.name in ("SELECT_V2", "SELECT"):
            for position in (1, 2):
                if _is_mask(graph, source.inputs[position]):
                    scores = source.inputs[3 - position]
                    yield _Mask(source.outputs[0], scores, None, (number[id(source)], position))
                    break


def _origin(index: int, made: Mapping[int, Operator]) -> int:
    """Return the tensor that one comes from, through operators that only move values."""
    while index in made and made[index].name in _MOVING:
        index = made[index].inputs[0]
    return index


def _constant(
    graph: Subgraph,
    index: int,
    reader: Operator,
    made: Mapping[int, Operator],
    number: Mapping[int, int],
) -> tuple[int, int] | None:
    """Return operator and position of the constant that makes a tensor a mask; None for others."""
    if _is_mask(graph, index):
        return number[id(reader)], list(reader.inputs).index(index)
    operator = made.get(_origin(index, made))
    if operator is None or operator.name != "MUL":
        return None
    for position, source in enumerate(operator.inputs):
        if _is_mask(graph, source):
            return number[id(operator)], position
    return None


def _is_mask(graph: Subgraph, index: int) -> bool:
    """Whether a tensor is a constant of numbers that mask."""
    tensor = graph.tensors[index]
    return tensor.dtype == "FLOAT32" and bool(np.any(_stored(tensor) <= MASKED))


def _stored(tensor: Tensor) -> np.ndarray:
    """Return the values of a constant in its shape; of any other tensor none."""
    stored = values(tensor) if tensor.constant else None
    return np.zeros(0, np.float32) if stored is None else stored.reshape(tensor.shape)
