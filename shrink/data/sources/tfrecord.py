"""Sharded TFRecord files of `tf.train.Example`s, read by number; compressed ones unpacked once.

A record is its length (uint64, little-endian), a checksum of that, the bytes, a checksum of those
(https://www.tensorflow.org/tutorials/load_data/tfrecord).
"""

from __future__ import annotations

import functools
import gzip
import os
import shutil
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.base import files
from shrink.base.cache import entry_path
from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import reason
from shrink.data.examples import reading_batch
from shrink.data.folders import shown
from shrink.data.shards import find_shards
from shrink.data.source_types import Tfrecord
from shrink.data.sources.records import FEATURES_HINT, ExampleParser, Records, open_records

_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_BUFFER_BYTES = 1 << 20
_HINT = "the file is cut short or damaged, or no TFRecord file; write it again"


class TFRecords(Records):
    """The records of TFRecord files, whose places are known from their headers alone.

    Args:
        paths: of the files, uncompressed.

    Raises:
        DataError: a file cannot be read, or its records do not fill it exactly.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        extents = [_walk(path) for path in paths]
        counts = [len(offsets) for offsets, _ in extents]
        super().__init__(tuple(paths), np.repeat(np.arange(len(paths), dtype=np.int32), counts))
        self._offset = np.concatenate([offsets for offsets, _ in extents])
        self._length = np.concatenate([lengths for _, lengths in extents])

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Return the bytes of some records, an object array (n,).

        Raises:
            DataError: a file cannot be read, or has become shorter.
        """
        contents = np.empty(len(numbers), object)
        order = np.argsort(self.file[numbers], kind="stable")
        descriptor, opened = -1, -1
        try:
            for index in order:
                number = numbers[index]
                if (file := int(self.file[number])) != opened:
                    if descriptor >= 0:
                        os.close(descriptor)
                    descriptor, opened = os.open(self.paths[file], os.O_RDONLY), file
                length = int(self._length[number])
                content = os.pread(descriptor, length, int(self._offset[number]))
                if len(content) < length:
                    raise DataError("a record is cut short", subject=self.paths[file], hint=_HINT)
                contents[index] = content
        except OSError as error:
            raise DataError(
                f"cannot be read: {error.strerror}", subject=self.paths[int(self.file[number])]
            ) from error
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return contents

    def labels(self, parser: ExampleParser) -> Iterator[np.ndarray]:
        """Yield the labels of all records in order, int64, in batches; checks every checksum.

        Raises:
            DataError: a checksum is wrong, or a record has no such label.
        """
        batch = reading_batch(*parser.inputs.values())
        parse = functools.partial(parser.parse, name=str(parser.label))
        for path in self.paths:
            with tf.device("CPU:0"):
                records = tf.data.TFRecordDataset(path, buffer_size=_BUFFER_BYTES).batch(batch)
                try:
                    yield from records.map(parse).as_numpy_iterator()
                except tf.errors.OpError as error:
                    raise DataError(
                        f"cannot be read: {reason(error)}", subject=path, hint=FEATURES_HINT
                    ) from error


def uncompressed(path: Path, digests: Callable[[], Mapping[str, str]]) -> str:
    """Return the path of a file's content without compression: its own, or one in the cache.

    Compressed files can only be read from the front, so they are unpacked once.

    Args:
        path: a TFRecord file, maybe compressed by gzip.
        digests: returns the hash of its content by path; called only where it is compressed.

    Raises:
        DataError: damaged.
        ResourceError: the disk is full.
    """
    with path.open("rb") as stream:
        if stream.read(3) != b"\x1f\x8b\x08":
            return str(path)
    target = entry_path("records", digests()[str(path)], ".tfrecord")
    if not target.is_file():
        with files.replacing(target) as temporary, temporary.open("wb") as out:
            try:
                with gzip.open(path) as stream:
                    shutil.copyfileobj(stream, out)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(f"damaged: {error}", subject=shown(path), hint=_HINT) from error
    return str(target)


def _walk(path: str) -> tuple[np.ndarray, np.ndarray]:
    offsets, lengths = array("q"), array("q")
    try:
        with Path(path).open("rb") as stream:
            end = os.fstat(stream.fileno()).st_size
            position = 0
            while position < end:
                length = int.from_bytes(stream.read(_HEADER_BYTES)[:8], "little")
                following = position + _HEADER_BYTES + length + _FOOTER_BYTES
                if following > end:
                    raise DataError(
                        f"record {len(offsets)} claims {length:,} bytes, and {end - position:,} "
                        "are left",
                        subject=shown(path),
                        hint=_HINT,
                    )
                offsets.append(position + _HEADER_BYTES)
                lengths.append(length)
                stream.seek(length + _FOOTER_BYTES, os.SEEK_CUR)
                position = following
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", subject=shown(path)) from error
    return np.frombuffer(offsets, np.int64), np.frombuffer(lengths, np.int64)


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the TFRecord files of `config.path`.

    Features come from `config.features`. Int64 scalars as the only target are labels.

    Raises:
        DataError: missing or damaged files, features that are not declared.
    """
    path = Path(config.path or "").expanduser().absolute()
    parser = ExampleParser(path, config)
    digests = functools.cache(lambda: Tfrecord(config.source).shards(config))
    shards = find_shards(path)
    records = TFRecords(
        [uncompressed(file, digests) for files in shards.values() for file in files]
    )
    ends = np.searchsorted(records.file, np.cumsum([0, *map(len, shards.values())]))
    splits = {split: np.arange(*ends[at : at + 2]) for at, split in enumerate(shards)}
    for split, rows in splits.items():
        if not len(rows):
            raise DataError(
                f"no records in the split {split}", subject=path, hint="remove the files"
            )
    return open_records(path, splits, records, parser, config, seed)
