"""How many bytes the weights of a model file take in memory, read without loading it.

A compiled model's file has the slots of its optimizer, too: with Adam three times the bytes.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import BinaryIO

from shrink.base.errors import ModelError
from shrink.model.scan_files import WEIGHTS, open_weights

_SMALL_BYTES = 4_000_000
"""A file below counts as it is: what its optimizer takes decides nothing."""
_OF_OPTIMIZER = ("optimizer", "optimizer_weights")
"""Groups at the root of a `.keras` file's weights, and of an HDF5 model."""


def weights_bytes(path: Path) -> int:
    """Return the bytes of a model's weights, as its file has them, without its optimizer's.

    Args:
        path: a `.keras` or `.h5` file; of any other file, of a folder, and of one that cannot be
            read all bytes count.

    Returns:
        The bytes; 0 where there is no file.
    """
    try:
        files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
        whole = sum(one.stat().st_size for one in files)
    except OSError:
        return 0
    if path.is_dir() or whole < _SMALL_BYTES:
        return whole
    if path.suffix in (".h5", ".hdf5"):
        return _without_optimizer(path) or whole
    if path.suffix == ".keras" and _is_stored(path):
        try:
            source = open_weights(path)
        except ModelError:
            return whole
        if source is not None:
            with source:
                return _without_optimizer(source) or whole
    return whole


def _is_stored(path: Path) -> bool:
    """Whether the weights can be read in place, as they are in what Keras writes."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.getinfo(WEIGHTS).compress_type == zipfile.ZIP_STORED
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return False


def _without_optimizer(source: Path | BinaryIO) -> int:
    """Return the bytes of all data sets but the optimizer's; 0 where they cannot be read."""
    import h5py

    found = [0]

    def count(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset) and name.partition("/")[0] not in _OF_OPTIMIZER:
            found[0] += item.nbytes

    try:
        with h5py.File(source, "r") as file:
            file.visititems(count)
    except Exception:  # h5py raises nearly every builtin error for damaged files; loading tells why
        return 0
    return found[0]
