"""The index of a checkpoint of TensorFlow (`variables.index`), read without TensorFlow.

It is a table of LevelDB: blocks of sorted keys, of which each says what it shares with the one
before. Keys are names of variables, values a `BundleEntryProto` each.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrink.base.file_kinds import fields, varint

_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES, _MAGIC_BYTES, _NUMBER_BYTES = 48, 8, 4
_UNPACKED = 0
"""What a block says behind its end; TensorFlow packs none of them."""
_SIZE = 5
"""The field of an entry that says how many bytes its values take in the data file."""
_MOST_KEYS, _LONGEST_KEY, _LONGEST_ENTRY = 200_000, 4096, 65_536


def variable_sizes(index: bytes) -> Iterator[tuple[str, int]]:
    """Yield name and bytes of every variable of a checkpoint.

    Args:
        index: the content of its index.

    Raises:
        ValueError: damaged, packed, or with more or longer names than any model has.
    """
    content = memoryview(index)
    footer = content[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or int.from_bytes(footer[-_MAGIC_BYTES:], "little") != _MAGIC:
        raise ValueError("no index of a checkpoint")
    _, at = _place(footer, 0)  # of a block that holds nothing
    place, _ = _place(footer, at)
    left, end = _MOST_KEYS, 0
    for _, where in _entries(_block(content, place)):
        (begin, length), _ = _place(where, 0)
        left -= 1
        if begin < end or not left:  # one after the other, so that none is read twice
            raise ValueError("blocks that are not in their order, or more than any model has")
        end = begin + length
        for key, entry in _entries(_block(content, (begin, length))):
            left -= 1
            if not left or len(entry) > _LONGEST_ENTRY:
                raise ValueError("more or longer variables than any model has")
            if key:  # the first is the checkpoint's own
                sizes = [value for number, value in fields(entry) if number == _SIZE]
                yield bytes(key).decode("utf-8", "replace"), _number(sizes)


def _number(found: list[int | memoryview]) -> int:
    size = found[-1] if found else 0
    if not isinstance(size, int):
        raise ValueError("a size that is no number")
    return size


def _place(content: memoryview, at: int) -> tuple[tuple[int, int], int]:
    """Return offset and length of a block, and where what follows them begins."""
    offset, at = varint(content, at)
    length, at = varint(content, at)
    return (offset, length), at


def _block(content: memoryview, place: tuple[int, int]) -> memoryview:
    offset, length = place
    if offset + length >= len(content) or content[offset + length] != _UNPACKED:
        raise ValueError("a block that lies beyond the file, or is packed")
    return content[offset : offset + length]


def _entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield key and value of each entry of a block."""
    if len(block) < _NUMBER_BYTES:
        raise ValueError("a block that is too short")
    restarts = int.from_bytes(block[-_NUMBER_BYTES:], "little")
    end = len(block) - _NUMBER_BYTES * (restarts + 1)
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or shared + own > _LONGEST_KEY or at + own + size > end:
            raise ValueError("an entry that does not fit")
        key = key[:shared] + bytes(block[at : at + own])
        yield key, block[at + own : at + own + size]
        at += own + size
