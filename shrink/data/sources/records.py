"""Examples in records that are read by number: their features, labels and splits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import tensorflow as tf

from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError
from shrink.base.packages import versions
from shrink.base.types import Specs
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import reason
from shrink.data.examples import (
    SPLIT_NAMES,
    Batch,
    DecodedExamples,
    reading_batch,
    single,
)
from shrink.data.folders import ALL
from shrink.data.shards import Manifest
from shrink.data.splits import derived_splits

FEATURES_HINT = "correct data.features, or write the file again"


class NamedFeatures:
    """What is fed to a model from features as they are stored.

    Inputs are fed as stored, except that float64 becomes float32 and bool becomes uint8. An
    integer scalar target is int64; all others are float32, and scalars get the shape (1,).

    Args:
        inputs: names of the features that are inputs.
        targets: the same of targets; none for an autoencoder.
        stored: one example's spec of each of them, as stored.
    """

    def __init__(
        self,
        inputs: tuple[str, ...],
        targets: tuple[str, ...],
        stored: Mapping[str, tf.TensorSpec],
    ) -> None:
        self.inputs = {name: _input_spec(stored[name]) for name in inputs}
        self.targets = {name: _target_spec(stored[name]) for name in targets}

    @property
    def label(self) -> str | None:
        """The name of the only target where it holds integer labels, else None."""
        targets = list(self.targets.items())
        return targets[0][0] if len(targets) == 1 and targets[0][1].dtype == tf.int64 else None

    @property
    def input_spec(self) -> Specs:
        """One example's input."""
        return single(tuple(self.inputs.values()))

    @property
    def target_spec(self) -> Specs:
        """One example's target."""
        return single(tuple(self.targets.values()) or (tf.TensorSpec((0,), tf.float32),))

    def batch(
        self, x: Mapping[str, tf.Tensor], y: Mapping[str, tf.Tensor], size: tf.Tensor
    ) -> Batch:
        """Return `(x, y)` as a model takes them, of `size` examples."""
        none = tf.zeros((size, 0), tf.float32)
        targets = tuple(y[name] for name in self.targets) or (none,)
        return single(tuple(x[name] for name in self.inputs)), single(targets)


def _input_spec(stored: tf.TensorSpec) -> tf.TensorSpec:
    fed = {tf.float64: tf.float32, tf.bool: tf.uint8}.get(stored.dtype, stored.dtype)
    return tf.TensorSpec(stored.shape, fed)


def _target_spec(stored: tf.TensorSpec) -> tf.TensorSpec:
    if stored.shape.rank == 0 and stored.dtype.is_integer:
        return tf.TensorSpec((), tf.int64)
    return tf.TensorSpec(stored.shape if stored.shape.rank else (1,), tf.float32)


class Parser(Protocol):
    """From serialized examples to inputs and targets."""

    @property
    def label(self) -> str | None:
        """The name of the only target where it holds integer labels, else None."""

    @property
    def label_feature(self) -> str:
        """How that label is stored, as text; it decides what is read from a record."""

    @property
    def input_spec(self) -> Specs:
        """One example's input."""

    @property
    def target_spec(self) -> Specs:
        """One example's target."""

    def parse(self, records: tf.Tensor) -> Batch:
        """Return `(x, y)` of serialized examples (n,); can be traced."""

    def parse_labels(self, records: tf.Tensor) -> tf.Tensor:
        """Return the labels of serialized examples (n,), int64, and parse nothing else."""


