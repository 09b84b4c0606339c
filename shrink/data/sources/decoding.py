"""Decoding pictures with TensorFlow's own decoder, the same in a graph and outside one."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from shrink.data.folders import shown
from shrink.errors import DataError

_GRAY_PALETTE = np.repeat(np.arange(256, dtype=np.uint8), 4).reshape(256, 4)
_GRAY_PALETTE[:, 3] = 0
_BMP_BITS_AT = 28
_BMP_PALETTE_AT = 54  # after the 14 bytes of the file header and the usual 40 of the bitmap's
_GRAY_MODES = {"1", "F", "I", "I;16", "I;16B", "I;16L", "L", "LA", "La"}


@dataclass(frozen=True)
class PictureDecoder:
    """Turns files into pictures of one shape, uint8 (height, width, channels).

    Attributes:
        resize: whether other sizes are resized (bilinear, antialiased) or refused.
        first: the file that decided the shape, for messages.
        has_bitmaps: whether BMP or GIF files are expected; their channels are converted here,
            as TensorFlow's decoder does that for JPEG and PNG only.
    """

    height: int
    width: int
    channels: int
    resize: bool
    first: str
    has_bitmaps: bool

    @property
    def spec(self) -> tf.TensorSpec:
        """One picture."""
        return tf.TensorSpec((self.height, self.width, self.channels), tf.uint8)

    def decode(self, path: tf.Tensor) -> tf.Tensor:
        """Return the picture in a file; can be traced.

        Raises:
            tf.errors.OpError: missing, corrupt, or of another size.
        """
        picture = self._decode_content(tf.io.read_file(path))
        picture = tf.ensure_shape(picture, (None, None, self.channels))
        if self.resize:
            size = (self.height, self.width)
            resized = tf.image.resize(picture, size, method="bilinear", antialias=True)
            picture = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
        return tf.ensure_shape(picture, self.spec.shape)

    def explain(self, path: str) -> DataError | None:
        """Return why the picture in a file cannot be used, or None where it can."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            return DataError(f"cannot be read: {error.strerror}", subject=shown(path))
        if not content:
            return DataError("the file is empty", subject=shown(path), hint="remove it")
        try:
            picture = self._decode_content(tf.constant(content))
            if not self.resize and tuple(picture.shape[:2]) != (self.height, self.width):
                return self._other_size(path, picture)
            self.decode(tf.constant(os.fsencode(path)))
        except tf.errors.OpError as error:
            return DataError(
                f"not a picture that can be decoded: {_reason(error)}",
                subject=shown(path),
                hint="remove or replace the file",
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

    def _decode_content(self, content: tf.Tensor) -> tf.Tensor:
        if not self.has_bitmaps:
            return self._decode_jpeg_or_png(content)
        start = tf.strings.substr(content, 0, 2)
        return tf.case(
            [
                (start == b"BM", lambda: self._decode_bmp(content)),
                (start == b"GI", lambda: self._decode_with_own_channels(content)),
            ],
            default=lambda: self._decode_jpeg_or_png(content),
        )

    def _decode_jpeg_or_png(self, content: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_image(content, channels=self.channels, expand_animations=False)

    def _decode_bmp(self, content: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([_refuse_palette(content)]):
            return self._decode_with_own_channels(tf.identity(content))

    def _decode_with_own_channels(self, content: tf.Tensor) -> tf.Tensor:
        picture = tf.io.decode_image(content, channels=0, expand_animations=False)
        picture = tf.ensure_shape(picture, (None, None, None))
        colours = tf.shape(picture)[2]
        if self.channels == 3:
            return tf.cond(
                colours == 1, lambda: tf.repeat(picture, 3, axis=2), lambda: picture[:, :, :3]
            )
        return tf.cond(
            colours == 1,
            lambda: picture,
            lambda: tf.image.rgb_to_grayscale(picture[:, :, :3]),
        )


def read_first_picture(path: str) -> tuple[int, int, int]:
    """Return height, width and channels (1 or 3) of a picture.

    By Pillow, so that opening a data set leaves TensorFlow's runtime untouched: devices can be
    configured only before its first operation.

    Raises:
        DataError: the file is no picture, or cut short.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as picture:
                picture.load()
                width, height = picture.size
                is_gray = picture.mode in _GRAY_MODES and picture.format != "GIF"
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = "the file is empty" if not Path(path).stat().st_size else str(error)
        raise DataError(
            f"not a picture that can be decoded: {reason.partition(' <_io')[0]}",
            subject=shown(path),
            hint="remove or replace the file",
        ) from error
    return height, width, 1 if is_gray else 3


def _refuse_palette(content: tf.Tensor) -> tf.Operation:
    """Fail on a BMP with a palette of colours, whose indices TensorFlow takes for grays."""
    bits = tf.strings.substr(content, _BMP_BITS_AT, 2)
    palette = tf.strings.substr(content, _BMP_PALETTE_AT, _GRAY_PALETTE.nbytes)
    is_plain = (bits != b"\x08\x00") | (palette == _GRAY_PALETTE.tobytes())
    return tf.debugging.Assert(is_plain, ["a BMP with a palette of colours"])


def _reason(error: tf.errors.OpError) -> str:
    """Return the part of TensorFlow's message that is about the file."""
    text = str(error.message).partition(" [Op:")[0]
    return text.rpartition("}} ")[2].strip() or type(error).__name__
