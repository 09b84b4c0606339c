"""Prepared TensorFlow Datasets.

Records are read by number, from TFRecord files by their position, from ArrayRecord files by their
own index, and only the features that are asked for are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError, ResourceError, did_you_mean
from shrink.base.packages import extra_hint
from shrink.base.types import Spec
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES, Batch
from shrink.data.shards import prepared_folder
from shrink.data.sources.records import Parser, Records, divided
from shrink.data.sources.tfrecord import TFRecords

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_PARALLEL_DECODES = 8


class FeatureParser(Parser):
    """Decodes some features of a batch of records, and no others.

    Args:
        folder: of the data set, for messages.
        features: TensorFlow Datasets' description of an example.
        inputs: names of the features that are inputs.
        targets: the same of targets; none for an autoencoder.
        image_size: height and width that images are resized to, None to leave them.

    Raises:
        DataError: there is no such feature, or its shape differs between examples.
    """

    def __init__(
        self,
        folder: Path,
        features: tfds.features.FeaturesDict,
        inputs: tuple[str, ...],
        targets: tuple[str, ...],
        image_size: tuple[int, int] | None,
    ) -> None:
        self._folder, self._size, self._features = folder, image_size, features
        names = (*inputs, *targets)
        super().__init__(inputs, targets, {name: self._stored_spec(name) for name in names})
        self._decoder = _only(features, names)
        self._label_decoder = _only(features, (self.label,) if self.label else names)

    @property
    def label_feature(self) -> str:
        """How the label is stored, as text."""
        return repr(self._features[self.label]) if self.label else ""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the labels, empty where they have none."""
        names = getattr(self._features[self.label], "names", None) if self.label else None
        return tuple(names or ())

    def parse(self, records: tf.Tensor) -> Batch:
        """Return `(x, y)` of serialized examples (n,); can be traced.

        Raises:
            tf.errors.OpError: a record is damaged, or has other features.
        """

        def decode(record: tf.Tensor) -> tuple[dict[str, tf.Tensor], ...]:
            values = self._decoder.deserialize_example(record)
            sized = {name: self._sized(name, values[name]) for name in self.inputs}
            return tuple(
                {name: _cast(side[name], spec) for name, spec in specs.items()}
                for side, specs in ((sized, self.inputs), (values, self.targets))
            )

        x, y = tf.map_fn(
            decode,
            records,
            fn_output_signature=tuple(
                {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in side.items()}
                for side in (self.inputs, self.targets)
            ),
            parallel_iterations=_PARALLEL_DECODES,
        )
        return self.batch(x, y, tf.shape(records)[0])

    def parse_labels(self, records: tf.Tensor) -> tf.Tensor:
        """Return the labels of serialized examples (n,), int64, and decode nothing else."""
        decoder = self._label_decoder
        return tf.map_fn(
            lambda record: tf.cast(decoder.deserialize_example(record)[self.label], tf.int64),
            records,
            fn_output_signature=tf.int64,
            parallel_iterations=_PARALLEL_DECODES,
        )

    def _stored_spec(self, name: str) -> Spec:
        if name not in self._features:
            near = did_you_mean(name, list(self._features))
            raise self._error(
                f"no feature {name}; there are {', '.join(self._features)}",
                f"did you mean {near}?" if near else "correct data.inputs and data.targets",
            )
        info = self._features[name].get_tensor_info()
        shape = getattr(info, "shape", None)
        if shape is None or info.tf_dtype == tf.string:
            raise self._error(f"{name} holds no array of numbers", "name another feature")
        if self._size is not None and _is_image(self._features[name]):
            shape = (*self._size, shape[-1])
        if None in shape:
            raise self._error(
                f"the shape of {name} differs between examples: {shape}",
                "set data.image_size: [height, width], or read it with source: python",
            )
        return Spec(tuple(shape), np.dtype(info.tf_dtype.as_numpy_dtype))

    def _sized(self, name: str, value: tf.Tensor) -> tf.Tensor:
        if self._size is None or not _is_image(self._features[name]):
            return value
        resized = tf.image.resize(value, self._size, method="bilinear", antialias=True)
        return resized if value.dtype.is_floating else tf.round(resized)

    def _error(self, message: str, hint: str) -> DataError:
        return DataError(message, subject=self._folder, hint=hint)


