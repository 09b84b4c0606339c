"""tf.train.Example records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from shrink.data.decoding import decodable
from shrink.data.features import FeatureConfig
from shrink.data.shards import Manifest


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
        found = list(self.targets.items())
        return found[0][0] if len(found) == 1 and found[0][1].dtype == tf.int64 else None

    @property
    def input_spec(self) -> Any:
        """One example's input."""
        return _single(tuple(self.inputs.values()))

    @property
    def target_spec(self) -> Any:
        """One example's target."""
        return _single(tuple(self.targets.values()) or (tf.TensorSpec((0,), tf.float32),))

    def batch(
        self, x: Mapping[str, tf.Tensor], y: Mapping[str, tf.Tensor], size: tf.Tensor
    ) -> tuple[Any, Any]:
        """Return `(x, y)` as a model takes them, of `size` examples."""
        none = tf.zeros((size, 0), tf.float32)
        targets = tuple(y[name] for name in self.targets) or (none,)
        return _single(tuple(x[name] for name in self.inputs)), _single(targets)


def _input_spec(stored: tf.TensorSpec) -> tf.TensorSpec:
    fed = {tf.float64: tf.float32, tf.bool: tf.uint8}.get(stored.dtype, stored.dtype)
    return tf.TensorSpec(stored.shape, fed)


def _target_spec(stored: tf.TensorSpec) -> tf.TensorSpec:
    if stored.shape.rank == 0 and stored.dtype.is_integer:
        return tf.TensorSpec((), tf.int64)
    return tf.TensorSpec(stored.shape if stored.shape.rank else (1,), tf.float32)


def _single(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values


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
