"""Images: their bytes, headers and pixels.

TensorFlow decodes JPEG and PNG fast, but knows no EXIF orientation and converts no bitmaps:
those few go through Pillow and become plain bitmaps. A header is believed only within limits.
"""

from __future__ import annotations

import io
import os
import struct
import warnings
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

from shrink.base.errors import DataError
from shrink.data.folders import shown

_MOST = 300


def reason(error: tf.errors.OpError) -> str:
    """Return the part of TensorFlow's message that is about the data."""
    text = str(error.message).partition(" [Op:")[0].partition("\n\t [[{{")[0]
    return text.rpartition("}} ")[2].strip()[:_MOST] or type(error).__name__


MOST_PIXELS = 2 * 89_478_485
"""Larger images are refused unread, as by Pillow: a header of 50 bytes can ask for gigabytes."""

_FORMATS = ("BMP", "GIF", "JPEG", "PNG")
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})
_ORIENTATION = 0x0112
_FAST: dict[str, int] = {"compress_level": 1}
_HINT = "remove or replace the file"
_TILES_HINT = "use source: tiles for images of this size, or scale it down"


@dataclass(frozen=True)
class Header:
    """What a file's first bytes declare.

    Attributes:
        format: JPEG, PNG, BMP or GIF; empty for anything else.
        height: pixels, 0 where unknown.
        width: pixels, 0 where unknown.
        is_plain: whether TensorFlow's decoder gives the right pixels.
        is_cmyk: whether it is a JPEG of four colours.
    """

    format: str
    height: int = 0
    width: int = 0
    is_plain: bool = False
    is_cmyk: bool = False


def read_header(content: bytes) -> Header:
    """Return what the first bytes of a file declare; never raises, whatever they are."""
    try:
        if content.startswith(b"\xff\xd8"):
            return _jpeg(content)
        if content.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack_from(">II", content, 16)
            return Header("PNG", height, width, is_plain=b"eXIf" not in content[:4096])
        if content.startswith(b"BM"):
            width, height = struct.unpack_from("<ii", content, 18)
            return Header("BMP", abs(height), abs(width))
        if content.startswith((b"GIF87a", b"GIF89a")):
            width, height = struct.unpack_from("<HH", content, 6)
            return Header("GIF", height, width)
    except (struct.error, IndexError):
        pass
    return Header("")


def read_content(path: str | bytes) -> bytes:
    """Return the bytes of a file.

    Raises:
        DataError: it cannot be read.
    """
    # By descriptor: stream objects take three times as long for small files.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            content = os.read(descriptor, size + 1)
            while len(content) < size and (more := os.read(descriptor, size)):
                content += more
            return content
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", hint=_HINT) from error


def decodable(content: bytes, channels: int) -> bytes:
    """Return an image's content as a JPEG, PNG or BMP that TensorFlow decodes right.

    Args:
        content: of the file.
        channels: 1 or 3, of a BMP; the decoder converts the others.

    Raises:
        DataError: no image of a known format, too large, in CMYK, or damaged.
    """
    header = read_header(content)
    check_header(header, content)
    return content if header.is_plain else _bitmap(content, channels)


def check_header(header: Header, content: bytes) -> None:
    """Raise `DataError` for what must not be decoded."""
    if not content:
        raise DataError("the file is empty", hint=_HINT)
    if header.height * header.width > MOST_PIXELS:
        raise DataError(
            f"the image declares {header.height:,} x {header.width:,} pixels, and "
            f"{MOST_PIXELS:,} are the most that is decoded whole",
            hint=_TILES_HINT,
        )
    if header.is_cmyk:
        raise DataError(
            "not an image that can be decoded: its colours are for printing (CMYK)",
            hint="convert it to RGB with its colour profile",
        )


def oriented(image: Image.Image) -> Image.Image:
    """Return an image turned as its EXIF orientation asks."""
    return ImageOps.exif_transpose(image)


def _bitmap(content: bytes, channels: int) -> bytes:
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                converted = oriented(image).convert("L" if channels == 1 else "RGB")
                # TensorFlow takes gray images from PNG only; bitmaps need no compression.
                gray = channels == 1
                converted.save(buffer, "PNG" if gray else "BMP", **_FAST if gray else {})
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        reason = str(error).partition(" <_io")[0]
        raise DataError(f"not an image that can be decoded: {reason}", hint=_HINT) from error
    return buffer.getvalue()


def _jpeg(content: bytes) -> Header:
    """Walk the segments up to the frame's header (ITU-T T.81, annex B)."""
    offset, orientation = 2, 1
    while content[offset] == 0xFF:
        code = content[offset + 1]
        if code == 0xFF or code in _STANDALONE:  # fill bytes, and markers without a segment
            offset += 1 if code == 0xFF else 2
            continue
        if code in _FRAMES:
            height, width, components = struct.unpack_from(">HHB", content, offset + 5)
            plain = orientation == 1
            return Header("JPEG", height, width, is_plain=plain, is_cmyk=components == 4)
        if code == 0xE1 and content[offset + 4 : offset + 10] == b"Exif\0\0":
            orientation = _exif_orientation(content, offset + 10)
        offset += 2 + int.from_bytes(content[offset + 2 : offset + 4], "big")
    return Header("JPEG", is_plain=True)  # damaged: the decoder says how


