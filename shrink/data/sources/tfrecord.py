"""Sharded TFRecord files of `tf.train.Example`s, read by number; compressed ones unpacked once."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import reason
from shrink.data.examples import PARTS, first_problem
from shrink.data.fingerprint import shard_hashes
from shrink.data.records import index_records, uncompressed
from shrink.data.shards import ALL, Manifest, described, find_shards
from shrink.data.sources.examples_proto import ExampleParser, Parser
from shrink.data.sources.label_scan import labels_of_file, scanned_labels
from shrink.data.splits import derived_parts


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


class TFRecords:
    """The records of TFRecord files.

    Args:
        paths: of the files, uncompressed.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._index = index_records(paths)
        self.paths = self._index.paths
        self.file = self._index.file
        self.read = self._index.read

    def __len__(self) -> int:
        return len(self._index)

    def labels(self, parser: Parser) -> Iterator[np.ndarray]:
        """Yield the labels of all records in order, int64, in batches; checks every checksum."""
        for path in self.paths:
            yield from labels_of_file(path, parser)


class RecordExamples:
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
        self._index = index
        self._numbers = numbers
        self._parser = parser
        self.labels = labels

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def input_spec(self) -> Any:
        """One example's input."""
        return self._parser.input_spec

    @property
    def target_spec(self) -> Any:
        """One example's target."""
        return self._parser.target_spec

    @property
    def told_by(self) -> str:
        """What `contents` tells an example by."""
        return "record"

    def contents(self, indices: np.ndarray) -> list[bytes]:
        """Return the bytes of each record."""
        return list(self._read(indices))

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch as tensors: records are read by position, parsed together."""
        records = tf.numpy_function(self._read, [indices], tf.string)
        return self._parser.parse(tf.ensure_shape(records, (indices.shape[0],)))

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch as arrays.

        Raises:
            DataError: a record is damaged, or has other features.
        """
        try:
            batch = self._load_compiled(tf.constant(np.asarray(indices, np.int64)))
        except tf.errors.OpError as error:
            found = self._explain_each(np.asarray(indices))
            if found is None:
                raise
            raise found from error
        x, y = tf.nest.map_structure(lambda tensor: tensor.numpy(), batch)
        return x, y

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these records that cannot be used, or None."""
        return first_problem(self, indices)

    def _read(self, indices: np.ndarray) -> np.ndarray:
        return self._index.read(self._numbers[indices])

    def _explain_each(self, indices: np.ndarray) -> DataError | None:
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
                    hint="correct data.features, or write the file again",
                )
        return None

    @functools.cached_property
    def _load_compiled(self) -> tf.types.experimental.GenericFunction:
        def load(indices: tf.Tensor) -> tuple[Any, Any]:
            with tf.device("CPU:0"):
                return self.load(indices)

        return tf.function(load, input_signature=[tf.TensorSpec([None], tf.int64)])


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the TFRecord files of `config.path`.

    Features come from `config.features`, or from the manifest of a packed data set. Int64
    scalars as the only target are labels.

    Raises:
        DataError: missing or damaged files, features that are not declared.
    """
    path = Path(config.path or "").expanduser().absolute()
    manifest = described(path, config)
    parser = ExampleParser(manifest, with_targets=config.target == "label")
    digests = functools.cache(lambda: shard_hashes(config))
    parts = {
        part: TFRecords([uncompressed(file, digests) for file in files])
        for part, files in find_shards(path).items()
    }
    for part, index in parts.items():
        if not len(index):
            raise DataError(f"no records in the part {part}", subject=path, hint="remove the files")
    labels = {
        part: scanned_labels(index, parser, part) if parser.label is not None else None
        for part, index in parts.items()
    }
    return divided(path, parts, labels, parser, manifest, config, seed)


def divided(
    path: Path,
    parts: Mapping[str, Records],
    labels: Mapping[str, np.ndarray | None],
    parser: Parser,
    manifest: Manifest,
    config: DataConfig,
    seed: int,
) -> Dataset:
    """Return parts of records as a data set; those not given come from the training one.

    Args:
        path: for messages.
        parts: records by part, or of the part `all`.
        labels: int64 (n,) by part, or None for real targets.
        parser: from records to arrays.
        manifest: names of classes.
        config: the `data` section.
        seed: decides splits that are not given.

    Raises:
        DataError: too few examples.
    """
    main = ALL if ALL in parts else "train"
    derived = derived_parts(labels[main], len(parts[main]), seed, config, parts, path)

    def examples(part: str) -> RecordExamples:
        given = part in parts and part != "train"
        source = part if given else main
        numbers = np.arange(len(parts[part])) if given else derived[part]
        known = labels[source]
        return RecordExamples(
            parts[source], numbers, parser, None if known is None else known[numbers]
        )

    train, validation, test = (examples(part) for part in PARTS)
    classes = manifest.num_classes
    found = [known for known in labels.values() if known is not None]
    if classes is None and found:
        classes = 1 + max(int(known.max()) for known in found)
    names = manifest.class_names or tuple(map(str, range(classes or 0)))
    own = frozenset(parts) - {ALL, "train"}
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
