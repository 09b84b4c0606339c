"""What head a detector has, told by the shapes and values of its outputs: for a first recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.data import boxes as columns
from shrink.data.dataset import Dataset
from shrink.detection.decode import iou
from shrink.task.decode_config import DecodeConfig
from shrink.task.interface import Interface

_EXAMPLES, _BOXES_OF = 16, 2_000
_STRIDES = (4, 8, 16, 32, 64)
_MOST_ANCHORS = 9
_FRACTION = 2.0
"""Edges that reach no farther are fractions of the picture, not pixels."""
_ROUNDS = 100


def proposed_decode(dataset: Dataset, model: Interface) -> DecodeConfig:
    """Return how a detector's outputs become boxes, as far as they tell.

    Nobody can tell with which anchors a model was trained: these are the sizes of the training
    boxes, clustered by overlap (Redmon & Farhadi 2017, "YOLO9000", section 2).

    Args:
        dataset: the examples, whose targets are boxes.
        model: with one input, a picture.

    Raises:
        ModelError: the outputs are those of no head that is known.
    """
    picture, classes = model.inputs[0], len(dataset.class_names)
    shapes = [tuple(int(size or 0) for size in shape) for shape in model.outputs]
    if len(picture) == 3 and None not in picture[:2]:
        size = (int(picture[0] or 0), int(picture[1] or 0))
        maps = all(len(shape) == 3 for shape in shapes)
        found = (
            _of_maps(size, shapes, classes, dataset)
            if maps
            else _of_rows(size, shapes, classes, dataset, model)
        )
        if found is not None:
            return found
    raise ModelError(
        f"the outputs {', '.join(map(str, shapes))} for pictures {picture} and {classes} classes "
        "are those of no head that is known",
        hint="write the recipe with task.decode by hand: docs/detection.md",
    )


def _of_maps(
    size: tuple[int, int], shapes: Sequence[tuple[int, ...]], classes: int, dataset: Dataset
) -> DecodeConfig | None:
    """Return the head of outputs (h, w, channels), the finest first."""
    strides = tuple(_stride(size, shape[:2]) for shape in shapes)
    widths = {shape[2] for shape in shapes}
    if 0 in strides or list(strides) != sorted(set(strides)) or len(widths) > 1:
        return None
    (width,) = widths
    if width == 4 + classes:
        return DecodeConfig(name="grid", strides=strides)
    each, rest = divmod(width, 5 + classes)
    if rest:
        return None
    return DecodeConfig(name="yolo", strides=strides, anchors=_anchors(dataset, strides, each))


def _stride(size: tuple[int, int], cells: Sequence[int]) -> int:
    """Return the pixels between cells, 0 where the cells are those of no stride."""
    fitting = (s for s in (2, *_STRIDES) if tuple(-(-side // s) for side in size) == tuple(cells))
    return next(fitting, 0)


def _of_rows(
    size: tuple[int, int],
    shapes: Sequence[tuple[int, ...]],
    classes: int,
    dataset: Dataset,
    model: Interface,
) -> DecodeConfig | None:
    """Return the head of outputs (a, 4 + c), or (a, 4) and (a, c)."""
    widths = [shape[-1] for shape in shapes if len(shape) == 2]
    apart = len(widths) == 2 and widths[0] == 4
    if len(widths) != len(shapes) or not (apart or len(widths) == 1):
        return None
    background = sum(widths) - 4 - classes
    if background not in (0, 1) or len({shape[0] for shape in shapes}) > 1:
        return None
    kind: Literal["sigmoid", "softmax"] = "softmax" if background else "sigmoid"
    x, _ = dataset.train.arrays(np.arange(min(_EXAMPLES, len(dataset.train))))
    rows = np.concatenate(model.ask(x), axis=-1).astype(np.float64)
    edges, scores = rows[..., :4], rows[..., 4:]
    count = shapes[0][0]
    if scores.min() < 0 or scores.max() > 1:
        level = next(_levels(size, count, _MOST_ANCHORS), None)
        if level is None:
            return None
        strides, each = level
        anchors = _anchors(dataset, strides, each)
        return DecodeConfig(name="ssd", strides=strides, anchors=anchors, scores=kind)
    strides = next(_levels(size, count, 1), ((), 1))[0]
    corners = bool(np.all(edges[..., 2:] >= edges[..., :2]))
    return DecodeConfig(
        name="boxes",
        strides=strides,
        scores=kind,
        box_format="xyxy" if corners else "xywh",
        units="fraction" if np.abs(edges).max() <= _FRACTION else "pixels",
    )


def _levels(
    size: tuple[int, int], count: int, most_anchors: int
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield strides that follow each other, and anchors of a cell, of so many candidates."""
    cells = [int(np.prod([-(-side // stride) for side in size])) for stride in _STRIDES]
    for each in range(1, most_anchors + 1):
        for first in range(len(_STRIDES)):
            for end in range(first + 1, len(_STRIDES) + 1):
                if each * sum(cells[first:end]) == count:
                    yield _STRIDES[first:end], each


Anchors = tuple[tuple[tuple[float, float], ...], ...]


def _anchors(dataset: Dataset, strides: Sequence[int], each: int) -> Anchors:
    """Return width and height of anchors, whole pixels, the smallest for the finest level."""
    _, y = dataset.train.arrays(np.arange(min(_BOXES_OF, len(dataset.train))))
    rows = np.asarray(y, np.float64).reshape(-1, columns.COLUMNS)
    rows = rows[rows[:, columns.CLASS] >= 0]
    sizes = rows[:, 2:4] - rows[:, :2]
    found = clustered(sizes[sizes.min(axis=1) > 0], each * len(strides))
    pairs = [(max(1.0, float(round(w))), max(1.0, float(round(h)))) for w, h in found]
    return tuple(tuple(pairs[start : start + each]) for start in range(0, len(pairs), each))


def clustered(sizes: Array, count: int) -> Array:
    """Return so many widths and heights, (count, 2), by area: k-means with 1 - IoU for distance.

    Args:
        sizes: of boxes, (n, 2), above 0.
        count: of clusters, which begin at quantiles of the area.
    """
    if not len(sizes):
        return np.ones((count, 2))
    order = sizes[np.argsort(sizes.prod(axis=1), kind="stable")]
    places = np.round((np.arange(count) + 0.5) / count * len(order) - 0.5).astype(int)
    centres = order[places]
    for _ in range(_ROUNDS):
        nearest = iou(_at_origin(sizes), _at_origin(centres)).argmax(axis=1)
        moved = np.array(
            [
                sizes[nearest == k].mean(axis=0) if (nearest == k).any() else centres[k]
                for k in range(count)
            ]
        )
        if np.allclose(moved, centres):
            break
        centres = moved
    return np.asarray(centres[np.argsort(centres.prod(axis=1), kind="stable")])


def _at_origin(sizes: Array) -> Array:
    return np.hstack([np.zeros_like(sizes), sizes])
