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


def rows(count: int, *widths: int) -> keras.Model:
    """Return a model of candidates, with an output of each width."""
    x = keras.Input((64, 64, 1))
    flat = L.Reshape((count, -1))(x)
    return keras.Model(x, [L.Dense(width)(flat) for width in widths])


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (maps((8, 7)), {"name": "grid", "strides": (8,)}),
        (maps((8, 7), (16, 7)), {"name": "grid", "strides": (8, 16)}),
    ],
)
def test_head_is_told_by_the_outputs(model: keras.Model, expected: dict[str, object]) -> None:
    found = proposed_decode(DATASET, keras_interface(model))
    shown = {key: getattr(found, key) for key in expected}
    assert shown == expected
    config = TaskConfig(decode=found, metrics=())
    assert resolve_task(config, DATASET, keras_interface(model)).detector is not None


@pytest.mark.parametrize("model", [maps((8, 9)), maps((16, 7), (8, 7)), rows(64, 4, 4)])
def test_other_outputs_are_refused_with_what_to_do(model: keras.Model) -> None:
    with pytest.raises(ModelError, match="not those of a grid head") as raised:
        proposed_decode(DATASET, keras_interface(model))
    assert "task: {decode:" in str(raised.value.hint)
