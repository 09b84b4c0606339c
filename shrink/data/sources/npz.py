"""Arrays in an .npz file: `x_train, y_train, x_test, y_test`, or `x, y` split by fractions."""

from __future__ import annotations

from pathlib import Path

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.npz_headers import array_names
from shrink.data.npz_members import read_arrays
from shrink.data.sources.columns import open_columns


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the arrays of `config.path`; see `open_columns`.

    Raises:
        DataError: a missing or damaged file, or arrays that cannot be trained on.
    """
    path = Path(config.path or "").expanduser()
    return open_columns(
        path, array_names(path), lambda names: read_arrays(path, names), config, seed
    )
