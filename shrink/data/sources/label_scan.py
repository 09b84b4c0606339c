"""The labels of all records: one pass over the files, which also checks every checksum."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.data.records import RecordIndex
from shrink.data.sources.examples_proto import ExampleParser
from shrink.data.sources.op_errors import reason
from shrink.errors import DataError, ResourceError
from shrink.run import files
from shrink.run.paths import cache_root

_BATCH = 512
_BUFFER_BYTES = 1 << 20


def scanned_labels(index: RecordIndex, parser: ExampleParser) -> np.ndarray:
    """Return the label of each record, int64 (n,), from the cache folder after the first time.

    Raises:
        DataError: a checksum is wrong, or a record has no such label, or a negative one.
    """
    memory = cache_root() / "labels" / f"{_key(index, parser)}.bin"
    if memory.is_file() and memory.stat().st_size == 8 * len(index):
        return np.fromfile(memory, np.int64)
    labels = np.concatenate([_labels_of(path, parser) for path in index.paths])
    if len(labels) != len(index) or labels.min() < 0:
        wrong = "a negative label" if len(labels) == len(index) else "fewer labels than records"
        raise DataError(wrong, subject=index.paths[0], hint="labels are whole numbers from 0")
    with contextlib.suppress(OSError, ResourceError):  # a memory not written costs time only
        files.write_bytes(memory, labels.tobytes())
    return labels


def _labels_of(path: str, parser: ExampleParser) -> np.ndarray:
    with tf.device("CPU:0"):
        records = tf.data.TFRecordDataset(path, buffer_size=_BUFFER_BYTES).batch(_BATCH)
        try:
            found = list(records.map(parser.parse_labels).as_numpy_iterator())
        except tf.errors.OpError as error:
            raise DataError(
                f"cannot be read: {reason(error)}",
                subject=path,
                hint="correct data.features, or write the file again",
            ) from error
    return np.concatenate([np.zeros(0, np.int64), *found])


def _key(index: RecordIndex, parser: ExampleParser) -> str:
    described = [str(parser.label)]
    for path in index.paths:
        status = Path(path).stat()
        described.append(f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}")
    return hashlib.sha256("\0".join(described).encode("utf-8", "surrogateescape")).hexdigest()
