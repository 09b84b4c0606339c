"""From serialized `tf.train.Example`s to arrays, a batch at a time."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from shrink.data.features import FeatureConfig
from shrink.data.shards import Manifest
from shrink.data.sources.picture_bytes import decodable

_PARALLEL_DECODES = 8


class Parser(Protocol):
    """From serialized examples to inputs and targets."""

    @property
    def label(self) -> str | None:
        """The name of the only target where it holds integer labels, else None."""

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


class ExampleParser:
    """Parses the features of a batch of records.

    Inputs are fed as stored, except that float64 becomes float32. An int64 scalar target is
    int64; all others are float32, and scalars get the shape (1,).

    Args:
        manifest: features, and which of them are inputs and targets.
        with_targets: whether there are any; else the target is empty.
    """

    def __init__(self, manifest: Manifest, with_targets: bool) -> None:
        self._inputs = manifest.inputs
        self._targets = manifest.targets if with_targets else ()
        names = (*self._inputs, *self._targets)
        self._features = {name: manifest.features[name] for name in names}
        self._spec = {name: _parsed_as(found) for name, found in self._features.items()}

    @property
    def label(self) -> str | None:
        """The name of the only target where it holds integer labels, else None."""
        names = self._targets
        return names[0] if len(names) == 1 and self._is_label(names[0]) else None

    @property
    def input_spec(self) -> Any:
        """One example's input."""
        return _single(tuple(self._input_spec(name) for name in self._inputs))

    @property
    def target_spec(self) -> Any:
        """One example's target."""
        if not self._targets:
            return tf.TensorSpec((0,), tf.float32)
        return _single(tuple(self._target_spec(name) for name in self._targets))

    def parse(self, records: tf.Tensor) -> tuple[Any, Any]:
        """Return `(x, y)` of serialized examples (n,); can be traced.

        Raises:
            tf.errors.OpError: a record is no example, or has other features.
        """
        parsed = tf.io.parse_example(records, self._spec)
        x = tuple(self._value(name, parsed[name], self._input_spec(name)) for name in self._inputs)
        y = tuple(
            self._value(name, parsed[name], self._target_spec(name)) for name in self._targets
        )
        if not y:
            y = (tf.zeros((tf.shape(records)[0], 0), tf.float32),)
        return _single(x), _single(y)

    def parse_labels(self, records: tf.Tensor) -> tf.Tensor:
        """Return the labels of serialized examples (n,), int64, and parse nothing else."""
        name = str(self.label)
        return tf.io.parse_example(records, {name: self._spec[name]})[name]

    def _is_label(self, name: str) -> bool:
        feature = self._features[name]
        return feature.type == "int64" and feature.shape == ()

    def _input_spec(self, name: str) -> tf.TensorSpec:
        stored = _stored_dtype(self._features[name])
        dtype = tf.float32 if stored == tf.float64 else stored
        return tf.TensorSpec(self._features[name].shape, dtype)

    def _target_spec(self, name: str) -> tf.TensorSpec:
        if self._is_label(name):
            return tf.TensorSpec((), tf.int64)
        return tf.TensorSpec(self._features[name].shape or (1,), tf.float32)

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


def _single(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values
