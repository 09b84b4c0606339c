"""Examples in records that are read by number: their features, labels and splits."""

from __future__ import annotations

import abc
import functools
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError
from shrink.base.packages import versions
from shrink.base.types import Spec
from shrink.data.arrays import LABEL_LIMIT, LazyRows, are_labels, number_names
from shrink.data.config import DataConfig, FeatureConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import decoded, reason
from shrink.data.examples import reading_batch, single
from shrink.data.fingerprint import fingerprint
from shrink.data.shards import described
from shrink.data.source_table import SourceTable

_PARALLEL_DECODES = 8
FEATURES_HINT = "correct data.features, or write the file again"


class ExampleParser:
    """From serialized `tf.train.Example`s to what is fed to a model.

    Inputs are fed as stored, except that float64 becomes float32. An integer scalar target is
    int64; all others are float32, and scalars get the shape (1,).

    Args:
        path: of the records, for messages.
        config: the `data` section, which declares the features.

    Attributes:
        inputs: one example's spec of each input.
        targets: the same of targets; none for an autoencoder.
        label: the name of the only target where it holds integer labels, else None.
        label_feature: how the label is stored, as text; it decides what is read from a record.

    Raises:
        DataError: no feature is declared, or an input or target is not among them.
    """

    def __init__(self, path: Path, config: DataConfig) -> None:
        features, inputs, targets = described(path, config)
        targets = targets if config.target == "label" else ()
        self._features = {name: features[name] for name in (*inputs, *targets)}
        self._spec = {name: _parsed_as(feature) for name, feature in self._features.items()}
        self.inputs = {name: _input_spec(features[name]) for name in inputs}
        self.targets = {name: _target_spec(features[name]) for name in targets}
        are_labels = [spec.dtype == np.int64 for spec in self.targets.values()]
        self.label = targets[0] if are_labels == [True] else None
        self.label_feature = repr(self._features.get(str(self.label)))
        self._traced = {name: self._trace(name) for name in self._features}

    def _trace(self, name: str) -> tf.types.experimental.GenericFunction:
        """Return `parse` in a graph, on the CPU: one op at a time it takes five times as long."""

        def parse(records: tf.Tensor) -> tf.Tensor:
            with tf.device("CPU:0"):
                return self.parse(records, name)

        return tf.function(parse, input_signature=[tf.TensorSpec([None], tf.string)])

    def parse(self, records: tf.Tensor, name: str) -> tf.Tensor:
        """Return a feature of serialized examples (n,), (n, ...); can be traced.

        Raises:
            tf.errors.OpError: a record is no example, or has no such feature.
        """
        parsed = tf.io.parse_example(records, {name: self._spec[name]})
        return self._value(name, parsed[name], (self.inputs | self.targets)[name])

    def rows(self, records: Records, name: str) -> LazyRows:
        """Return a feature of all records, read and parsed when it is asked for.

        Raises:
            DataError: when rows are read: a record cannot be read or parsed.
        """
        spec = (self.inputs | self.targets)[name]

        def read(numbers: np.ndarray) -> np.ndarray:
            contents = records.read(numbers)
            try:
                return np.asarray(self._traced[name](tf.constant(contents)))
            except tf.errors.OpError:
                for number, content in zip(numbers.tolist(), contents, strict=True):
                    self._check(records, number, content, name)
                raise

        return LazyRows(read, (len(records), *spec.shape), spec.dtype, is_decoded=True)

    def _check(self, records: Records, number: int, content: bytes, name: str) -> None:
        """Raise `DataError` where a record cannot be parsed."""
        try:
            with tf.device("CPU:0"):
                self.parse(tf.constant([content]), name)
        except tf.errors.OpError as error:
            file = records.file[number]
            raise DataError(
                f"record {number - int(np.argmax(records.file == file))} cannot be read: "
                f"{reason(error)}",
                subject=records.paths[int(file)],
                hint=FEATURES_HINT,
            ) from error

    def _value(self, name: str, value: tf.Tensor, spec: Spec) -> tf.Tensor:
        feature = self._features[name]
        if feature.type == "raw":
            value = tf.io.decode_raw(value, _stored_dtype(feature))
            # A reshape alone would take half an image for another batch.
            value = tf.ensure_shape(value, (None, int(np.prod(feature.shape))))
        elif feature.type == "picture":
            value = _decoded(value, feature)
        return tf.cast(tf.reshape(value, (-1, *spec.shape)), spec.dtype)


