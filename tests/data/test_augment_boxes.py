"""Boxes move with their pictures: against the boxes of the moved pixels themselves."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.types import Spec
from shrink.data.augment import Augmentation
from shrink.data.boxes import box_rows, padded
from shrink.data.config import AugmentConfig

SIZE = (20, 26)
EDGES = np.array([[2, 3, 9, 8], [15, 10, 26, 20], [0, 0, 4, 4], [11, 1, 14, 7]])
"""Boxes that do not overlap, left, top, right and bottom."""


def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures in which box k is filled with k + 1, and their boxes."""
    picture = np.zeros((*SIZE, 1), np.uint8)
    for k, (left, top, right, bottom) in enumerate(EDGES):
        picture[top:bottom, left:right] = k + 1
    boxes = padded([box_rows(EDGES, np.arange(len(EDGES)))], 6)
    return np.repeat(picture[None], count, 0), np.repeat(boxes, count, 0)


def augmented(**changes: object) -> tuple[np.ndarray, np.ndarray]:
    count = 40
    pictures, boxes = drawn(count)
    of = Augmentation(
        AugmentConfig.model_validate(changes),
        Spec((*SIZE, 1), np.dtype(np.uint8)),
        None,
        Spec((6, 7), np.dtype(np.float32)),
        has_boxes=True,
    )
    numbers = of.draw(0, 1, np.arange(count))
    x, y = of.apply(tf.constant(pictures), tf.constant(boxes), tf.constant(numbers))
    return x.numpy(), y.numpy()


def found(picture: np.ndarray, value: int) -> list[int] | None:
    """Return the box around the pixels of a value, None where there are none."""
    rows, columns = np.nonzero(picture[..., 0] == value)
    if not len(rows):
        return None
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@pytest.mark.parametrize(
    "changes",
    [{"flip": "horizontal"}, {"flip": "vertical"}, {"crop": 7}, {"flip": "both", "crop": 5}],
    ids=str,
)
def test_boxes_are_those_of_the_moved_pixels(changes: dict[str, object]) -> None:
    gone = cut = 0
    for picture, boxes in zip(*augmented(**changes), strict=True):
        for k, (left, top, right, bottom) in enumerate(EDGES):
            expected, row = found(picture, k + 1), boxes[k]
            if expected is None:
                gone += 1
                np.testing.assert_array_equal(row, [0, 0, 0, 0, -1, 0, 0])
                continue
            np.testing.assert_array_equal(row[:4], expected)
            own = (row[2] - row[0]) * (row[3] - row[1])
            share = own / ((right - left) * (bottom - top))
            cut += share < 1
            assert row[4] == k
            assert row[5] == (share < 0.25)
            assert row[6] == pytest.approx(own)
    assert (gone > 0) == (cut > 0) == ("crop" in changes)


def test_padding_stays_padding_and_colours_leave_boxes_alone() -> None:
    _, boxes = augmented(crop=7, flip="both")
    np.testing.assert_array_equal(boxes[:, 4:, 4], -1)
    _, plain = drawn(40)
    np.testing.assert_array_equal(augmented(brightness=0.2)[1], plain)


@pytest.mark.parametrize("changes", [{"rotate": 10.0}, {"mixup": 0.2}])
def test_what_boxes_cannot_follow_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(DataError, match=f"{next(iter(changes))} is not supported with boxes"):
        augmented(**changes)
