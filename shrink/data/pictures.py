"""Pictures in files, decoded when they are asked for: what all sources of pictures share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.decoding import ImageDecoder
from shrink.data.examples import DecodedExamples
from shrink.data.folders import Names


class FilePictures(DecodedExamples):
    """Pictures in files; a subclass loads what stands beside them.

    Args:
        files: absolute paths.
        decoder: decides shape and channels.
        labels: int64 (n,), or None.
        target_spec: of what stands beside a picture.
    """

    def __init__(
        self,
        files: Sequence[str],
        decoder: ImageDecoder,
        labels: np.ndarray | None,
        target_spec: tf.TensorSpec,
    ) -> None:
        super().__init__(labels, decoder.spec, target_spec)
        self._files = files if isinstance(files, Names) else Names(files)
        self._decoder = decoder

    def __len__(self) -> int:
        return len(self._files)

    def file(self, index: int) -> str:
        """Return the path of a picture."""
        return self._files[int(index)]

    def pictures(self, indices: tf.Tensor) -> tf.Tensor:
        """Return a batch (n, height, width, channels); pictures are decoded in parallel."""
        by_batch = self._decoder.reads_batches
        return tf.map_fn(
            self._decoder.decode if by_batch else self._read_and_decode,
            tf.numpy_function(self._read, [indices], tf.string) if by_batch else indices,
            fn_output_signature=self._decoder.spec,
            parallel_iterations=self._decoder.parallel_decodes,
        )

    def why_unreadable(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these pictures that cannot be used, or None."""
        with tf.device("CPU:0"):
            errors = map(self._why_unusable, map(int, indices))
            return next((error for error in errors if error is not None), None)

    def _why_unusable(self, index: int) -> DataError | None:
        """Return why one example cannot be used, or None."""
        return self._decoder.explain(self.file(index))

    def _read(self, indices: np.ndarray) -> np.ndarray:
        contents = np.empty(len(indices), object)
        for position, index in enumerate(indices):
            contents[position] = self._decoder.read(self._files.encoded(index))
        return contents

    def _read_and_decode(self, index: tf.Tensor) -> tf.Tensor:
        content = tf.numpy_function(self._read_one, [index], tf.string)
        return self._decoder.decode(tf.ensure_shape(content, ()))

    def _read_one(self, index: int) -> bytes:
        return self._decoder.read(self._files.encoded(index))


class TargetedPictures(FilePictures):
    """Pictures with a target each, an array that is held in memory.

    Args:
        files: absolute paths.
        targets: int64 (n,) labels, or numbers (n, ...).
        decoder: decides shape and channels.
    """

    def __init__(self, files: Sequence[str], targets: np.ndarray, decoder: ImageDecoder) -> None:
        target_spec = tf.TensorSpec(targets.shape[1:], tf.as_dtype(targets.dtype))
        super().__init__(files, decoder, targets if targets.ndim == 1 else None, target_spec)
        self._targets = targets

    def load(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a batch as tensors."""
        targets = tf.numpy_function(self._targets.__getitem__, [indices], self.target_spec.dtype)
        whole = tf.ensure_shape(targets, (indices.shape[0], *self.target_spec.shape))
        return self.pictures(indices), whole
