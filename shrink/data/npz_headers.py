"""What an .npz file holds, by its archive and the headers of its arrays; light.

The worker checks every header strictly (`shrink.data.npz_members`); here a header that is
not understood has no shape.
"""

from __future__ import annotations

import ast
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from shrink.base.errors import DataError

UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)
_LENGTH = {b"\x93NUMPY\x01\x00": struct.Struct("<H"), b"\x93NUMPY\x02\x00": struct.Struct("<I")}
_MOST_HEADER_BYTES = 10_000
"""As numpy itself takes at most."""


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz file.

    Raises:
        DataError: no such file, or it is no .npz file.
    """
    with open_archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def row_counts(path: Path, names: Iterable[str]) -> dict[str, int]:
    """Return how many rows the headers of some arrays declare, as far as they can be read.

    Raises:
        DataError: no such file, or it is no .npz file.
    """
    found: dict[str, int] = {}
    with open_archive(path) as archive:
        for name in names:
            try:
                with archive.open(f"{name}.npy") as stream:
                    length = _LENGTH[stream.read(8)]
                    (size,) = length.unpack(stream.read(length.size))
                    text = stream.read(min(size, _MOST_HEADER_BYTES)).decode("latin1")
                found[name] = int(ast.literal_eval(text)["shape"][0])
            except (*UNREADABLE, LookupError, RuntimeError, MemoryError):
                continue
    return found


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open an .npz file.

    Raises:
        DataError: no such file, or it is no .npz file.
    """
    if not path.exists():
        raise DataError(
            "no such file", subject=path, hint="data.path is relative to the recipe, or absolute"
        )
    if not path.is_file():
        raise DataError("this is not a file", subject=path, hint="source: images takes folders")
    try:
        return zipfile.ZipFile(path)
    except PermissionError as error:
        raise DataError("permission denied", subject=path, hint=f"chmod u+r {path}") from error
    except UNREADABLE as error:
        raise DataError(
            f"not an .npz file: {error}", subject=path, hint="numpy.savez writes such files"
        ) from error
