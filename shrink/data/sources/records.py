"""Examples in records that are read by number: their features, labels and splits."""

from __future__ import annotations

import abc
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError
from shrink.base.packages import versions
from shrink.base.types import Spec, Specs
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, given_splits
from shrink.data.decoding import reason
from shrink.data.examples import Batch, Examples, reading_batch, single
from shrink.data.folders import ALL
from shrink.data.splits import chosen_rows

FEATURES_HINT = "correct data.features, or write the file again"


class Parser(abc.ABC):
    """From serialized examples to what is fed to a model.

    Inputs are fed as stored, except that float64 becomes float32 and bool becomes uint8. An
    integer scalar target is int64; all others are float32, and scalars get the shape (1,).

    Args:
        inputs: names of the features that are inputs.
        targets: the same of targets; none for an autoencoder.
        stored: one example's spec of each of them, as stored.

    Attributes:
        label: the name of the only target where it holds integer labels, else None.
        input_spec: one example's input.
        target_spec: one example's target.
    """

    def __init__(
        self,
        inputs: tuple[str, ...],
        targets: tuple[str, ...],
        stored: Mapping[str, Spec],
    ) -> None:
        self.inputs = {name: _input_spec(stored[name]) for name in inputs}
        self.targets = {name: _target_spec(stored[name]) for name in targets}
        are_labels = [spec.dtype == np.int64 for spec in self.targets.values()]
        self.label = targets[0] if are_labels == [True] else None
        self.input_spec: Specs = single(tuple(self.inputs.values()))
        self.target_spec: Specs = single(
            tuple(self.targets.values()) or (Spec((0,), np.dtype(np.float32)),)
        )

    @property
    @abc.abstractmethod
    def label_feature(self) -> str:
        """How the label is stored, as text; it decides what is read from a record."""

    @abc.abstractmethod
    def parse(self, records: tf.Tensor) -> Batch:
        """Return `(x, y)` of serialized examples (n,); can be traced.

        Raises:
            tf.errors.OpError: a record is no example, or has other features.
        """

    @abc.abstractmethod
    def parse_labels(self, records: tf.Tensor) -> tf.Tensor:
        """Return the labels of serialized examples (n,), int64, and parse nothing else."""

    def batch(
        self, x: Mapping[str, tf.Tensor], y: Mapping[str, tf.Tensor], size: tf.Tensor
    ) -> Batch:
        """Return `(x, y)` as a model takes them, of `size` examples."""
        none = tf.zeros((size, 0), tf.float32)
        targets = tuple(y[name] for name in self.targets) or (none,)
        return single(tuple(x[name] for name in self.inputs)), single(targets)


def _input_spec(stored: Spec) -> Spec:
    fed = {np.dtype(np.float64): np.float32, np.dtype(bool): np.uint8}
    return Spec(stored.shape, np.dtype(fed.get(stored.dtype, stored.dtype)))


def _target_spec(stored: Spec) -> Spec:
    if not stored.shape and stored.dtype.kind in "iu":
        return Spec((), np.dtype(np.int64))
    return Spec(stored.shape or (1,), np.dtype(np.float32))


