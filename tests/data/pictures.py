"""Small folders of pictures for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_picture(
    path: Path, seed: int = 0, size: tuple[int, int] = (6, 5), mode: str = "RGB"
) -> None:
    """Write a random picture of `size` (height, width); the ending decides the format."""
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, *channels), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_folders(root: Path, count: int = 10, classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    """Write `count` PNG pictures of each class under `root`, and return it."""
    for number, name in enumerate(classes):
        for index in range(count):
            write_picture(root / name / f"{index:02d}.png", seed=100 * number + index)
    return root
