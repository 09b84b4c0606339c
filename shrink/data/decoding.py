"""Decoding pictures with TensorFlow's own decoder, the same in a graph and outside one."""

from __future__ import annotations

import io
import os
import warnings
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from PIL import Image

from shrink.base.errors import DataError
from shrink.data.folders import shown
from shrink.data.op_errors import reason
from shrink.data.picture_bytes import (
    check_header,
    decodable,
    oriented,
    read_content,
    read_header,
)

_GRAY_MODES = {"1", "F", "I", "I;16", "I;16B", "I;16L", "L", "LA", "La"}
_SMALL_PIXELS = 128 * 128
_DECODING_BYTES = 32 * 1000**2
_MOST_PARALLEL = 16
_HINT = "remove or replace the file"


@dataclass(frozen=True)
class PictureDecoder:
    """Turns the content of files into pictures of one shape, uint8 (height, width, channels).

    Attributes:
        resize: whether other sizes are resized (bilinear, antialiased) or refused.
        first: the file that decided the shape, for messages.
        first_size: its own height and width.
    """

    height: int
    width: int
    channels: int
    resize: bool
    first: str
    first_size: tuple[int, int]

    @property
    def spec(self) -> tf.TensorSpec:
        """One picture."""
        return tf.TensorSpec((self.height, self.width, self.channels), tf.uint8)

    @property
    def reads_batches(self) -> bool:
        """Whether files are small enough to be read by the batch, and not one by one."""
        return self.first_size[0] * self.first_size[1] <= _SMALL_PIXELS

    @property
    def parallel_decodes(self) -> int:
        """Pictures of a batch that are decoded at once: fewer where they are large."""
        picture_bytes = self.first_size[0] * self.first_size[1] * 3
        return int(np.clip(_DECODING_BYTES // max(picture_bytes, 1), 1, _MOST_PARALLEL))

    def read(self, path: bytes) -> bytes:
        """Return a file's content as TensorFlow can decode it.

        Raises:
            DataError: it cannot be read, or is no picture.
        """
        return decodable(read_content(path), self.channels)

    def decode(self, content: tf.Tensor) -> tf.Tensor:
        """Return the picture of a content that `read` gave; can be traced.

        Raises:
            tf.errors.OpError: corrupt, or of another size.
        """
        picture = tf.io.decode_image(content, channels=self.channels, expand_animations=False)
        picture = tf.ensure_shape(picture, (None, None, self.channels))
        if self.resize:
            size = (self.height, self.width)
            resized = tf.image.resize(picture, size, method="bilinear", antialias=True)
            picture = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
        return tf.ensure_shape(picture, self.spec.shape)

    def explain(self, path: str, content: bytes | None = None) -> DataError | None:
        """Return why the picture in a file cannot be used, or None where it can.

        Args:
            path: of the file, for messages.
            content: of it, where it is at hand.
        """
        try:
            found = read_content(path) if content is None else content
            prepared = decodable(found, self.channels)
        except DataError as error:
            return DataError(error.message, subject=shown(path), hint=error.hint)
        try:
            picture = tf.io.decode_image(prepared, self.channels, expand_animations=False)
            if not self.resize and tuple(picture.shape[:2]) != (self.height, self.width):
                return self._other_size(path, picture)
            self.decode(tf.constant(prepared))
        except tf.errors.OpError as error:
            return DataError(
                f"not a picture that can be decoded: {reason(error)}",
                subject=shown(path),
                hint=_HINT,
            )
        return None

    def _other_size(self, path: str, picture: tf.Tensor) -> DataError:
        height, width = picture.shape[:2]
        return DataError(
            f"the picture is {height} x {width} pixels (height x width), and the first one, "
            f"{shown(self.first)}, is {self.height} x {self.width}",
            subject=shown(path),
            hint=f"set data.image_size: [{self.height}, {self.width}] to resize all of them",
        )


def read_first_picture(path: str) -> tuple[int, int, int]:
    """Return height, width and channels (1 or 3) of a picture.

    By Pillow, so that opening a data set leaves TensorFlow's runtime untouched: devices can be
    configured only before its first operation.

    Raises:
        DataError: the file is no picture, or cut short.
    """
    try:
        content = read_content(os.fsencode(path))
        check_header(read_header(content), content)
        return _shape(content)
    except DataError as error:
        raise DataError(error.message, subject=shown(path), hint=error.hint) from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            f"not a picture that can be decoded: {str(error).partition(' <_io')[0]}",
            subject=shown(path),
            hint=_HINT,
        ) from error


def _shape(content: bytes) -> tuple[int, int, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(content)) as picture:
            picture.load()
            width, height = oriented(picture).size
            is_gray = picture.mode in _GRAY_MODES and picture.format != "GIF"
    return height, width, 1 if is_gray else 3
