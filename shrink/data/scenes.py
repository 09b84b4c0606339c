"""Scenes composed of scikit-learn's digits, with what stands where; numpy alone.

Three to five digits, each enlarged to 14 to 18 pixels, lie apart from each other on a gray
background with a slope of brightness and noise. All is decided by the seed of a split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shrink.data.splits import permutation

SIDE = 48
"""Height and width of a scene, pixels."""
COUNTS = {"train": 1_200, "validation": 150, "test": 300}
"""Scenes of each split."""

_SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}
_SEED = 2_101
_SIZES = (14, 19)
_INK = 5.0
"""Of 16: where a digit is darker than this its pixel is the digit's, not background."""
_TRIES = 40


@dataclass(frozen=True)
class Scenes:
    """Scenes and the class of every pixel.

    Attributes:
        images: uint8 (n, SIDE, SIDE, 1).
        masks: uint8 (n, SIDE, SIDE); 0 is background, d + 1 the digit d.
        boxes: for every scene, int64 (digits, 5): class 0 to 9, then top, left, bottom and right of
            the digit's own pixels; bottom and right are the first pixels beyond it.
        used: places among scikit-learn's digits of those in these scenes, int64, each once.
    """

    images: np.ndarray
    masks: np.ndarray
    boxes: tuple[np.ndarray, ...]
    used: np.ndarray


def digit_pools(total: int) -> dict[str, np.ndarray]:
    """Return which of so many digits each split is composed of: disjoint, int64."""
    order = permutation(total, _SEED)
    borders = np.cumsum([round(share * total) for share in _SHARES.values()])[:-1]
    return dict(zip(_SHARES, np.split(order, borders), strict=True))


def compose(
    digits: np.ndarray, labels: np.ndarray, pool: np.ndarray, count: int, seed: int
) -> Scenes:
    """Return `count` scenes.

    Args:
        digits: (n, 8, 8), values 0 to 16.
        labels: int (n,), 0 to 9.
        pool: int64, which digits may be used.
        count: number of scenes.
        seed: decides everything.
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([_SEED, seed])))
    images = np.empty((count, SIDE, SIDE, 1), np.uint8)
    masks = np.zeros((count, SIDE, SIDE), np.uint8)
    boxes, used = [], set[int]()
    for index in range(count):
        canvas = _background(random)
        found = []
        for top, left, size in _places(random, 3 + int(random.integers(0, 3))):
            chosen = int(pool[random.integers(0, len(pool))])
            used.add(chosen)
            ink = enlarged(digits[chosen], size)
            contrast = random.uniform(90, 150)
            area = np.s_[top : top + size, left : left + size]
            canvas[area] += contrast * ink / 16
            masks[index][area][ink > _INK] = labels[chosen] + 1
            rows, columns = np.nonzero(ink > _INK)
            corner = (top + rows.min(), left + columns.min())
            far = (top + rows.max() + 1, left + columns.max() + 1)
            found.append((labels[chosen], *corner, *far))
        images[index, ..., 0] = np.clip(np.round(canvas), 0, 255)
        boxes.append(np.array(found, np.int64))
    return Scenes(images, masks, tuple(boxes), np.array(sorted(used), np.int64))


def enlarged(digit: np.ndarray, size: int) -> np.ndarray:
    """Return an image (h, w) as (size, size), bilinear, corners on corners; float64."""
    source = digit.astype(np.float64)
    for axis in (0, 1):
        at = np.linspace(0, source.shape[axis] - 1, size)
        low = np.minimum(at.astype(np.int64), source.shape[axis] - 2)
        part = (at - low).reshape((-1, 1) if axis == 0 else (1, -1))
        source = np.take(source, low, axis) * (1 - part) + np.take(source, low + 1, axis) * part
    return source


def _background(random: np.random.Generator) -> np.ndarray:
    """Return gray with a slope and noise, float64 (SIDE, SIDE)."""
    slope_y, slope_x = random.uniform(-30, 30, 2)
    along = np.linspace(-0.5, 0.5, SIDE)
    plane = 60 + slope_y * along[:, None] + slope_x * along[None, :]
    return plane + random.normal(0, 12, (SIDE, SIDE))


def _places(random: np.random.Generator, wanted: int) -> list[tuple[int, int, int]]:
    """Return top, left and size of squares that do not touch; fewer where there is no room."""
    placed: list[tuple[int, int, int]] = []
    for _ in range(_TRIES):
        size = int(random.integers(*_SIZES))
        top, left = (int(value) for value in random.integers(0, SIDE - size + 1, 2))
        apart = all(
            top + size <= y or y + other <= top or left + size <= x or x + other <= left
            for y, x, other in placed
        )
        if apart:
            placed.append((top, left, size))
        if len(placed) == wanted:
            break
    return placed
