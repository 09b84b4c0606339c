"""From serialized `tf.train.Example`s to arrays, a batch at a time."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from shrink.data.features import FeatureConfig
from shrink.data.picture_bytes import decodable
from shrink.data.shards import Manifest
from shrink.data.sources.named_features import NamedFeatures

_PARALLEL_DECODES = 8


class Parser(Protocol):
    """From serialized examples to inputs and targets."""

    @property
    def label(self) -> str | None:
        """The name of the only target where it holds integer labels, else None."""

    @property
    def label_feature(self) -> str:
        """How that label is stored, as text; it decides what is read from a record."""

    @property
    def input_spec(self) -> Any:
        """One example's input."""

    @property
    def target_spec(self) -> Any:
        """One example's target."""

    def parse(self, records: tf.Tensor) -> tuple[Any, Any]:
        """Return `(x, y)` of serialized examples (n,); can be traced."""

    def parse_labels(self, records: tf.Tensor) -> tf.Tensor:
        """Return the labels of serialized examples (n,), int64, and parse nothing else."""


class ExampleParser(NamedFeatures):
    """Parses the features of a batch of records.

    Args:
        manifest: features, and which of them are inputs and targets.
        with_targets: whether there are any; else the target is empty.
    """

    def __init__(self, manifest: Manifest, with_targets: bool) -> None:
        targets = manifest.targets if with_targets else ()
        names = (*manifest.inputs, *targets)
        self._features = {name: manifest.features[name] for name in names}
        stored = {
            name: tf.TensorSpec(found.shape, _stored_dtype(found))
            for name, found in self._features.items()
        }
        super().__init__(manifest.inputs, targets, stored)
        self._spec = {name: _parsed_as(found) for name, found in self._features.items()}

    @property
    def label_feature(self) -> str:
        """How the label is stored, as text."""
        return repr(self._features.get(str(self.label)))

    def parse(self, records: tf.Tensor) -> tuple[Any, Any]:
        """Return `(x, y)` of serialized examples (n,); can be traced.

        Raises:
            tf.errors.OpError: a record is no example, or has other features.
        """
        parsed = tf.io.parse_example(records, self._spec)
        x, y = (
            {name: self._value(name, parsed[name], spec) for name, spec in side.items()}
            for side in (self.inputs, self.targets)
        )
        return self.batch(x, y, tf.shape(records)[0])

    def parse_labels(self, records: tf.Tensor) -> tf.Tensor:
        """Return the labels of serialized examples (n,), int64, and parse nothing else."""
        name = str(self.label)
        parsed = tf.io.parse_example(records, {name: self._spec[name]})
        return self._value(name, parsed[name], self.targets[name])

    def _value(self, name: str, value: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
        feature = self._features[name]
        if feature.type == "raw":
            value = tf.io.decode_raw(value, _stored_dtype(feature))
            # A reshape alone would take half a picture for another batch.
            value = tf.ensure_shape(value, (None, int(np.prod(feature.shape))))
        elif feature.type == "picture":
            value = _decoded(value, feature)
        return tf.cast(tf.reshape(value, (-1, *spec.shape)), spec.dtype)


def _parsed_as(feature: FeatureConfig) -> tf.io.FixedLenFeature:
    if feature.type in ("raw", "picture"):
        return tf.io.FixedLenFeature((), tf.string)
    return tf.io.FixedLenFeature(feature.shape, tf.as_dtype(feature.type))


def _stored_dtype(feature: FeatureConfig) -> tf.DType:
    if feature.type == "picture":
        return tf.uint8
    return tf.as_dtype(feature.dtype if feature.type == "raw" else feature.type)


def _decoded(contents: tf.Tensor, feature: FeatureConfig) -> tf.Tensor:
    channels = feature.shape[2]

    def prepare(batch: np.ndarray) -> np.ndarray:
        prepared = np.empty(len(batch), object)
        for place, content in enumerate(batch):
            prepared[place] = decodable(content, channels)
        return prepared

    def decode(content: tf.Tensor) -> tf.Tensor:
        picture = tf.io.decode_image(content, channels=channels, expand_animations=False)
        return tf.ensure_shape(picture, feature.shape)

    return tf.map_fn(
        decode,
        tf.numpy_function(prepare, [contents], tf.string),
        fn_output_signature=tf.TensorSpec(feature.shape, tf.uint8),
        parallel_iterations=_PARALLEL_DECODES,
    )
