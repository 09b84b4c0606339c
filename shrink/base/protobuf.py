"""The wire format of protocol buffers, as far as a scan needs it."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TAG_BITS = 3


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of every field of a message; nested messages are left as bytes.

    Raises:
        ValueError: cut short, or of an unknown wire type.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        kind = tag & ((1 << _TAG_BITS) - 1)
        if kind == _VARINT:
            value, at = _varint(message, at)
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
        return _varint(message, at)
    if kind == _FIXED64:
        return 8, at
    if kind == _FIXED32:
        return 4, at
    raise ValueError(f"unknown wire type {kind}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
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
