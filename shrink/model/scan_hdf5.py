"""Walks an HDF5 file: nothing in it may point outside, or declare more than the file holds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from shrink.base.errors import ModelError
from shrink.base.refusal import refused, unreadable

_FILTERS = frozenset({1, 2, 3, 4, 5, 6, 32000})
"""gzip, shuffle, fletcher32, szip, nbit, scale-offset and lzf; others are plug-ins to load."""
_RATIO_CAP = 1000
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


def read_attribute(path: Path, name: str) -> Any:
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


def _shapes(file: Any, path: Path) -> Iterator[tuple[int, ...]]:
    """Yield the shape of every data set after looking at it."""
    import h5py

    seen: set[Any] = set()
    waiting: list[tuple[str, Any, int]] = [("", file, 0)]
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
                raise refused("an object stands in two places, or too deep", spot, path)
            seen.add(address)
            if isinstance(item, h5py.Group):
                waiting.append((spot, item, depth + 1))
            elif isinstance(item, h5py.Dataset):
                _check_dataset(item, spot, path)
                yield item.shape or ()
            else:
                raise refused("an object that is neither group nor data set", spot, path)


def _check_attributes(item: Any, where: str, path: Path) -> None:
    import h5py

    for name in item.attrs:
        attribute = h5py.h5a.open(item.id, name.encode())
        size = math.prod(attribute.shape) * attribute.get_type().get_size()
        if size > _TEXT_CAP_BYTES:
            raise refused("an attribute is larger than any of Keras", f"{where}@{name}", path)
        kind = attribute.get_type().get_class()
        if kind in (h5py.h5t.REFERENCE, h5py.h5t.OPAQUE, h5py.h5t.COMPOUND):
            raise refused("an attribute holds no plain value", f"{where}@{name}", path)


def _check_dataset(data: Any, where: str, path: Path) -> None:
    creation = data.id.get_create_plist()
    if data.is_virtual:
        raise refused("a data set is put together from other files", where, path)
    if creation.get_external_count():
        raise refused("a data set keeps its values in another file", where, path)
    if data.dtype.kind not in "fiub" and data.dtype.kind not in "SU":
        raise refused(f"a data set holds {data.dtype}, not numbers", where, path)
    for index in range(creation.get_nfilters()):
        if creation.get_filter(index)[0] not in _FILTERS:
            raise refused("a data set needs a plug-in to be read", where, path)
    _check_extent(data, where, path)


def _check_extent(data: Any, where: str, path: Path) -> None:
    stored, wanted = data.id.get_storage_size(), data.nbytes
    packed = data.chunks is not None
    if wanted > (max(_RATIO_CAP * stored, _FREE_BYTES) if packed else stored):
        raise refused(f"{data.shape} needs {wanted} bytes, {stored} are there", where, path)
