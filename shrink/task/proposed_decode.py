"""The decoding of a grid head, read from the shapes of a detector's outputs, for a first recipe."""

from __future__ import annotations

from shrink.base.errors import ModelError
from shrink.data.dataset import Dataset
from shrink.detection.config import DecodeConfig
from shrink.task.interface import Interface

_STRIDES = (2, 4, 8, 16, 32, 64)


def proposed_decode(dataset: Dataset, model: Interface) -> DecodeConfig:
    """Return how the outputs of a grid head become boxes.

    Args:
        dataset: the examples, whose targets are boxes.
        model: with one input, a picture.

    Raises:
        ModelError: the outputs are those of another head: what its numbers mean, and the anchors
            that it was trained with, are in no model file.
    """
    picture, classes = model.inputs[0], len(dataset.class_names)
    strides: list[int] = []
    for shape in model.outputs:
        fitting = (
            stride
            for stride in _STRIDES
            if shape == (*(-(-(side or 0) // stride) for side in picture[:2]), 4 + classes)
        )
        strides.append(next(fitting, 0))
    if 0 not in strides and strides == sorted(set(strides)):
        return DecodeConfig(name="grid", strides=tuple(strides))
    raise ModelError(
        f"the outputs {', '.join(map(str, model.outputs))} for pictures {picture} and {classes} "
        "classes are not those of a grid head, the only head that shapes identify",
        subject="task.decode",
        hint="give --data a YAML file with data: and task: {decode: {...}}, such as {name: yolo, "
        "strides: [16], anchors: [[[width, height]]]}; docs/detection.md has every head",
    )
