"""Looks at a `.keras` archive: its members, their names and sizes, before any is unpacked."""

from __future__ import annotations

import io
import json
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from shrink.base.refusal import refused, unreadable

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
_CONFIG_CAP_BYTES = 64 << 20
_RATIO_CAP = 100
_RATIO_FLOOR_BYTES = 16 << 20
_MEMBERS_CAP = 10_000
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 1
_DAMAGE = (
    *(OSError, ValueError, LookupError, RuntimeError, EOFError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""What zipfile, zlib and json raise for damaged data."""


def check_archive(path: Path) -> tuple[Any, Any]:
    """Return metadata and configuration of a `.keras` file whose members are as they must be.

    Raises:
        ModelError: no archive, damaged, or with a member that Keras never writes: a path that
            leaves the folder, a link, a duplicate, a size that its bytes cannot have.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                raise ValueError("File is not a zip file")
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, path)
            return _parsed(archive, METADATA), _parsed(archive, CONFIG)
    except _DAMAGE as error:
        raise unreadable("a .keras file", error, path) from error


def open_weights(path: Path) -> BinaryIO | None:
    """Return the HDF5 file inside a checked `.keras` file, seekable; None where there is none.

    A stored member is read in place, so that only what is looked at is read.

    Raises:
        ModelError: it does not unpack to what the archive says.
    """
    with zipfile.ZipFile(path) as archive:
        if WEIGHTS not in archive.namelist():
            return None
        member = archive.getinfo(WEIGHTS)
    file = path.open("rb")
    try:
        file.seek(member.header_offset)
        fields = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        start = member.header_offset + _LOCAL_HEADER.size + fields[-2] + fields[-1]
        if member.compress_type == zipfile.ZIP_STORED:
            return io.BufferedReader(_Window(file, start, member.file_size), 1 << 16)
        file.seek(start)
        content = _inflated(file.read(member.compress_size), member)
    except (*_DAMAGE, MemoryError) as error:
        file.close()
        raise unreadable("a .keras file", error, path) from error
    file.close()
    return io.BytesIO(content)


def _inflated(packed: bytes, member: zipfile.ZipInfo) -> bytes:
    """Unpack a member in one call: by parts, as zipfile does, it takes twice as long."""
    unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
    content = unpacking.decompress(packed, member.file_size + 1)
    if len(content) != member.file_size or zlib.crc32(content) != member.CRC:
        raise ValueError(f"{member.filename} is damaged")
    return content


class _Window(io.RawIOBase):
    """A part of an open file, as a file of its own."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._at, self._size)[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._at)
        data = self._file.read(min(len(buffer), max(self._size - self._at, 0)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    members = archive.infolist()
    if len(members) > _MEMBERS_CAP:
        raise refused(f"it has {len(members)} members", "archive", path)
    seen: set[str] = set()
    for member in members:
        _check_name(member, seen, path)
        _check_size(member, path)
    if sum(member.compress_size for member in members) > path.stat().st_size:
        raise refused("its members are larger than the file itself", "archive", path)


def _check_name(member: zipfile.ZipInfo, seen: set[str], path: Path) -> None:
    name = member.filename
    spot = name[:80]
    if member.orig_filename != name or "\\" in name or ":" in name or not name.isprintable():
        raise refused("a member has a name that Keras does not write", spot, path)
    parts = name.rstrip("/").split("/")
    if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise refused("a member leaves the folder it is unpacked in", spot, path)
    if parts[0] != "assets" and name not in (CONFIG, METADATA, WEIGHTS):
        raise refused("a member that a Keras file does not have", spot, path)
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise refused("a member is a link or a device", spot, path)
    if name.casefold() in seen:
        raise refused("two members have the same name", spot, path)
    seen.add(name.casefold())


def _check_size(member: zipfile.ZipInfo, path: Path) -> None:
    name, size, packed = member.filename, member.file_size, member.compress_size
    if member.flag_bits & _ENCRYPTED:
        raise refused("a member is encrypted", name, path)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise refused("a member is packed in a way that Keras does not use", name, path)
    if member.compress_type == zipfile.ZIP_STORED and size != packed:
        raise refused("a member's two sizes differ", name, path)
    if size > _RATIO_FLOOR_BYTES and size > _RATIO_CAP * packed:
        raise refused(f"{packed} bytes unpack to {size}", name, path)
    if name in (CONFIG, METADATA) and size > _CONFIG_CAP_BYTES:
        raise refused(f"it is larger than {_CONFIG_CAP_BYTES >> 20} MiB", name, path)


def _parsed(archive: zipfile.ZipFile, name: str) -> Any:
    return json.loads(archive.read(name))