def _exif_orientation(content: bytes, start: int) -> int:
    """Return the orientation in the first directory of a TIFF header, 1 where there is none."""
    order = "<" if content[start : start + 2] == b"II" else ">"
    try:
        directory = start + struct.unpack_from(f"{order}I", content, start + 4)[0]
        (count,) = struct.unpack_from(f"{order}H", content, directory)
        for entry in range(min(count, 100)):
            tag, _, _, value = struct.unpack_from(
                f"{order}HHIH", content, directory + 2 + 12 * entry
            )
            if tag == _ORIENTATION:
                return int(value)
    except struct.error:
        pass
    return 1


_GRAY_MODES = {"1", "F", "I", "I;16", "I;16B", "I;16L", "L", "LA", "La"}
_SMALL_PIXELS = 128 * 128
_DECODING_BYTES = 32 * 1000**2
_MOST_PARALLEL = 16


@dataclass(frozen=True)
class ImageDecoder:
    """Turns the content of files into images of one shape, uint8 (height, width, channels).

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
        """One image."""
        return tf.TensorSpec((self.height, self.width, self.channels), tf.uint8)

    @property
    def reads_batches(self) -> bool:
        """Whether files are small enough to be read by the batch, and not one by one."""
        return self.first_size[0] * self.first_size[1] <= _SMALL_PIXELS

    @property
    def parallel_decodes(self) -> int:
        """Images of a batch that are decoded at once: fewer where they are large."""
        image_bytes = self.first_size[0] * self.first_size[1] * 3
        return int(np.clip(_DECODING_BYTES // max(image_bytes, 1), 1, _MOST_PARALLEL))

    def read(self, path: bytes) -> bytes:
        """Return a file's content as TensorFlow can decode it.

        Raises:
            DataError: it cannot be read, or is no image.
        """
        return decodable(read_content(path), self.channels)

    def decode(self, content: tf.Tensor) -> tf.Tensor:
        """Return the image of a content that `read` gave; can be traced.

        Raises:
            tf.errors.OpError: corrupt, or of another size.
        """
        image = tf.io.decode_image(content, channels=self.channels, expand_animations=False)
        image = tf.ensure_shape(image, (None, None, self.channels))
        if self.resize:
            size = (self.height, self.width)
            resized = tf.image.resize(image, size, method="bilinear", antialias=True)
            image = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
        return tf.ensure_shape(image, self.spec.shape)

    def explain(self, path: str, content: bytes | None = None) -> DataError | None:
        """Return why the image in a file cannot be used, or None where it can.

        Args:
            path: of the file, for messages.
            content: of it, where it is at hand.
        """
        try:
            encoded = read_content(path) if content is None else content
            prepared = decodable(encoded, self.channels)
        except DataError as error:
            return DataError(error.message, subject=shown(path), hint=error.hint)
        try:
            image = tf.io.decode_image(prepared, self.channels, expand_animations=False)
            if not self.resize and tuple(image.shape[:2]) != (self.height, self.width):
                return self._other_size(path, image)
            self.decode(tf.constant(prepared))
        except tf.errors.OpError as error:
            return DataError(
                f"not an image that can be decoded: {reason(error)}",
                subject=shown(path),
                hint=_HINT,
            )
        return None

    def _other_size(self, path: str, image: tf.Tensor) -> DataError:
        height, width = image.shape[:2]
        return DataError(
            f"the image is {height} x {width} pixels (height x width), and the first one, "
            f"{shown(self.first)}, is {self.height} x {self.width}",
            subject=shown(path),
            hint=f"set data.image_size: [{self.height}, {self.width}] to resize all of them",
        )


def read_first_image(path: str) -> tuple[int, int, int]:
    """Return height, width and channels (1 or 3) of an image.

    By Pillow, so that opening a data set leaves TensorFlow's runtime untouched: devices can be
    configured only before its first operation.

    Raises:
        DataError: the file is no image, or cut short.
    """
    try:
        content = read_content(os.fsencode(path))
        check_header(read_header(content), content)
        return _shape(content)
    except DataError as error:
        raise DataError(error.message, subject=shown(path), hint=error.hint) from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            f"not an image that can be decoded: {str(error).partition(' <_io')[0]}",
            subject=shown(path),
            hint=_HINT,
        ) from error


def _shape(content: bytes) -> tuple[int, int, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            width, height = oriented(image).size
            is_gray = image.mode in _GRAY_MODES and image.format != "GIF"
    return height, width, 1 if is_gray else 3
