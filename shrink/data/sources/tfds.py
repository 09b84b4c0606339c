"""Prepared TensorFlow Datasets, whose named features are decoded once, into the cache folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from shrink.base.cache import key_of
from shrink.base.errors import DataError, ResourceError, did_you_mean
from shrink.base.packages import extra_hint, versions
from shrink.data.cache import Example, spooled
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import reason
from shrink.data.examples import SPLIT_NAMES
from shrink.data.fingerprint import fingerprint
from shrink.data.shards import prepared_folder
from shrink.data.sources.columns import open_spooled
from shrink.data.sources.masks import resized_mask

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_UNREADABLE = (tf.errors.OpError, RuntimeError, ValueError, OSError)


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the prepared data set at `config.path`.

    Its splits train, validation and test are used; a split that is not there is taken from train.
    Inputs and targets are those that the data set supervises by, or as the recipe names them.

    Raises:
        DataError: nothing is prepared there, or features that cannot be trained on.
        ResourceError: the package tensorflow-datasets is missing, or the disk is full.
    """
    folder = prepared_folder(Path(config.path or "").expanduser().absolute())
    builder = _builder(folder)
    inputs, targets = _names(folder, builder.info.supervised_keys, config)
    names, size = tuple(dict.fromkeys((*inputs, *targets))), config.image_size
    for name in names:
        _check_feature(folder, builder.info.features, name, size)
    splits = [
        split
        for split in SPLIT_NAMES
        if split in builder.info.splits and builder.info.splits[split].num_examples
    ]
    if not splits:
        raise DataError(
            f"no split train, validation or test; its splits: {', '.join(builder.info.splits)}",
            subject=folder,
            hint="read it with source: python",
        )
    key = key_of(fingerprint(config), json.dumps(versions()), str(size), *names)
    with tf.device("CPU:0"):  # here the examples are read: accelerators are for training
        spools = spooled(
            lambda: key,
            lambda: {
                split: _examples(folder, builder, split, inputs, names, size) for split in splits
            },
            names,
        )
    section = config.model_copy(update={"inputs": inputs, "targets": targets or None})
    dataset = open_spooled(folder, spools, section, seed)
    words = tuple(getattr(builder.info.features[(targets or names)[-1]], "names", None) or ())
    if not words or not dataset.num_classes:
        return dataset
    return replace(dataset, class_names=words, num_classes=len(words))


def _examples(
    folder: Path,
    builder: tfds.core.DatasetBuilder,
    split: str,
    inputs: tuple[str, ...],
    names: tuple[str, ...],
    size: tuple[int, int] | None,
) -> Iterator[Example]:
    """Yield the named features of each example of a split, in the order of the files.

    Images are resized; targets, such as masks, without interpolation.

    Raises:
        DataError: a file is missing or damaged.
    """
    images = {name for name in names if _is_image(builder.info.features[name])}
    try:
        for example in _stored(builder, split, names):
            arrays = {name: np.asarray(example[name]) for name in names}
            if size is not None:
                for name in images:
                    resize = _resized if name in inputs else resized_mask
                    arrays[name] = resize(arrays[name], *size)
            yield list(arrays.values())
    except _UNREADABLE as error:
        raise DataError(
            f"the split {split} cannot be read: "
            f"{reason(error) if isinstance(error, tf.errors.OpError) else error}",
            subject=folder,
            hint="prepare the data set again",
        ) from error


def _stored(
    builder: tfds.core.DatasetBuilder, split: str, names: tuple[str, ...]
) -> Iterator[Mapping[str, object]]:
    import tensorflow_datasets as tfds

    if builder.info.file_format.value == "array_record":
        return iter(builder.as_data_source(split))
    decoders = tfds.decode.PartialDecoding(dict.fromkeys(names, True))
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    data = builder.as_dataset(split, decoders=decoders, read_config=in_order)
    return data.as_numpy_iterator()


def _resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    resized = tf.image.resize(image, (height, width), method="bilinear", antialias=True).numpy()
    return np.asarray(resized if image.dtype.kind == "f" else np.round(resized), image.dtype)


def _is_image(feature: tfds.features.FeatureConnector) -> bool:
    import tensorflow_datasets as tfds

    return isinstance(feature, tfds.features.Image)


def _check_feature(
    folder: Path,
    features: tfds.features.FeaturesDict,
    name: str,
    size: tuple[int, int] | None,
) -> None:
    """Raise `DataError` for a feature that is missing, no array, or not of one shape."""
    if name not in features:
        near = did_you_mean(name, list(features))
        raise DataError(
            f"no feature {name}; there are {', '.join(features)}",
            subject=folder,
            hint=f"did you mean {near}?" if near else "correct data.inputs and data.targets",
        )
    info = features[name].get_tensor_info()
    shape = getattr(info, "shape", None)
    if shape is None or info.tf_dtype == tf.string:
        raise DataError(
            f"{name} holds no array of numbers", subject=folder, hint="name another feature"
        )
    if None in shape and (size is None or not _is_image(features[name])):
        raise DataError(
            f"the shape of {name} differs between examples: {shape}",
            subject=folder,
            hint="set data.image_size: [height, width], or read it with source: python",
        )


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
