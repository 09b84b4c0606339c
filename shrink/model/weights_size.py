"""How many bytes the weights of a model file take in memory, read without loading it.

A compiled model's file has the slots of its optimizer, too: with Adam three times the bytes.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from shrink.base.errors import ModelError
from shrink.base.files import Stamp
from shrink.model.bundle import variable_sizes
from shrink.model.scan_files import WEIGHTS, open_weights

_SMALL_BYTES = 4_000_000
"""A file below counts as it is: what its optimizer takes decides nothing."""
_OF_OPTIMIZER = ("optimizer", "optimizer_weights")
"""Groups at the root of a `.keras` file's weights, of an HDF5 model, and of a checkpoint."""
_SLOT = "/.OPTIMIZER_SLOT/"
"""In the name of what an older optimizer keeps beside a variable."""
_OF_CHECKPOINT = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MOST_INDEX_BYTES = 64 << 20
_MOST_UNPACKED_BYTES, _MOST_RATIO = 1 << 29, 20
"""What is unpacked to be looked at, about a second for 100 MB; floats shrink by a tenth."""
_DAMAGE = (
    *(OSError, KeyError, ValueError, RuntimeError, EOFError),
    *(zipfile.BadZipFile, zlib.error),
)
_KNOWN: dict[Stamp, int] = {}


def weights_bytes(path: Path) -> int:
    """Return the bytes of a model's weights, as its file has them, without its optimizer's.

    Args:
        path: a `.keras` or `.h5` file, or the folder of a SavedModel, of which the graph counts,
            too, as it may hold constants; of any other file or folder, and of one that cannot be
            read, all bytes count.

    Returns:
        The bytes; 0 where there is no file.
    """
    try:
        files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
        whole = sum(one.stat().st_size for one in files)
        stamp = None if path.is_dir() else Stamp.of(path)
    except OSError:
        return 0
    if whole < _SMALL_BYTES:
        return whole
    if stamp is None:
        return _counted(path) or whole
    if stamp not in _KNOWN:
        _KNOWN[stamp] = _counted(path) or whole
    return _KNOWN[stamp]


def _counted(path: Path) -> int:
    """Return the bytes that are counted one by one; 0 where they cannot be."""
    if path.is_dir():
        return _of_saved_model(path)
    if path.suffix in (".h5", ".hdf5"):
        return _without_optimizer(path)
    if path.suffix != ".keras":
        return 0
    try:
        return _of_archive(path)
    except (ModelError, *_DAMAGE):
        return 0  # loading it tells why


def _of_archive(path: Path) -> int:
    """Return the bytes of a `.keras` file's weights, read where they lie or unpacked on disk."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(WEIGHTS)
        if member.compress_type != zipfile.ZIP_STORED:
            most = min(_MOST_UNPACKED_BYTES, _MOST_RATIO * path.stat().st_size)
            if member.file_size > most:
                return 0
            with archive.open(member) as packed, tempfile.TemporaryFile() as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)  # no more than the archive says
                return _without_optimizer(unpacked)
    source = open_weights(path)
    if source is None:
        return 0
    with source:
        return _without_optimizer(source)


def _of_saved_model(folder: Path) -> int:
    """Return the bytes of a SavedModel's variables and of its graph; 0 without an index."""
    index, graph = folder / "variables" / "variables.index", folder / "saved_model.pb"
    try:
        if index.stat().st_size > _MOST_INDEX_BYTES:
            return 0
        sizes = variable_sizes(index.read_bytes())
        own = sum(size for name, size in sizes if not _is_of_optimizer(name))
        stored = sum(one.stat().st_size for one in index.parent.glob("variables.data-*"))
        constants = graph.stat().st_size
    except (OSError, ValueError):
        return 0
    return own + constants if 0 < own <= stored else 0


def _is_of_optimizer(name: str) -> bool:
    """Whether a variable of a checkpoint is none of the model's own."""
    return name.partition("/")[0] in (*_OF_OPTIMIZER, _OF_CHECKPOINT) or _SLOT in name


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
