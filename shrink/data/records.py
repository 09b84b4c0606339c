"""Records of TFRecord files by number: where each one lies, and its bytes.

A record is its length (uint64, little-endian), a checksum of that, the bytes, a checksum of those
(https://www.tensorflow.org/tutorials/load_data/tfrecord).
"""

from __future__ import annotations

import gzip
import os
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base import files
from shrink.base.cache import entry_path
from shrink.base.errors import DataError
from shrink.data.folders import shown

_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_BLOCK_BYTES = 1 << 20
_HINT = "the file is cut short or damaged, or no TFRecord file; write it again"


@dataclass(frozen=True)
class RecordIndex:
    """Where the records of some files lie.

    Attributes:
        paths: of the files, uncompressed.
        file: int32 (n,), which file holds each record.
        offset: int64 (n,), where its bytes begin.
        length: int64 (n,), how many there are.
    """

    paths: tuple[str, ...]
    file: np.ndarray
    offset: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.offset)

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Return the bytes of records, an object array (n,).

        Raises:
            DataError: a file cannot be read, or has become shorter.
        """
        contents = np.empty(len(numbers), object)
        order = np.argsort(self.file[numbers], kind="stable")
        descriptor, opened = -1, -1
        try:
            for place in order:
                number = numbers[place]
                if (file := int(self.file[number])) != opened:
                    if descriptor >= 0:
                        os.close(descriptor)
                    descriptor, opened = os.open(self.paths[file], os.O_RDONLY), file
                length = int(self.length[number])
                content = os.pread(descriptor, length, int(self.offset[number]))
                if len(content) < length:
                    raise DataError("a record is cut short", subject=self.paths[file], hint=_HINT)
                contents[place] = content
        except OSError as error:
            raise DataError(
                f"cannot be read: {error.strerror}", subject=self.paths[int(self.file[number])]
            ) from error
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return contents


def index_records(paths: Sequence[str]) -> RecordIndex:
    """Return where the records of TFRecord files lie, from their headers alone.

    Raises:
        DataError: a file cannot be read, or its records do not fill it exactly.
    """
    found = [_walk(path) for path in paths]
    counts = [len(offsets) for offsets, _ in found]
    return RecordIndex(
        tuple(paths),
        np.repeat(np.arange(len(paths), dtype=np.int32), counts),
        np.concatenate([offsets for offsets, _ in found] or [np.zeros(0, np.int64)]),
        np.concatenate([lengths for _, lengths in found] or [np.zeros(0, np.int64)]),
    )


def uncompressed(path: Path, digests: Callable[[], Mapping[str, str]]) -> str:
    """Return the path of a file's content without compression: its own, or one in the cache.

    Compressed files can only be read from the front, so they are unpacked once.

    Args:
        path: a TFRecord file, maybe compressed by gzip, or by zlib with the ending `.zlib`.
        digests: returns the hash of its content by path; called only where it is compressed.

    Raises:
        DataError: damaged.
        ResourceError: the disk is full.
    """
    with path.open("rb") as stream:
        is_gzip = stream.read(3) == b"\x1f\x8b\x08"
    if not is_gzip and path.suffix != ".zlib":
        return str(path)
    target = entry_path("records", digests()[str(path)], ".tfrecord")
    if not target.is_file():
        with files.replacing(target) as temporary, temporary.open("wb") as out:
            try:
                for block in _gunzipped(path) if is_gzip else _inflated(path):
                    out.write(block)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(f"damaged: {error}", subject=shown(path), hint=_HINT) from error
    return str(target)


def _gunzipped(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _inflated(path: Path) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            while block:  # a bomb comes out in blocks too
                yield inflate.decompress(block, _BLOCK_BYTES)
                block = inflate.unconsumed_tail
    yield inflate.flush()


def _walk(path: str) -> tuple[np.ndarray, np.ndarray]:
    offsets, lengths = array("q"), array("q")
    try:
        with Path(path).open("rb") as stream:
            end = os.fstat(stream.fileno()).st_size
            place = 0
            while place < end:
                length = int.from_bytes(stream.read(_HEADER_BYTES)[:8], "little")
                following = place + _HEADER_BYTES + length + _FOOTER_BYTES
                if following > end:
                    raise DataError(
                        f"record {len(offsets)} claims {length:,} bytes, and {end - place:,} are "
                        "left",
                        subject=shown(path),
                        hint=_HINT,
                    )
                offsets.append(place + _HEADER_BYTES)
                lengths.append(length)
                stream.seek(length + _FOOTER_BYTES, os.SEEK_CUR)
                place = following
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", subject=shown(path)) from error
    return np.frombuffer(offsets, np.int64), np.frombuffer(lengths, np.int64)
