"""Serialized `tf.train.Example`s in an LMDB file, read by key; pickled values are never loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shrink.base.errors import DataError, ResourceError
from shrink.base.packages import extra_hint
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import ALL, SPLIT_OF_NAME
from shrink.data.sources.records import Records, divided
from shrink.data.sources.tfrecord import ExampleParser

if TYPE_CHECKING:
    import lmdb


class LmdbRecords(Records):
    """The values of some keys, by number.

    Args:
        path: of the file or folder, for messages.
        environment: lmdb's, opened for reading.
        keys: sorted, object array (n,).
    """

    def __init__(self, path: Path, environment: lmdb.Environment, keys: np.ndarray) -> None:
        super().__init__((str(path),), np.zeros(len(keys), np.int32))
        self._environment = environment
        self._keys = keys

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Return the bytes of values, an object array (n,)."""
        contents = np.empty(len(numbers), object)
        with self._environment.begin() as transaction:
            for index, number in enumerate(numbers):
                contents[index] = transaction.get(self._keys[number]) or b""
        return contents


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
    splits = {
        split: LmdbRecords(path, environment, keys)
        for split, keys in _keys_by_split(path, environment).items()
    }
    return divided(path, splits, parser, config, seed)


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


def _keys_by_split(path: Path, environment: lmdb.Environment) -> dict[str, np.ndarray]:
    by_split: dict[str, list[bytes]] = {}
    with environment.begin() as transaction:
        for key in transaction.cursor().iternext(keys=True, values=False):
            if not key.startswith(b"__"):
                prefix = key.partition(b"/")[0].decode("utf-8", "replace")
                by_split.setdefault(SPLIT_OF_NAME.get(prefix, ALL), []).append(bytes(key))
    if (
        not by_split
        or (ALL in by_split and len(by_split) > 1)
        or not {ALL, "train"} & by_split.keys()
    ):
        raise DataError(
            "no keys"
            if not by_split
            else f"its keys are of the splits {', '.join(sorted(by_split))}",
            subject=path,
            hint="begin each key with train/, validation/ or test/, or none",
        )
    return {split: np.array(keys, object) for split, keys in by_split.items()}
