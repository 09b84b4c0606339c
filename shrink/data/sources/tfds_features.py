"""From the records of a prepared data set to arrays, by TensorFlow Datasets' own decoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from shrink.errors import DataError
from shrink.recipe.suggest import did_you_mean

_PARALLEL_DECODES = 8


class FeatureParser:
    """Decodes some features of a batch of records, and no others.

    Inputs are fed as stored, except that float64 becomes float32 and bool becomes uint8. An
    integer scalar target is int64; all others are float32, and scalars get the shape (1,).

    Args:
        folder: of the data set, for messages.
        features: TensorFlow Datasets' description of an example.
        inputs: names of the features that are inputs.
        targets: the same of targets; none for an autoencoder.
        image_size: height and width that pictures are resized to, None to leave them.

    Raises:
        DataError: there is no such feature, or its shape differs between examples.
    """

    def __init__(
        self,
        folder: Path,
        features: Any,
        inputs: tuple[str, ...],
        targets: tuple[str, ...],
        image_size: tuple[int, int] | None,
    ) -> None:
        self._folder, self._inputs, self._targets = folder, inputs, targets
        self._size = image_size
        self._features = features
        names = (*inputs, *targets)
        self._stored = {name: self._stored_spec(name) for name in names}
        self._decoder = _only(features, names)
        self._label_decoder = None if self.label is None else _only(features, (self.label,))

    @property
    def label(self) -> str | None:
        """The name of the only target where it holds integer labels, else None."""
        return self._targets[0] if len(self._targets) == 1 and self._is_label() else None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the labels, empty where they have none."""
        found = getattr(self._features[self.label], "names", None) if self.label else None
        return tuple(found or ())

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
            tf.errors.OpError: a record is damaged, or has other features.
        """
        specs = (
            {name: self._input_spec(name) for name in self._inputs},
            {name: self._target_spec(name) for name in self._targets},
        )

        def decode(record: tf.Tensor) -> Any:
            values = self._decoder.deserialize_example(record)
            x = {name: self._sized(name, values[name]) for name in specs[0]}
            y = {name: values[name] for name in specs[1]}
            return tuple(
                {name: _cast(value, spec[name]) for name, value in side.items()}
                for side, spec in zip((x, y), specs, strict=True)
            )

        x, y = tf.map_fn(
            decode, records, fn_output_signature=specs, parallel_iterations=_PARALLEL_DECODES
        )
        none = tf.zeros((tf.shape(records)[0], 0), tf.float32)
        targets = tuple(y[name] for name in self._targets) or (none,)
        return _single(tuple(x[name] for name in self._inputs)), _single(targets)

    def parse_labels(self, records: tf.Tensor) -> tf.Tensor:
        """Return the labels of serialized examples (n,), int64, and decode nothing else."""
        decoder: Any = self._label_decoder
        return tf.map_fn(
            lambda record: tf.cast(decoder.deserialize_example(record)[self.label], tf.int64),
            records,
            fn_output_signature=tf.int64,
            parallel_iterations=_PARALLEL_DECODES,
        )

    def _stored_spec(self, name: str) -> tf.TensorSpec:
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
        if self._size is not None and _is_picture(self._features[name]):
            shape = (*self._size, shape[-1])
        if None in shape:
            raise self._error(
                f"the shape of {name} differs between examples: {shape}",
                "set data.image_size: [height, width], or read it with source: python",
            )
        return tf.TensorSpec(shape, info.tf_dtype)

    def _sized(self, name: str, value: tf.Tensor) -> tf.Tensor:
        if self._size is None or not _is_picture(self._features[name]):
            return value
        resized = tf.image.resize(value, self._size, method="bilinear", antialias=True)
        return resized if value.dtype.is_floating else tf.round(resized)

    def _is_label(self) -> bool:
        spec = self._stored[self._targets[0]]
        return spec.dtype.is_integer and spec.shape.rank == 0

    def _input_spec(self, name: str) -> tf.TensorSpec:
        spec = self._stored[name]
        fed = {tf.float64: tf.float32, tf.bool: tf.uint8}.get(spec.dtype, spec.dtype)
        return tf.TensorSpec(spec.shape, fed)

    def _target_spec(self, name: str) -> tf.TensorSpec:
        spec = self._stored[name]
        if spec.shape.rank == 0 and spec.dtype.is_integer:
            return tf.TensorSpec((), tf.int64)
        return tf.TensorSpec(spec.shape if spec.shape.rank else (1,), tf.float32)

    def _error(self, message: str, hint: str) -> DataError:
        return DataError(message, subject=self._folder, hint=hint)


def _only(features: Any, names: tuple[str, ...]) -> Any:
    import tensorflow_datasets as tfds

    return tfds.decode.PartialDecoding(dict.fromkeys(names, True)).extract_features(features)


def _is_picture(feature: Any) -> bool:
    import tensorflow_datasets as tfds

    return isinstance(feature, tfds.features.Image)


def _cast(value: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    return tf.cast(tf.reshape(value, spec.shape), spec.dtype)


def _single(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values