def _only(
    features: tfds.features.FeaturesDict, names: tuple[str, ...]
) -> tfds.features.FeaturesDict:
    import tensorflow_datasets as tfds

    return tfds.decode.PartialDecoding(dict.fromkeys(names, True)).extract_features(features)


def _is_image(feature: tfds.features.FeatureConnector) -> bool:
    import tensorflow_datasets as tfds

    return isinstance(feature, tfds.features.Image)


def _cast(value: tf.Tensor, spec: Spec) -> tf.Tensor:
    return tf.cast(tf.reshape(value, spec.shape), spec.dtype)


class ArrayRecords(Records):
    """The records of ArrayRecord files.

    Args:
        paths: of the files.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        counts = [len(ArrayRecordDataSource([path])) for path in paths]
        super().__init__(tuple(paths), np.repeat(np.arange(len(paths), dtype=np.int32), counts))
        self._source = ArrayRecordDataSource(list(paths))

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Return the bytes of some, an object array (n,).

        Raises:
            DataError: a file is damaged.
        """
        contents = np.empty(len(numbers), object)
        try:
            contents[:] = self._source.__getitems__([int(number) for number in numbers])
        except (RuntimeError, ValueError, OSError) as error:
            raise DataError(
                f"cannot be read: {error}", subject=self.paths[0], hint="prepare the data set again"
            ) from error
        return contents


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the prepared data set at `config.path`.

    Its splits train, validation and test are used; a split that is not there is taken from train.
    Inputs and targets are those that the data set supervises by, or as the recipe names them.

    Raises:
        DataError: nothing is prepared there, or features that cannot be trained on.
        ResourceError: the package tensorflow-datasets is missing.
    """
    folder = prepared_folder(Path(config.path or "").expanduser().absolute())
    builder = _builder(folder)
    inputs, targets = _names(folder, builder.info.supervised_keys, config)
    parser = FeatureParser(folder, builder.info.features, inputs, targets, config.image_size)
    splits = _splits(folder, builder)
    return divided(folder, splits, parser, config, seed, parser.class_names)


def _builder(folder: Path) -> tfds.core.DatasetBuilder:
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ResourceError(
            "source: tfds needs the package tensorflow-datasets", hint=extra_hint("tfds")
        ) from error
    try:
        return tfds.builder_from_directory(folder)
    except Exception as error:  # its readers raise nearly every builtin error for damaged files
        raise DataError(
            f"no data set that TensorFlow Datasets can read: {error}",
            subject=folder,
            hint="prepare it again",
        ) from error


def _names(
    folder: Path, supervised: object, config: DataConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of inputs and targets; no targets for an autoencoder."""
    needs_targets = config.target == "label"
    own = supervised if isinstance(supervised, tuple) and len(supervised) == 2 else (None, None)
    inputs = config.inputs or ((own[0],) if isinstance(own[0], str) else ())
    targets = config.targets or ((own[1],) if isinstance(own[1], str) else ())
    if not inputs or (needs_targets and not targets):
        raise DataError(
            "the data set does not say which features are inputs and targets",
            subject=folder,
            hint="name them, for example data.inputs: [image] and data.targets: [label]",
        )
    return inputs, (targets if needs_targets else ())


def _splits(folder: Path, builder: tfds.core.DatasetBuilder) -> dict[str, TFRecords | ArrayRecords]:
    infos = {
        split: builder.info.splits[split] for split in SPLIT_NAMES if split in builder.info.splits
    }
    if "train" not in infos:
        raise DataError(
            f"it has no split train; it has {', '.join(builder.info.splits) or 'none'}",
            subject=folder,
            hint="read it with source: python",
        )
    form = builder.info.file_format.value
    if form not in ("tfrecord", "array_record"):
        raise DataError(
            f"its files are {form}, not tfrecord or array_record",
            subject=folder,
            hint="prepare it with tfds build --file_format=tfrecord",
        )
    kind: type[TFRecords | ArrayRecords] = TFRecords if form == "tfrecord" else ArrayRecords
    return {
        split: kind([str(file) for file in info.filepaths])
        for split, info in infos.items()
        if info.num_examples
    }
