"""Damaged .npz files are read or end in a DataError, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from tests.attacks.test_mutants import mutate


def open_mutants(folder: Path, count: int, seed: int) -> tuple[int, int]:
    """Open mutants of a stored and of a compressed file; return how many were read and refused."""
    random_values = np.random.default_rng(0)
    x, y = random_values.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    path, contents = folder / "data.npz", []
    for save in (np.savez, np.savez_compressed):
        save(path, x=x, y=y)
        contents.append(path.read_bytes())
    config = DataConfig.model_validate({"source": "npz", "path": str(path)})
    chance, read, refused = random.Random(seed), 0, 0
    for index in range(count):
        path.write_bytes(mutate(contents[index % 2], chance))
        try:
            dataset = open_dataset(config, seed=0)
            dataset.train.arrays(np.arange(len(dataset.train)))
            read += 1
        except DataError:
            refused += 1
    return read, refused


@pytest.mark.parametrize("count", [60, pytest.param(1_000, marks=pytest.mark.slow)])
def test_open_dataset_raises_only_data_errors_for_mutants(count: int, tmp_path: Path) -> None:
    """Nearly all are refused, since an archive knows the checksums of its members."""
    read, refused = open_mutants(tmp_path, count, seed=count)
    assert read + refused == count
    assert refused > count / 3