class Records(abc.ABC):
    """Serialized examples by number.

    Args:
        paths: of the files that they are in.
        file: which file holds each of them, int32 (n,), ascending.
    """

    def __init__(self, paths: tuple[str, ...], file: np.ndarray) -> None:
        self.paths, self.file = paths, file

    def __len__(self) -> int:
        return len(self.file)

    @abc.abstractmethod
    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Return the bytes of some, an object array (n,).

        Raises:
            DataError: a file is damaged, or cannot be read.
        """

    def labels(self, parser: Parser) -> Iterator[np.ndarray]:
        """Yield the labels of all of them in order, int64, in batches."""
        batch = reading_batch(parser.input_spec, parser.target_spec)
        for start in range(0, len(self), batch):
            numbers = np.arange(start, min(start + batch, len(self)))
            with tf.device("CPU:0"):
                yield parser.parse_labels(tf.constant(self.read(numbers))).numpy()


class RecordExamples(Examples):
    """Records as examples; each is read and parsed when it is asked for.

    Args:
        records: the records.
        numbers: int64 (n,), which of them these examples are.
        parser: from records to arrays.
        labels: int64 (n,), or None for real targets.
    """

    identified_by = "record"

    def __init__(
        self, records: Records, numbers: np.ndarray, parser: Parser, labels: np.ndarray | None
    ) -> None:
        self.labels, self.input_spec = labels, parser.input_spec
        self.target_spec = parser.target_spec
        self._records, self._numbers, self._parser = records, numbers, parser

    def __len__(self) -> int:
        return len(self._numbers)

    def contents(self, indices: np.ndarray) -> list[bytes]:
        """Return the bytes of each record."""
        return list(self._read(indices))

    def load(self, indices: tf.Tensor) -> Batch:
        """Return a batch as tensors: records are read by position, parsed together."""
        records = tf.numpy_function(self._read, [indices], tf.string)
        return self._parser.parse(tf.ensure_shape(records, (indices.shape[0],)))

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return a batch as arrays.

        Raises:
            DataError: a record cannot be read or parsed.
        """
        try:
            batch = self._load_compiled(tf.constant(np.asarray(indices, np.int64)))
        except tf.errors.OpError:
            for index in indices:
                self._check(int(index))
            raise
        x, y = tf.nest.map_structure(lambda tensor: tensor.numpy(), batch)
        return x, y

    @functools.cached_property
    def _load_compiled(self) -> tf.types.experimental.GenericFunction:
        # One op at a time, without a graph, parsing takes five times as long.
        def load(indices: tf.Tensor) -> Batch:
            with tf.device("CPU:0"):
                return self.load(indices)

        return tf.function(load, input_signature=[tf.TensorSpec([None], tf.int64)])

    def _read(self, indices: np.ndarray) -> np.ndarray:
        return self._records.read(self._numbers[indices])

    def _check(self, index: int) -> None:
        """Raise `DataError` where a record cannot be parsed."""
        number = self._numbers[index]
        file = self._records.file
        try:
            with tf.device("CPU:0"):
                self._parser.parse(tf.constant(self._read(np.array([index]))))
        except tf.errors.OpError as error:
            first = int(np.argmax(file == file[number]))
            raise DataError(
                f"record {number - first} cannot be read: {reason(error)}",
                subject=self._records.paths[int(file[number])],
                hint=FEATURES_HINT,
            ) from error


def divided(
    path: Path,
    splits: Mapping[str, Records],
    parser: Parser,
    config: DataConfig,
    seed: int,
    class_names: tuple[str, ...] = (),
) -> Dataset:
    """Return splits of records as a data set; those not given come from the training one.

    Args:
        path: for messages.
        splits: records by split, or of the split `all`.
        parser: from records to arrays.
        config: the `data` section.
        seed: decides splits that are not given.
        class_names: of the labels, where the source knows them.

    Raises:
        DataError: too few examples, or labels that cannot be read.
    """
    labels = {
        split: None if parser.label is None else scanned_labels(records, parser, split)
        for split, records in splits.items()
    }
    counts = {split: np.arange(len(records)) for split, records in splits.items()}
    rows = chosen_rows(counts, labels.get(ALL, labels.get("train")), seed, config, path)
    examples = {}
    for split, (given, numbers) in rows.items():
        known = labels[given]
        own = None if known is None else known[numbers]
        examples[split] = RecordExamples(splits[given], numbers, parser, own)
    highest = [int(known.max()) for known in labels.values() if known is not None]
    classes = len(class_names) or (max(highest) + 1 if highest else None)
    return Dataset(
        examples["train"],
        examples["validation"],
        examples["test"],
        class_names or tuple(map(str, range(classes or 0))),
        classes,
        input_names=tuple(parser.inputs),
        target_names=tuple(parser.targets),
        given=given_splits(rows),
    )


def scanned_labels(records: Records, parser: Parser, split: str) -> np.ndarray:
    """Return the label of each record, int64 (n,), from the cache folder after the first time.

    Raises:
        DataError: a record is damaged, or has no such label, or a negative one.
    """
    described = [str(parser.label), parser.label_feature, split, json.dumps(versions())]
    for path in records.paths:
        status = Path(path).stat()
        times = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
        described.append(f"{path} {status.st_size} {times}")
    memory = entry_path("labels", key_of(*described), ".bin")
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
