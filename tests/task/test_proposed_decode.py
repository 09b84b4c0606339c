"""Heads recognized by the outputs of models that have them."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.data.arrays import ArrayExamples
from shrink.data.boxes import box_rows, padded
from shrink.data.dataset import Dataset
from shrink.task.config import TaskConfig
from shrink.task.interface import keras_interface
from shrink.task.proposed_decode import proposed_decode
from shrink.task.resolve import resolve_task

L = keras.layers
SIZES = np.array([[10, 20], [30, 30], [12, 18], [60, 40]])
BOXES = padded(
    [box_rows(np.hstack([[[2, 3]], [[2, 3]] + SIZES[[i]]]), np.array([1])) for i in range(4)]
)
IMAGES = np.random.default_rng(0).integers(0, 255, (4, 64, 64, 1), np.uint8)
EXAMPLES = ArrayExamples(IMAGES, BOXES, np.arange(4))
DATASET = Dataset(EXAMPLES, EXAMPLES, EXAMPLES, ("cat", "dog", "owl"), None, has_boxes=True)


def maps(*outputs: tuple[int, int]) -> keras.Model:
    """Return a model with an output of so many channels for each stride."""
    x = keras.Input((64, 64, 1))
    found = [L.Conv2D(width, 1)(L.AveragePooling2D(stride)(x)) for stride, width in outputs]
    return keras.Model(x, found)


def rows(count: int, *widths: int, edges: str = "linear", scores: str = "sigmoid") -> keras.Model:
    """Return a model of candidates in one output, or with boxes and scores apart."""
    x = keras.Input((64, 64, 1))
    flat = L.Reshape((count, -1))(x)
    boxes = L.Dense(4, activation=edges, bias_initializer="ones")(flat)
    parts = [boxes, L.Dense(sum(widths) - 4, activation=scores)(flat)]
    return keras.Model(x, L.Concatenate()(parts) if len(widths) == 1 else parts)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (maps((8, 7)), {"name": "grid", "strides": (8,)}),
        (maps((8, 7), (16, 7)), {"name": "grid", "strides": (8, 16)}),
        (rows(64, 7, edges="sigmoid"), {"name": "boxes", "strides": (8,), "units": "fraction"}),
        (rows(64, 4, 4, scores="softmax"), {"name": "boxes", "scores": "softmax"}),
    ],
)
def test_head_is_told_by_the_outputs(model: keras.Model, expected: dict[str, object]) -> None:
    found = proposed_decode(DATASET, keras_interface(model))
    shown = {key: getattr(found, key) for key in expected}
    assert shown == expected
    config = TaskConfig(decode=found, metrics=())
    assert resolve_task(config, DATASET, keras_interface(model)).detector is not None


@pytest.mark.parametrize("model", [maps((8, 9)), maps((16, 7), (8, 7)), rows(64, 4, 9)])
def test_other_outputs_are_refused_with_what_to_do(model: keras.Model) -> None:
    with pytest.raises(ModelError, match="no head that is known") as raised:
        proposed_decode(DATASET, keras_interface(model))
    assert "task.decode" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        (
            maps((16, 16), (32, 16)),
            "name: yolo, strides: [16, 32], anchors: [[[width, height], [width, height]], "
            "[[width, height], [width, height]]]",
        ),
        (rows(256, 4, 4, scores="linear"), "name: ssd, strides: [4], anchors: [[[width, height]]]"),
    ],
)
def test_anchors_are_asked_for(model: keras.Model, hint: str) -> None:
    with pytest.raises(ModelError, match="anchors that it was trained with") as raised:
        proposed_decode(DATASET, keras_interface(model))
    assert hint in str(raised.value.hint)