def _input_spec(feature: FeatureConfig) -> Spec:
    stored = np.dtype(_stored_dtype(feature))
    return Spec(feature.shape, np.dtype(np.float32) if stored == np.float64 else stored)


def _target_spec(feature: FeatureConfig) -> Spec:
    if not feature.shape and np.dtype(_stored_dtype(feature)).kind in "iu":
        return Spec((), np.dtype(np.int64))
    return Spec(feature.shape or (1,), np.dtype(np.float32))


def _parsed_as(feature: FeatureConfig) -> tf.io.FixedLenFeature:
    if feature.type in ("raw", "picture"):
        return tf.io.FixedLenFeature((), tf.string)
    return tf.io.FixedLenFeature(feature.shape, tf.as_dtype(feature.type))


def _stored_dtype(feature: FeatureConfig) -> str:
    if feature.type == "picture":
        return "uint8"
    return str(feature.dtype if feature.type == "raw" else feature.type)


def _decoded(contents: tf.Tensor, feature: FeatureConfig) -> tf.Tensor:
    def decode(content: bytes) -> np.ndarray:
        image = decoded(content, feature.shape[2])
        if image.shape != feature.shape:
            raise DataError(f"a picture of shape {image.shape}, not {feature.shape}")
        return image

    def decode_all(batch: np.ndarray) -> np.ndarray:
        images = np.empty((len(batch), *feature.shape), np.uint8)
        for row, image in enumerate(_threads().map(decode, batch)):
            images[row] = image
        return images

    images = tf.numpy_function(decode_all, [contents], tf.uint8)
    return tf.ensure_shape(images, (None, *feature.shape))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_PARALLEL_DECODES)


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

    def labels(self, parser: ExampleParser) -> Iterator[np.ndarray]:
        """Yield the labels of all of them in order, int64, in batches."""
        batch = reading_batch(*parser.inputs.values())
        for start in range(0, len(self), batch):
            numbers = np.arange(start, min(start + batch, len(self)))
            with tf.device("CPU:0"):
                yield parser.parse(tf.constant(self.read(numbers)), str(parser.label)).numpy()


def open_records(
    path: Path,
    splits: Mapping[str, np.ndarray],
    records: Records,
    parser: ExampleParser,
    config: DataConfig,
    seed: int,
) -> Dataset:
    """Return records as a data set; splits not given come from the training one.

    Args:
        path: for messages.
        splits: numbers of the records of each split, or of the split `all`.
        records: of all splits.
        parser: from records to arrays.
        config: the `data` section.
        seed: decides splits that are not given.

    Raises:
        DataError: too few examples, or labels that cannot be read.
    """
    labels = () if parser.label is None else scanned_labels(records, parser, config)
    classes = int(labels.max()) + 1 if are_labels(labels) else 0
    x, y = (
        tuple(parser.rows(records, name) for name in side)
        for side in (parser.inputs, parser.targets)
    )
    none = np.zeros((len(records), 0), np.float32)
    dataset = SourceTable(
        path,
        splits,
        labels if are_labels(labels) else single(y or (none,)),
        single(x),
        number_names(classes),
        contents=lambda rows: list(records.read(rows)),
        identified_by="record",
    ).open(config, seed)
    return replace(
        dataset,
        num_classes=classes or None,
        input_names=tuple(parser.inputs),
        target_names=tuple(parser.targets),
    )


def scanned_labels(records: Records, parser: ExampleParser, config: DataConfig) -> np.ndarray:
    """Return the label of each record, int64 (n,), from the cache folder after the first time.

    Raises:
        DataError: a record is damaged, or has no such label, a negative one, or one out of range.
    """
    described = (fingerprint(config), str(parser.label), parser.label_feature)
    memory = entry_path("labels", key_of(*described, json.dumps(versions())), ".bin")
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
    if labels.max() >= LABEL_LIMIT:
        raise DataError(
            f"the label {labels.max()} is out of range",
            subject=records.paths[0],
            hint="labels are whole numbers from 0 to 2147483647",
        )
    keep(memory, labels.tobytes())
    return labels
