"""The labels of all records: one pass over the files, which also checks every checksum."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import tensorflow as tf

from shrink.base import files
from shrink.base.cache import entry_path, key_of
from shrink.base.errors import DataError, ResourceError
from shrink.base.versions import versions
from shrink.data.decoding import reason
from shrink.data.examples import reading_batch
from shrink.data.sources.examples_proto import Parser

_BUFFER_BYTES = 1 << 20
_HINT = "correct data.features, or write the file again"


class Labelled(Protocol):
    """Records whose labels can be gone through."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the files that they are in."""

    def __len__(self) -> int: ...

    def labels(self, parser: Parser) -> Iterable[np.ndarray]:
        """Yield the labels of all of them in order, int64, in batches."""


class Numbered(Protocol):
    """Records that are read by their numbers."""

    def __len__(self) -> int: ...

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Return the bytes of some, an object array (n,)."""


def labels_by_number(records: Numbered, parser: Parser) -> Iterator[np.ndarray]:
    """Yield the labels of all records in order, int64, in batches."""
    batch = reading_batch(parser.input_spec, parser.target_spec)
    for start in range(0, len(records), batch):
        numbers = np.arange(start, min(start + batch, len(records)))
        with tf.device("CPU:0"):
            yield parser.parse_labels(tf.constant(records.read(numbers))).numpy()


def scanned_labels(records: Labelled, parser: Parser, part: str) -> np.ndarray:
    """Return the label of each record, int64 (n,), from the cache folder after the first time.

    Raises:
        DataError: a record is damaged, or has no such label, or a negative one.
    """
    memory = entry_path("labels", _key(records, parser, part), ".bin")
    if memory.is_file() and memory.stat().st_size == 8 * len(records):
        return np.fromfile(memory, np.int64)
    try:
        labels = np.concatenate([np.zeros(0, np.int64), *records.labels(parser)])
    except tf.errors.OpError as error:
        raise DataError(
            f"cannot be read: {reason(error)}", subject=records.paths[0], hint=_HINT
        ) from error
    if len(labels) != len(records) or labels.min() < 0:
        wrong = "a negative label" if len(labels) == len(records) else "fewer labels than records"
        raise DataError(wrong, subject=records.paths[0], hint="labels are whole numbers from 0")
    with contextlib.suppress(OSError, ResourceError):  # a memory not written costs time only
        files.write_bytes(memory, labels.tobytes())
    return labels


def labels_of_file(path: str, parser: Parser) -> Iterator[np.ndarray]:
    """Yield the labels of a TFRecord file in order, int64, in batches.

    Raises:
        DataError: a checksum is wrong, or a record has no such label.
    """
    batch = reading_batch(parser.input_spec, parser.target_spec)
    with tf.device("CPU:0"):
        records = tf.data.TFRecordDataset(path, buffer_size=_BUFFER_BYTES).batch(batch)
        try:
            yield from records.map(parser.parse_labels).as_numpy_iterator()
        except tf.errors.OpError as error:
            raise DataError(f"cannot be read: {reason(error)}", subject=path, hint=_HINT) from error


def _key(records: Labelled, parser: Parser, part: str) -> str:
    described = [str(parser.label), repr(parser.label_feature), part, json.dumps(versions())]
    for path in records.paths:
        status = Path(path).stat()
        times = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
        described.append(f"{path} {status.st_size} {times}")
    return key_of(*described)
