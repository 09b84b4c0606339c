"""Arrays in an .npz file, read without trusting it: no pickles, no size taken on faith."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from shrink.base.errors import DataError
from shrink.base.host import available_memory_bytes
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.early import UNREADABLE, array_names, holds_objects, open_archive
from shrink.data.sources.columns import open_columns

_LOCAL_HEADER = struct.Struct("<26xHH")
_ENCRYPTED = 0x1
# numpy reads a header as a Python literal, with all that this can trip over.
_BAD_HEADER = (*UNREADABLE, MemoryError, tokenize.TokenError)


@dataclass(frozen=True)
class Member:
    """What the header of one array in the file declares.

    Attributes:
        name: the array's name, without `.npy`.
        header_bytes: where the data starts in the member.
    """

    name: str
    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool
    header_bytes: int

    @property
    def data_bytes(self) -> int:
        """Size of the data that the header declares."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_stored(self) -> bool:
        """Whether the data stands in the file uncompressed, and so can be mapped."""
        return self.info.compress_type == zipfile.ZIP_STORED


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return arrays by name: mapped from the file where stored uncompressed, else in memory.

    Every header is checked before any data is read.

    Raises:
        DataError: an array is damaged, holds objects, or does not fit into memory.
    """
    with open_archive(path) as archive:
        members = [_member(archive, path, name) for name in names]
        _check_memory(path, sum(m.data_bytes for m in members if not m.is_stored))
        return {member.name: _read(archive, path, member) for member in members}


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> Member:
    info = archive.getinfo(f"{name}.npy")
    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"{name} is encrypted", subject=path)
    try:
        with archive.open(info) as stream:
            shape, fortran_order, dtype = _header(stream)
            member = Member(name, info, shape, dtype, fortran_order, stream.tell())
    except _BAD_HEADER as error:
        raise DataError(f"the header of {name} is damaged: {error}", subject=path) from error
    if dtype.hasobject:
        raise holds_objects(path, name)
    declared = member.header_bytes + member.data_bytes
    if declared != info.file_size:
        raise DataError(
            f"{name} declares shape {shape} of {dtype}, {declared} bytes with its header, "
            f"and holds {info.file_size}",
            subject=path,
            hint="the file is cut short or damaged; write it again",
        )
    return member


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(
        f"version {version[0]}.{version[1]} of the format cannot be read as plain numbers"
    )


def _check_memory(path: Path, needed_bytes: int) -> None:
    available = available_memory_bytes()
    if available is not None and needed_bytes > available:
        raise DataError(
            f"the arrays take {needed_bytes / 1e9:.1f} GB and {available / 1e9:.1f} GB of memory "
            "are left",
            subject=path,
            hint="store them with numpy.savez, uncompressed: then they are read from the disk",
        )


def _read(archive: zipfile.ZipFile, path: Path, member: Member) -> np.ndarray:
    try:
        if member.is_stored and member.data_bytes:
            return _mapped(path, member)
        with archive.open(member.info) as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except UNREADABLE as error:
        raise DataError(f"{member.name} is damaged: {error}", subject=path) from error


def _mapped(path: Path, member: Member) -> np.ndarray:
    with path.open("rb") as stream:
        stream.seek(member.info.header_offset)
        name_bytes, extra_bytes = _LOCAL_HEADER.unpack(stream.read(_LOCAL_HEADER.size))
        start = stream.tell() + name_bytes + extra_bytes
    return np.memmap(
        path,
        dtype=member.dtype,
        mode="r",
        offset=start + member.header_bytes,
        shape=member.shape,
        order="F" if member.fortran_order else "C",
    )


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the arrays of `config.path`; see `open_columns`.

    Raises:
        DataError: a missing or damaged file, or arrays that cannot be trained on.
    """
    path = Path(config.path or "").expanduser()
    return open_columns(
        path, array_names(path), lambda names: read_arrays(path, names), config, seed
    )
