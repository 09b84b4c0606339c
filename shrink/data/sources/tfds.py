"""Data sets that TensorFlow Datasets has prepared on this machine; nothing is downloaded.

Records are read by number, from TFRecord files by their position, from ArrayRecord files by their
own index, and only the features that are asked for are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shrink.base.distribution import extra_hint
from shrink.base.errors import DataError, ResourceError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import PARTS
from shrink.data.prepared import prepared_folder
from shrink.data.shards import Manifest
from shrink.data.sources.examples_proto import Parser
from shrink.data.sources.label_scan import labels_by_number, scanned_labels
from shrink.data.sources.tfds_features import FeatureParser
from shrink.data.sources.tfrecord import TFRecords, divided


class ArrayRecords:
    """The records of ArrayRecord files.

    Args:
        paths: of the files.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        self.paths = tuple(paths)
        counts = [len(ArrayRecordDataSource([path])) for path in paths]
        self.file = np.repeat(np.arange(len(paths), dtype=np.int32), counts)
        self._source = ArrayRecordDataSource(list(paths))

    def __len__(self) -> int:
        return len(self.file)

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

    def labels(self, parser: Parser) -> Iterator[np.ndarray]:
        """Return the labels of all records in order, int64, in batches."""
        return labels_by_number(self, parser)


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
    parts = _parts(folder, builder)
    labels = {
        part: scanned_labels(records, parser, f"tfds {part}") if parser.label is not None else None
        for part, records in parts.items()
    }
    names = parser.class_names
    manifest = Manifest({}, inputs, targets, names, len(names) or None)
    return divided(folder, parts, labels, parser, manifest, config, seed)


def _builder(folder: Path) -> Any:
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
    folder: Path, supervised: Any, config: DataConfig
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


def _parts(folder: Path, builder: Any) -> dict[str, TFRecords | ArrayRecords]:
    splits = {part: builder.info.splits[part] for part in PARTS if part in builder.info.splits}
    if "train" not in splits:
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
    kind: Any = TFRecords if form == "tfrecord" else ArrayRecords
    return {
        part: kind([str(file) for file in split.filepaths])
        for part, split in splits.items()
        if split.num_examples
    }
