"""Scenes made of small gray pictures on a larger one: where everything is, is known exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shrink.base.types import Array
from shrink.data.boxes import box_rows, padded

MOST_OBJECTS = 6
"""Of a scene; there is at least one."""
_FACTORS = (2, 3, 4, 5)
"""How many times larger a small picture becomes."""
_NOISE = 60
"""Gray levels that the background, and what is drawn on it, varies by."""
_INK = 0.25
"""Share of the largest value from which on a pixel belongs to its object."""
_MOST_OVERLAP = 0.05
_TRIES = 20


@dataclass(frozen=True)
class Scenes:
    """Pictures with what is in them.

    Attributes:
        pictures: uint8 (n, size, size, 1).
        boxes: float32 (n, MOST_OBJECTS, 7), see `shrink.data.boxes`.
    """

    pictures: Array
    boxes: Array


def compose(parts: Array, labels: Array, count: int, size: int, seed: tuple[int, ...]) -> Scenes:
    """Return scenes of 1 to 6 parts each, enlarged, that hardly overlap, on a noisy ground.

    Args:
        parts: gray pictures, (m, height, width), from 0 up.
        labels: the class of each, int (m,).
        count: how many scenes.
        size: of a scene, pixels each way.
        seed: decides everything.
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    scaled = parts / max(float(parts.max()), 1.0)
    pictures = np.zeros((count, size, size, 1), np.uint8)
    boxes = []
    for picture in pictures:
        ground = random.integers(0, _NOISE, (size, size)).astype(np.float64)
        rows: list[Array] = []
        for _ in range(int(random.integers(1, MOST_OBJECTS + 1))):
            which = int(random.integers(len(parts)))
            row = _draw(ground, scaled[which], int(labels[which]), rows, random)
            rows += [] if row is None else [row]
        picture[..., 0] = np.clip(ground, 0, 255)
        boxes.append(np.concatenate(rows) if rows else np.zeros((0, 7)))
    return Scenes(pictures, padded(boxes, MOST_OBJECTS))


def _draw(
    ground: Array, part: Array, label: int, others: list[Array], random: np.random.Generator
) -> Array | None:
    """Draw a part where there is room, and return its box; None where none was found."""
    size = len(ground)
    for _ in range(_TRIES):
        factor = int(random.choice(_FACTORS))
        large = np.kron(part, np.ones((factor, factor)))
        height, width = large.shape
        top = int(random.integers(0, size - height + 1))
        left = int(random.integers(0, size - width + 1))
        contrast = 120 + int(random.integers(0, 76))
        ink = large >= _INK
        ys, xs = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
        edges = [left + xs[0], top + ys[0], left + xs[-1] + 1, top + ys[-1] + 1]
        if any(_overlaps(edges, other[0, :4]) for other in others):
            continue
        ground[top : top + height, left : left + width] += large * contrast
        return box_rows(np.array([edges]), np.array([label]))
    return None


def _overlaps(one: list[int], other: Array) -> bool:
    """Whether two boxes share more than a twentieth of the smaller one."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (one, other)]
    return bool(max(width, 0) * max(height, 0) > _MOST_OVERLAP * min(areas))
