"""Scenes of scikit-learn's digits: with the class of every pixel, or with a box around each digit.

`masks` and `boxes` are functions for `data.source: python`. Every split has digits of its own, so
that no digit of a test scene was ever trained on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits

from shrink.data.splits import permutation, split_examples

SIDE = 48
"""Height and width of a scene, pixels."""
COUNTS = {"train": 1_200, "validation": 150, "test": 300}
"""Scenes of each split."""

_POOL_SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}
_SEED = 2_101
_SIZES = (14, 19)
_MASK_INK = 5.0
"""Of 16: where a digit is darker than this its pixel is the digit's, not background."""
_TRIES = 40


@dataclass(frozen=True)
class MaskScenes:
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
    borders = np.cumsum([round(share * total) for share in _POOL_SHARES.values()])[:-1]
    return dict(zip(_POOL_SHARES, np.split(order, borders), strict=True))


def with_masks(
    digits: np.ndarray, labels: np.ndarray, pool: np.ndarray, count: int, seed: int
) -> MaskScenes:
    """Return `count` scenes: three to five digits apart from each other, on a sloping gray.

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
            masks[index][area][ink > _MASK_INK] = labels[chosen] + 1
            rows, columns = np.nonzero(ink > _MASK_INK)
            corner = (top + rows.min(), left + columns.min())
            far = (top + rows.max() + 1, left + columns.max() + 1)
            found.append((labels[chosen], *corner, *far))
        images[index, ..., 0] = np.clip(np.round(canvas), 0, 255)
        boxes.append(np.array(found, np.int64))
    return MaskScenes(images, masks, tuple(boxes), np.array(sorted(used), np.int64))


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


BOX_SIDE, BOX_SCENES = 96, 1_500
"""Height and width of a scene with boxes, pixels, and how many there are of all splits."""
MOST_OBJECTS = 6
"""Of a scene; there is at least one."""
_FACTORS = (2, 3, 4, 5)
"""How many times larger a small picture becomes."""
_NOISE = 60
"""Gray levels that the background, and what is drawn on it, varies by."""
_BOX_INK = 0.25
"""Share of the largest value from which on a pixel belongs to its object."""
_MOST_OVERLAP = 0.05
_BOX_TRIES = 20


@dataclass(frozen=True)
class BoxScenes:
    """Pictures with what is in them.

    Attributes:
        images: uint8 (n, size, size, 1).
        boxes: float64 (n, MOST_OBJECTS, 5): left, top, right, bottom and class; a row of zeros with
            class -1 is no box.
    """

    images: np.ndarray
    boxes: np.ndarray


def with_boxes(
    parts: np.ndarray, labels: np.ndarray, count: int, size: int, seed: tuple[int, ...]
) -> BoxScenes:
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
    images = np.zeros((count, size, size, 1), np.uint8)
    boxes = np.zeros((count, MOST_OBJECTS, 5))
    boxes[:, :, 4] = -1
    for image, own in zip(images, boxes, strict=True):
        ground = random.integers(0, _NOISE, (size, size)).astype(np.float64)
        placed: list[list[int]] = []
        for _ in range(int(random.integers(1, MOST_OBJECTS + 1))):
            which = int(random.integers(len(parts)))
            row = _draw(ground, scaled[which], int(labels[which]), placed, random)
            placed += [] if row is None else [row]
        image[..., 0] = np.clip(ground, 0, 255)
        if placed:
            own[: len(placed)] = placed
    return BoxScenes(images, boxes)


def _draw(
    ground: np.ndarray,
    part: np.ndarray,
    label: int,
    others: list[list[int]],
    random: np.random.Generator,
) -> list[int] | None:
    """Draw a part where there is room, and return its box and class; None where none was found."""
    size = len(ground)
    for _ in range(_BOX_TRIES):
        factor = int(random.choice(_FACTORS))
        large = np.kron(part, np.ones((factor, factor)))
        height, width = large.shape
        top = int(random.integers(0, size - height + 1))
        left = int(random.integers(0, size - width + 1))
        contrast = 120 + int(random.integers(0, 76))
        ink = large >= _BOX_INK
        ys, xs = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
        edges = [left + xs[0], top + ys[0], left + xs[-1] + 1, top + ys[-1] + 1]
        if any(_overlaps(edges, other) for other in others):
            continue
        ground[top : top + height, left : left + width] += large * contrast
        return [*edges, label]
    return None


def _overlaps(one: list[int], other: list[int]) -> bool:
    """Whether two boxes share more than a twentieth of the smaller one."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (one, other)]
    return bool(max(width, 0) * max(height, 0) > _MOST_OVERLAP * min(areas))


def masks() -> Mapping[str, Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Return images uint8 (48, 48, 1) with masks uint8 (48, 48)."""
    held = load_digits()
    pools = digit_pools(len(held.target))

    def examples(number: int, split: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        made = with_masks(held.images, held.target, pools[split], COUNTS[split], number)
        yield from zip(made.images, made.masks, strict=True)

    return {split: examples(number, split) for number, split in enumerate(COUNTS)}


def boxes() -> Mapping[str, Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Return images uint8 (96, 96, 1) with boxes float64 (6, 5), see `with_boxes`."""
    held = load_digits()
    shares = {"train": 0.7, "validation": 0.1, "test": 0.2}
    labels = held.target.astype(np.int64)
    pools = split_examples(
        labels, len(labels), 0, validation=shares["validation"], test=shares["test"]
    )

    def examples(number: int, split: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        own, count = getattr(pools, split), math.ceil(round(shares[split] * BOX_SCENES, 6))
        made = with_boxes(held.images[own], labels[own], count, BOX_SIDE, (0, number))
        yield from zip(made.images, made.boxes, strict=True)

    return {split: examples(number, split) for number, split in enumerate(shares)}
