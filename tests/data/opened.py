"""Data sets as a recipe opens them, and what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.opening import open_dataset

SPLITS = ("train", "validation", "test")


def configured(source: str, path: Path | str | None = None, **settings: Any) -> DataConfig:
    """Return the `data` section of a recipe."""
    place = {} if path is None else {"path": str(path)}
    return DataConfig.model_validate({"source": source, **place, **settings})


def opened(source: str, path: Path | str | None = None, seed: int = 0, **settings: Any) -> Dataset:
    """Open the data set of a `data` section."""
    return open_dataset(configured(source, path, **settings), seed)


def counts(dataset: Dataset) -> list[int]:
    """Return how many examples each split has."""
    return [len(getattr(dataset, split)) for split in SPLITS]


def all_of(examples: Any) -> tuple[Any, Any]:
    """Return inputs and targets of every example of a split."""
    x, y = examples.arrays(np.arange(len(examples)))
    return x, y


def everything(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets of all splits, one after the other."""
    x, y = zip(*(all_of(getattr(dataset, split)) for split in SPLITS), strict=True)
    return np.concatenate(x), np.concatenate(y)


def as_parquet(path: Path, rows: Any) -> Path:
    """Write a Parquet file of rows, or of columns by name; skip the test without pyarrow."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    build = pyarrow.table if isinstance(rows, dict) else pyarrow.Table.from_pylist
    parquet.write_table(build(rows), path)
    return path
