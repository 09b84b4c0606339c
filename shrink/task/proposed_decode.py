"""Infers a detector's head from the shapes and values of its outputs, for `shrink init`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from shrink.base.errors import ModelError
from shrink.data.dataset import Dataset
from shrink.detection.config import DecodeConfig
from shrink.task.interface import Interface

_EXAMPLES = 16
_STRIDES = (4, 8, 16, 32, 64)
_MOST_ANCHORS = 9
_FRACTION = 2.0
"""Edges that reach no farther are fractions of the picture, not pixels."""


def proposed_decode(dataset: Dataset, model: Interface) -> DecodeConfig:
    """Return how a detector's outputs become boxes, by their shapes and values.

    Args:
        dataset: the examples, whose targets are boxes.
        model: with one input, a picture.

    Raises:
        ModelError: the outputs are those of no head that is known, or of one with anchors, which
            only who trained the model can know.
    """
    picture, classes = model.inputs[0], len(dataset.class_names)
    shapes = [tuple(int(size or 0) for size in shape) for shape in model.outputs]
    if len(picture) == 3 and None not in picture[:2]:
        size = (int(picture[0] or 0), int(picture[1] or 0))
        maps = all(len(shape) == 3 for shape in shapes)
        found = (
            _of_maps(size, shapes, classes)
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
    size: tuple[int, int], shapes: Sequence[tuple[int, ...]], classes: int
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
    raise _needs_anchors("yolo", strides, each)


def _needs_anchors(name: str, strides: Sequence[int], each: int) -> ModelError:
    level = f"[{', '.join(['[width, height]'] * each)}]"
    anchors = f"[{', '.join([level] * len(strides))}]"
    return ModelError(
        f"the outputs are those of a {name} head with {each} anchors a cell for the strides "
        f"{list(strides)}, and the anchors that it was trained with are in no file",
        subject="task.decode.anchors",
        hint="give --data a YAML file with data: and task: {decode: {name: "
        f"{name}, strides: {list(strides)}, anchors: {anchors}}}}}, in pixels",
    )


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
        raise _needs_anchors("ssd", *level)
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
