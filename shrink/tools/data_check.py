"""Every example of a data set read once: what there is, and what cannot be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, Examples, open_dataset
from shrink.errors import DataError

_CHUNK = 256


def data_check(job: Mapping[str, Any], send: Callable[..., None]) -> dict[str, Any]:
    """Return counts, shapes, value ranges and unreadable examples of the job's data.

    Returns:
        `splits` by name, each with `examples`, `classes` (count by class name), `shape`, `dtype`,
        `low` and `high`; `bad` with a message for each unreadable example; `notes`;
        `examples_per_s` of reading.
    """
    dataset = open_dataset(DataConfig.model_validate(job["data"]), int(job["seed"]))
    started, bad = time.perf_counter(), []
    splits = {}
    for name in ("train", "validation", "test"):
        examples: Examples = getattr(dataset, name)
        send("phase", name=f"reading {name}")
        splits[name], unreadable = _split(dataset, examples)
        bad += unreadable
    total = sum(split["examples"] for split in splits.values())
    return {
        "splits": splits,
        "bad": bad,
        "notes": list(dataset.notes),
        "examples_per_s": total / (time.perf_counter() - started),
    }


def _split(dataset: Dataset, examples: Examples) -> tuple[dict[str, Any], list[str]]:
    low, high = np.inf, -np.inf
    shape: tuple[int, ...] = ()
    dtype, bad = "", []
    for start in range(0, len(examples), _CHUNK):
        indices = np.arange(start, min(start + _CHUNK, len(examples)))
        x, unreadable = _read(examples, indices)
        bad += unreadable
        if x is None:
            continue
        shape, dtype = tuple(x.shape[1:]), x.dtype.name
        low, high = min(low, float(np.min(x))), max(high, float(np.max(x)))
    found = {
        "examples": len(examples),
        "classes": _counts(dataset, examples),
        "shape": list(shape),
        "dtype": dtype,
        "low": low if np.isfinite(low) else None,
        "high": high if np.isfinite(high) else None,
    }
    return found, bad


def _read(examples: Examples, indices: np.ndarray) -> tuple[np.ndarray | None, list[str]]:
    """Return the inputs of the examples that can be read, and why the others cannot."""
    try:
        return examples.arrays(indices)[0], []
    except DataError:
        problems = [(index, examples.explain(np.array([index]))) for index in indices]
        good = np.array([index for index, problem in problems if problem is None], np.int64)
        unreadable = [str(problem) for _, problem in problems if problem is not None]
        return (examples.arrays(good)[0] if len(good) else None), unreadable


def _counts(dataset: Dataset, examples: Examples) -> dict[str, int]:
    if examples.labels is None:
        return {}
    values, counts = np.unique(examples.labels, return_counts=True)
    names = dataset.class_names
    return {
        (names[v] if v < len(names) else str(v)): int(c)
        for v, c in zip(values, counts, strict=True)
    }
