"""Scans .keras archives and HDF5 files."""

from __future__ import annotations

import io
import json
import math
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shrink.base.errors import ModelError
from shrink.base.file_kinds import refused, unreadable
from shrink.base.types import Json

if TYPE_CHECKING:
    import h5py

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
_CONFIG_CAP_BYTES = 64 << 20
_ARCHIVE_RATIO_CAP = 100
_RATIO_FLOOR_BYTES = 16 << 20
_MEMBERS_CAP = 10_000
_ENCRYPTED = 1
_DAMAGE = (
    *(OSError, ValueError, LookupError, RuntimeError, EOFError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""What zipfile, zlib and json raise for damaged data."""


def check_archive(path: Path) -> tuple[Json, Json]:
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
            members = archive.infolist()
            if len(members) > _MEMBERS_CAP:
                raise refused(f"it has {len(members)} members", "archive", path)
            seen: set[str] = set()
            for member in members:
                name = member.filename
                spot = name[:80]
                if (
                    member.orig_filename != name
                    or "\\" in name
                    or ":" in name
                    or not name.isprintable()
                ):
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
                _check_size(member, path)
            if sum(member.compress_size for member in members) > path.stat().st_size:
                raise refused("its members are larger than the file itself", "archive", path)
            return _parsed(archive, METADATA), _parsed(archive, CONFIG)
    except _DAMAGE as error:
        raise unreadable("a .keras file", error, path) from error


def open_weights(path: Path) -> BinaryIO | None:
    """Return the HDF5 file inside a checked `.keras` file, read whole; None where there is none.

    Raises:
        ModelError: it is damaged, or does not unpack to what the archive says.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            return io.BytesIO(archive.read(WEIGHTS)) if WEIGHTS in names else None
    except (*_DAMAGE, MemoryError) as error:
        raise unreadable("a .keras file", error, path) from error


def _check_size(member: zipfile.ZipInfo, path: Path) -> None:
    name, size, packed = member.filename, member.file_size, member.compress_size
    if member.flag_bits & _ENCRYPTED:
        raise refused("a member is encrypted", name, path)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise refused("a member is packed in a way that Keras does not use", name, path)
    if member.compress_type == zipfile.ZIP_STORED and size != packed:
        raise refused("a member's two sizes differ", name, path)
    if size > _RATIO_FLOOR_BYTES and size > _ARCHIVE_RATIO_CAP * packed:
        raise refused(f"{packed} bytes unpack to {size}", name, path)
    if name in (CONFIG, METADATA) and size > _CONFIG_CAP_BYTES:
        raise refused(f"it is larger than {_CONFIG_CAP_BYTES >> 20} MiB", name, path)


def _parsed(archive: zipfile.ZipFile, name: str) -> Json:
    return json.loads(archive.read(name))


_FILTERS = frozenset({1, 2, 3, 4, 5, 6, 32000})
"""gzip, shuffle, fletcher32, szip, nbit, scale-offset and lzf; others are plug-ins to load."""
_HDF5_RATIO_CAP = 1000
_FREE_BYTES = 16 << 20
_TEXT_CAP_BYTES = 64 << 20
_DEPTH_CAP = 64
_OBJECTS_CAP = 1_000_000


def check_hdf5(source: Path | BinaryIO, path: Path) -> set[int]:
    """Return the dimensions of all data sets of a file that holds plain numbers only.

    Args:
        source: an HDF5 file, or the open member of an archive.
        path: the file, for messages.

    Raises:
        ModelError: damaged; a soft, external or virtual link; a plug-in filter; objects; a size
            that the file cannot hold.
    """
    import h5py

    try:
        with h5py.File(source, "r") as file:
            return {size for shape in _shapes(file, path) for size in shape}
    except ModelError:
        raise
    except Exception as error:  # h5py raises nearly every builtin error for damaged files
        raise unreadable("an HDF5 file", error, path) from error


def read_attribute(path: Path, name: str) -> Json:
    """Return the parsed JSON of a root attribute, or None; text that is no JSON is returned as is.

    Raises:
        ModelError: damaged, or far too long.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get(name)
        if text is None:
            return None
        text = text.decode() if isinstance(text, bytes) else text
        if not isinstance(text, str) or len(text) > _TEXT_CAP_BYTES:
            raise ValueError(f"its attribute {name} is no text of a model")
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") else text
    except Exception as error:
        raise unreadable("an HDF5 model", error, path) from error


def _shapes(file: h5py.File, path: Path) -> Iterator[tuple[int, ...]]:
    """Yield the shape of every data set after looking at it."""
    import h5py

    seen: set[int] = set()
    waiting: list[tuple[str, h5py.Group, int]] = [("", file, 0)]
    while waiting:
        where, group, depth = waiting.pop()
        _check_attributes(group, where, path)
        for name in group:
            spot = f"{where}/{name}"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise refused("a link that leads elsewhere", spot, path)
            item = group[name]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen or depth > _DEPTH_CAP or len(seen) > _OBJECTS_CAP:
                raise refused("an object has two places, or is too deep", spot, path)
            seen.add(address)
            if isinstance(item, h5py.Group):
                waiting.append((spot, item, depth + 1))
            elif isinstance(item, h5py.Dataset):
                creation = item.id.get_create_plist()
                if item.is_virtual:
                    raise refused("a data set is put together from other files", spot, path)
                if creation.get_external_count():
                    raise refused("a data set keeps its values in another file", spot, path)
                if item.dtype.kind not in "fiub" and item.dtype.kind not in "SU":
                    raise refused(f"a data set holds {item.dtype}, not numbers", spot, path)
                for index in range(creation.get_nfilters()):
                    if creation.get_filter(index)[0] not in _FILTERS:
                        raise refused("a data set needs a plug-in to be read", spot, path)
                stored, needed = item.id.get_storage_size(), item.nbytes
                packed = item.chunks is not None
                if needed > (max(_HDF5_RATIO_CAP * stored, _FREE_BYTES) if packed else stored):
                    raise refused(
                        f"{item.shape} needs {needed} bytes, {stored} are there", spot, path
                    )
                yield item.shape or ()
            else:
                raise refused("an object that is neither group nor data set", spot, path)


def _check_attributes(item: h5py.Group, where: str, path: Path) -> None:
    import h5py

    for name in item.attrs:
        attribute = h5py.h5a.open(item.id, name.encode())
        size = math.prod(attribute.shape) * attribute.get_type().get_size()
        if size > _TEXT_CAP_BYTES:
            raise refused("an attribute is larger than any of Keras", f"{where}@{name}", path)
        kind = attribute.get_type().get_class()
        if kind in (h5py.h5t.REFERENCE, h5py.h5t.OPAQUE, h5py.h5t.COMPOUND):
            raise refused("an attribute holds no plain value", f"{where}@{name}", path)
