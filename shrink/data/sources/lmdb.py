"""Serialized `tf.train.Example`s in an LMDB file, read by key; pickled values are never loaded."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shrink.base.errors import DataError, ResourceError
from shrink.base.packages import extra_hint
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import ALL, SPLIT_OF_NAME
from shrink.data.sources.records import ExampleParser, Records, open_records

if TYPE_CHECKING:
    import lmdb


class LmdbRecords(Records):
    """The values of some keys, by number.

    Args:
        path: of the file or folder.
        environment: lmdb's, opened for reading.
        keys: sorted, object array (n,).
    """

    def __init__(self, path: Path, environment: lmdb.Environment, keys: np.ndarray) -> None:
        file = path / "data.mdb" if path.is_dir() else path
        super().__init__((str(file),), np.zeros(len(keys), np.int32))
        self._file = os.path.realpath(file)
        self._environment = environment
        self._keys = keys

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Return the bytes of values, an object array (n,)."""
        contents = np.empty(len(numbers), object)
        with self._environment.begin() as transaction:
            for index, number in enumerate(numbers):
                contents[index] = transaction.get(self._keys[number]) or b""
        _release_pages(self._file)
        return contents


def _release_pages(file: str) -> None:
    """Release the resident pages of a mapped file, which count as this process's memory.

    They stay in the kernel's cache, and what is read again is mapped again.
    """
    library = ctypes.CDLL(None)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        if line.endswith(f" {file}"):
            start, end = (int(edge, 16) for edge in line.split()[0].split("-"))
            library.madvise(start, end - start, mmap.MADV_DONTNEED)


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the LMDB file or folder `config.path`.

    Keys that begin with `train/`, `validation/` (`val/`) or `test/` tell the split of a value; keys
    that begin with two underscores are left alone.

    Raises:
        DataError: missing or damaged, features that are not declared, or keys that tell no split.
        ResourceError: the package lmdb is missing.
    """
    path = Path(config.path or "").expanduser().absolute()
    parser = ExampleParser(path, config)
    environment = _open(path)
    keys = _keys_by_split(path, environment)
    records = LmdbRecords(path, environment, np.array([*itertools.chain(*keys.values())], object))
    ends = np.cumsum([0, *map(len, keys.values())])
    splits = {split: np.arange(*ends[at : at + 2]) for at, split in enumerate(keys)}
    return open_records(path, splits, records, parser, config, seed)


def _open(path: Path) -> lmdb.Environment:
    try:
        import lmdb
    except ImportError as error:
        raise ResourceError(
            "source: lmdb needs the package lmdb", hint=extra_hint("lmdb")
        ) from error
    try:
        return lmdb.open(
            str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False
        )
    except lmdb.Error as error:
        raise DataError(
            f"not an LMDB file: {error}", subject=path, hint="name the file, or its folder"
        ) from error


def _keys_by_split(path: Path, environment: lmdb.Environment) -> dict[str, list[bytes]]:
    by_split: dict[str, list[bytes]] = {}
    with environment.begin() as transaction:
        for key in transaction.cursor().iternext(keys=True, values=False):
            if not key.startswith(b"__"):
                prefix = key.partition(b"/")[0].decode("utf-8", "replace")
                by_split.setdefault(SPLIT_OF_NAME.get(prefix, ALL), []).append(bytes(key))
    if not by_split or (ALL in by_split and len(by_split) > 1):
        raise DataError(
            "no keys"
            if not by_split
            else f"its keys are of the splits {', '.join(sorted(by_split))}",
            subject=path,
            hint="begin each key with train/, validation/ or test/, or none",
        )
    return by_split
