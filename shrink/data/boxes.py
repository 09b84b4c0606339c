"""Boxes as targets: padded to a fixed number, so that every example has the same shape.

A box is a row of seven numbers, float32: the left, top, right and bottom edge in pixels of the
picture, the class's number, whether it stands for a crowd (1 or 0), and its area in square pixels.
The edges are those of an area, not of the outermost pixels: a box of one pixel is 1 wide. A row of
padding has class -1 and zeros. A crowd is found or not without any credit or blame, as in COCO.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.base.types import Array
from shrink.tflite.lazy import tf

LEFT, TOP, RIGHT, BOTTOM, CLASS, CROWD, AREA = range(7)
COLUMNS = 7
PADDING = -1.0
"""The class of a row that is no box."""


def padded(boxes: Sequence[Array], most: int | None = None) -> Array:
    """Return the boxes of some pictures in one array, float32 (n, most, 7).

    Args:
        boxes: of each picture, (k, 7).
        most: rows for each picture, at least the largest k; by default that, and at least 1.
    """
    most = max([1, *map(len, boxes)]) if most is None else most
    rows = np.zeros((len(boxes), most, COLUMNS), np.float32)
    rows[:, :, CLASS] = PADDING
    for row, own in zip(rows, boxes, strict=True):
        row[: len(own)] = own
    return rows


def box_rows(edges: Array, classes: Array, crowd: Array | None = None) -> Array:
    """Return boxes as rows, float32 (k, 7).

    Args:
        edges: (k, 4): left, top, right, bottom.
        classes: (k,).
        crowd: (k,); by default none is one.
    """
    edges = np.asarray(edges, np.float64).reshape(-1, 4)
    area = (edges[:, RIGHT] - edges[:, LEFT]) * (edges[:, BOTTOM] - edges[:, TOP])
    crowd = np.zeros(len(edges)) if crowd is None else np.asarray(crowd)
    return np.column_stack([edges, np.asarray(classes), crowd, area]).astype(np.float32)


_SEEN_ENOUGH = 0.25
"""Share of a box that must be left in the picture; one with less is a crowd from then on: a
detector that finds it gets no blame, and one that does not neither."""


def moved(
    rows: tf.Tensor,
    size: tuple[int, int],
    flips: tuple[tf.Tensor, tf.Tensor],
    shifts: tuple[tf.Tensor, tf.Tensor],
) -> tf.Tensor:
    """Return boxes (n, g, 7) as `shrink.data.augment.resample` moves their pictures, cut off.

    Args:
        rows: boxes.
        size: height and width of the pictures.
        flips: (n,) each, -1 to mirror left and right, or top and bottom, else 1.
        shifts: (n,) each, whole pixels that the pictures are shifted by to the left, and up.
    """
    edges = []
    for place, (flip, shift) in enumerate(zip(flips, shifts, strict=True)):
        whole = float(size[1 - place])
        both = tf.stack([rows[..., place], rows[..., place + 2]], axis=-1)
        # The pixel at x comes from flip * (x - middle) + middle + shift.
        flip, shift = (tf.cast(one, rows.dtype)[:, None, None] for one in (flip, shift))
        both = flip * (both - shift - whole / 2) + whole / 2
        edges.append(tf.clip_by_value(both, 0.0, whole))
    low, high = (
        tf.stack([end(one, axis=-1) for one in edges], axis=-1)
        for end in (tf.reduce_min, tf.reduce_max)
    )
    before = tf.reduce_prod(rows[..., RIGHT : BOTTOM + 1] - rows[..., : TOP + 1], axis=-1)
    share = tf.math.divide_no_nan(tf.reduce_prod(high - low, axis=-1), before)
    label = tf.where(share > 0, rows[..., CLASS], PADDING)
    crowd = tf.where(share < _SEEN_ENOUGH, tf.ones_like(share), rows[..., CROWD])
    own = tf.stack([label, crowd, rows[..., AREA] * share], axis=-1)
    changed = tf.concat([low, high, own], axis=-1)
    nothing = tf.constant([0, 0, 0, 0, PADDING, 0, 0], rows.dtype)
    return tf.where(label[..., None] >= 0, changed, nothing)