class Records(Protocol):
    """Serialized examples by number."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the files that they are in."""

    @property
    def file(self) -> np.ndarray:
        """Which file holds each of them, int32 (n,), ascending."""

    def __len__(self) -> int: ...

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Return the bytes of some, an object array (n,)."""


class RecordExamples(DecodedExamples):
    """Records as examples; each is read and parsed when it is asked for.

    Args:
        index: where they lie.
        numbers: int64 (n,), which records these examples are.
        parser: from records to arrays.
        labels: int64 (n,), or None for real targets.
    """

    def __init__(
        self,
        index: Records,
        numbers: np.ndarray,
        parser: Parser,
        labels: np.ndarray | None,
    ) -> None:
        super().__init__(labels, parser.input_spec, parser.target_spec)
        self._index = index
        self._numbers = numbers
        self._parser = parser

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def identified_by(self) -> str:
        """What `contents` tells an example by."""
        return "record"

    def contents(self, indices: np.ndarray) -> list[bytes]:
        """Return the bytes of each record."""
        return list(self._read(indices))

    def load(self, indices: tf.Tensor) -> Batch:
        """Return a batch as tensors: records are read by position, parsed together."""
        records = tf.numpy_function(self._read, [indices], tf.string)
        return self._parser.parse(tf.ensure_shape(records, (indices.shape[0],)))

    def _read(self, indices: np.ndarray) -> np.ndarray:
        return self._index.read(self._numbers[indices])

    def why_unreadable(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these records that cannot be parsed, or None."""
        for index in indices:
            number = self._numbers[index]
            path = self._index.paths[int(self._index.file[number])]
            first = int(np.argmax(self._index.file == self._index.file[number]))
            try:
                with tf.device("CPU:0"):
                    self._parser.parse(tf.constant(self._read(np.array([index]))))
            except tf.errors.OpError as error:
                return DataError(
                    f"record {number - first} cannot be read: {reason(error)}",
                    subject=path,
                    hint=FEATURES_HINT,
                )
        return None


def divided(
    path: Path,
    splits: Mapping[str, Records],
    labels: Mapping[str, np.ndarray | None],
    parser: Parser,
    manifest: Manifest,
    config: DataConfig,
    seed: int,
) -> Dataset:
    """Return splits of records as a data set; those not given come from the training one.

    Args:
        path: for messages.
        splits: records by split, or of the split `all`.
        labels: int64 (n,) by split, or None for real targets.
        parser: from records to arrays.
        manifest: names of classes.
        config: the `data` section.
        seed: decides splits that are not given.

    Raises:
        DataError: too few examples.
    """
    main = ALL if ALL in splits else "train"
    derived = derived_splits(labels[main], len(splits[main]), seed, config, splits, path)

    def examples(split: str) -> RecordExamples:
        is_given = split in splits and split != "train"
        source = split if is_given else main
        numbers = np.arange(len(splits[split])) if is_given else derived[split]
        known = labels[source]
        return RecordExamples(
            splits[source], numbers, parser, None if known is None else known[numbers]
        )

    train, validation, test = (examples(split) for split in SPLIT_NAMES)
    classes = manifest.num_classes
    all_known = [known for known in labels.values() if known is not None]
    if classes is None and all_known:
        classes = 1 + max(int(known.max()) for known in all_known)
    names = manifest.class_names or tuple(map(str, range(classes or 0)))
    own = frozenset(splits) - {ALL, "train"}
    return Dataset(
        train,
        validation,
        test,
        names,
        classes,
        input_names=manifest.inputs,
        target_names=manifest.targets,
        given=own,
    )


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


def scanned_labels(records: Labelled, parser: Parser, split: str) -> np.ndarray:
    """Return the label of each record, int64 (n,), from the cache folder after the first time.

    Raises:
        DataError: a record is damaged, or has no such label, or a negative one.
    """
    memory = entry_path("labels", _key(records, parser, split), ".bin")
    if memory.is_file() and memory.stat().st_size == 8 * len(records):
        return np.fromfile(memory, np.int64)
    try:
        labels = np.concatenate([np.zeros(0, np.int64), *records.labels(parser)])
    except tf.errors.OpError as error:
        raise DataError(
            f"cannot be read: {reason(error)}", subject=records.paths[0], hint=FEATURES_HINT
        ) from error
    if len(labels) != len(records) or labels.min() < 0:
        wrong = "a negative label" if len(labels) == len(records) else "fewer labels than records"
        raise DataError(wrong, subject=records.paths[0], hint="labels are whole numbers from 0")
    keep(memory, labels.tobytes())
    return labels


def _key(records: Labelled, parser: Parser, split: str) -> str:
    described = [str(parser.label), repr(parser.label_feature), split, json.dumps(versions())]
    for path in records.paths:
        status = Path(path).stat()
        times = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
        described.append(f"{path} {status.st_size} {times}")
    return key_of(*described)
