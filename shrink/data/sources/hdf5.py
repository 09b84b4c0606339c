"""Datasets in an HDF5 file, by the names that arrays have in an .npz file; groups as `a/x`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import LazyRows, Rows
from shrink.data.config import DataConfig, existing_file
from shrink.data.dataset import Dataset
from shrink.data.sources.columns import open_columns

_CHUNK_CACHE_BYTES = 64 * 1000**2
_MOST_TEXTS, _MOST_CHARACTERS = 10_000_000, 1_000_000_000
_HINT = "h5py.File(path, 'w').create_dataset('x', data=x) writes such files"


def _read_chunks(path: Path, dataset: h5py.Dataset, rows: np.ndarray) -> np.ndarray:
    """Return rows of a chunked, maybe compressed, dataset: one read for each run of neighbours.

    Raises:
        DataError: the file is damaged.
    """
    try:
        unique, positions = np.unique(rows, return_inverse=True)
        read = np.empty((len(unique), *dataset.shape[1:]), dataset.dtype)
        for run in np.split(np.arange(len(unique)), np.flatnonzero(np.diff(unique) != 1) + 1):
            if len(run):
                first = int(unique[run[0]])
                read[run[0] : run[-1] + 1] = dataset[first : first + len(run)]
        return read[positions]
    except OSError as error:
        raise DataError(
            f"{dataset.name} is damaged: {error}", subject=path, hint="write the file again"
        ) from error


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the datasets of `config.path`; see `open_columns`.

    What is stored in one piece is mapped from the file; chunks are read as they are needed.

    Raises:
        DataError: a missing or damaged file, or arrays that cannot be trained on.
    """
    path = Path(config.path or "").expanduser()
    file = _open(path)

    def read(names: Iterable[str]) -> dict[str, Rows]:
        return {name: _rows(path, name, file[name]) for name in names}

    return open_columns(path, _names(path, file), read, config, seed)


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(existing_file(path), "r", rdcc_nbytes=_CHUNK_CACHE_BYTES)
    except (OSError, RuntimeError) as error:
        raise DataError(f"not an HDF5 file: {error}", subject=path, hint=_HINT) from error


def _names(path: Path, file: h5py.File) -> list[str]:
    names: list[str] = []

    def note(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(name)

    try:  # soft and external links are not followed
        file.visititems(note)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise DataError(f"the HDF5 file is damaged: {error}", subject=path, hint=_HINT) from error
    return names


def _rows(path: Path, name: str, dataset: h5py.Dataset) -> Rows:
    if dataset.is_virtual or dataset.external:
        raise DataError(
            f"{name} is stored in other files that this file links to; refused",
            subject=path,
            hint="copy the data into one file",
        )
    if h5py.check_string_dtype(dataset.dtype) and dataset.ndim == 1:
        # Texts, such as class names or slices, in memory.
        try:
            texts = dataset.asstr()[:] if len(dataset) <= _MOST_TEXTS else None
        except (OSError, RuntimeError, ValueError) as error:
            raise DataError(f"{name} is damaged: {error}", subject=path, hint=_HINT) from error
        if texts is None or len(texts) * max(map(len, texts), default=0) > _MOST_CHARACTERS:
            raise DataError(
                f"{name} holds too much text", subject=path, hint="store labels as numbers from 0"
            )
        return texts.astype(str)
    if dataset.shape is None or dataset.dtype.kind == "O":
        raise DataError(
            f"{name} holds {dataset.dtype}, not numbers of one shape",
            subject=path,
            hint="store numbers in an array of one shape",
        )
    offset = dataset.id.get_offset() if dataset.chunks is None else None
    if offset is None or not dataset.size:
        read = functools.partial(_read_chunks, path, dataset)
        return LazyRows(read, dataset.shape, dataset.dtype)
    if offset + dataset.nbytes > path.stat().st_size:
        raise DataError(
            f"{name} is cut short", subject=path, hint="the file is damaged; write it again"
        )
    return np.memmap(path, dataset.dtype, "r", offset, dataset.shape)
