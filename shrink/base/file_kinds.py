"""Kinds of model files: their signatures, the refusal of damaged ones, and protocol buffers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shrink.base.errors import ModelError

_REBUILD = "rebuild the model from Keras' own layers, or give the function that builds it"
OR_TRUST = "if you know who made it, load it as it is with --trust-model"
"""What else to do about a file whose code is what it is refused for."""
_AGAIN = "copy the file again, or save the model again with model.save"
_PLAIN_WORDS = {
    "file is not a zip file": "it is not a zip archive, or it is cut short",
    "file signature not found": "it has no HDF5 signature",
    "truncated file": "it is cut short",
    "no item named": "a part of it is missing",
    "bad magic number": "its list of members is damaged",
    "invalid argument": "its list of members is damaged",
    "bad crc-32": "a part of it is damaged",
}
"""Plain words for what zipfile and h5py say."""
_STARTS: tuple[tuple[int, bytes, tuple[str, ...], str], ...] = (
    (0, b"PK\x03\x04", (".keras",), "a zip archive, as .keras files are"),
    (0, b"\x89HDF\r\n\x1a\n", (".h5", ".hdf5"), "an HDF5 file, whose name must end in .h5"),
    (4, b"TFL3", (".tflite",), "a TFLite model, whose name must end in .tflite"),
    (0, b"\x80", (), "perhaps a pickle, which shrink never loads"),
)
"""Where what stands in a file of which endings, and what to call it."""
_HEAD_BYTES = 8


def refused(reason: str, where: str, path: Path, hint: str = _REBUILD) -> ModelError:
    """Return the error for a file that could do harm, with the exact spot."""
    return ModelError(f"refused: {reason} (at {where!r})", subject=path, hint=hint)


def unreadable(kind: str, error: Exception, path: Path) -> ModelError:
    """Return the error for a file that is damaged or is something else."""
    text = str(error).strip("'\"").split("\n")[0][:300] or type(error).__name__
    plain = next((words for part, words in _PLAIN_WORDS.items() if part in text.lower()), text)
    if path.is_file() and (other := other_format(path)):
        plain = other
    ending = plain.partition("must end in ")[2]
    hint = f"rename the file to {path.with_suffix(ending).name}" if ending else _AGAIN
    return ModelError(f"not {kind} that can be read: {plain}", subject=path, hint=hint)


def other_format(path: Path) -> str:
    """Return what a file is whose start is that of another format than its name; else nothing."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return ""
    if not head:
        return "it is empty"
    for offset, start, endings, words in _STARTS:
        if head[offset:].startswith(start) and path.suffix.lower() not in endings:
            return f"it is {words}"
    return ""


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TAG_BITS = 3


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of every field of a message; nested messages are left as bytes.

    Raises:
        ValueError: cut short, or of an unknown wire type.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = varint(message, at)
        kind = tag & ((1 << _TAG_BITS) - 1)
        if kind == _VARINT:
            value, at = varint(message, at)
            yield tag >> _TAG_BITS, value
            continue
        size, at = _size(kind, message, at)
        if at + size > end:
            raise ValueError("truncated file")
        yield tag >> _TAG_BITS, message[at : at + size]
        at += size


def messages(message: memoryview, *path: int) -> Iterator[memoryview]:
    """Yield every nested message, string or bytes at a path of field numbers."""
    number, *rest = path
    for found, value in fields(message):
        if found == number and isinstance(value, memoryview):
            if rest:
                yield from messages(value, *rest)
            else:
                yield value


def text(message: memoryview, number: int) -> str:
    """Return a string field, the last where it is repeated, empty where it is missing."""
    found = [value for value in messages(message, number)]
    return bytes(found[-1]).decode() if found else ""


def _size(kind: int, message: memoryview, at: int) -> tuple[int, int]:
    if kind == _BYTES:
        return varint(message, at)
    if kind == _FIXED64:
        return 8, at
    if kind == _FIXED32:
        return 4, at
    raise ValueError(f"unknown wire type {kind}")


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where what follows it begins.

    Raises:
        ValueError: cut short, or longer than a number may be.
    """
    value = shift = 0
    while shift < 70:
        if at >= len(message):
            raise ValueError("truncated file")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number that is too long")
