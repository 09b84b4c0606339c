"""From the records of a prepared data set to arrays, by TensorFlow Datasets' own decoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.suggest import did_you_mean
from shrink.data.sources.named_features import NamedFeatures

_PARALLEL_DECODES = 8


class FeatureParser(NamedFeatures):
    """Decodes some features of a batch of records, and no others.

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
        self._folder, self._size, self._features = folder, image_size, features
        names = (*inputs, *targets)
        super().__init__(inputs, targets, {name: self._stored_spec(name) for name in names})
        self._decoder = _only(features, names)
        self._label_decoder = None if self.label is None else _only(features, (self.label,))

    @property
    def label_feature(self) -> str:
        """How the label is stored, as text."""
        return repr(self._features[self.label]) if self.label else ""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the labels, empty where they have none."""
        found = getattr(self._features[self.label], "names", None) if self.label else None
        return tuple(found or ())

    def parse(self, records: tf.Tensor) -> tuple[Any, Any]:
        """Return `(x, y)` of serialized examples (n,); can be traced.

        Raises:
            tf.errors.OpError: a record is damaged, or has other features.
        """

        def decode(record: tf.Tensor) -> Any:
            values = self._decoder.deserialize_example(record)
            sized = {name: self._sized(name, values[name]) for name in self.inputs}
            return tuple(
                {name: _cast(side[name], spec) for name, spec in specs.items()}
                for side, specs in ((sized, self.inputs), (values, self.targets))
            )

        x, y = tf.map_fn(
            decode,
            records,
            fn_output_signature=(self.inputs, self.targets),
            parallel_iterations=_PARALLEL_DECODES,
        )
        return self.batch(x, y, tf.shape(records)[0])

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
