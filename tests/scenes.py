"""A few of the digit scenes that the recipes use, as functions for `data.source: python`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from recipes.data import digit_scenes

BOXES: dict[str, Any] = {
    "source": "python",
    "path": f"{Path(__file__).resolve()}:few_boxes",
    "targets": ["boxes"],
    "classes": [str(digit) for digit in range(10)],
}
"""The `data` section of 75 scenes with boxes to train on, 30 to validate and 60 to test on."""


def few_boxes() -> Mapping[str, Iterator[tuple[np.ndarray, np.ndarray]]]:
    counts = {"train": 75, "validation": 30, "test": 60}
    return {split: islice(made, counts[split]) for split, made in digit_scenes.boxes().items()}
