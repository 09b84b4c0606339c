"""Images: their bytes and pixels, by Pillow, which lets other threads run while it decodes."""

from __future__ import annotations

import functools
import io
import os
import re
import warnings
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

from shrink.base.errors import DataError
from shrink.base.types import Spec
from shrink.data.folders import shown
from shrink.tflite.lazy import tf

_MOST = 300
_PNG = b"\x89PNG\r\n\x1a\n"
_FORMATS = ("BMP", "GIF", "JPEG", "PNG")
_GRAY_MODES = {"1", "I", "I;16", "I;16B", "I;16L", "L", "LA", "La"}
_MOST_PIXELS = 2 * 89_478_485
"""Larger images are refused unread, as by Pillow: a header of 50 bytes can ask for gigabytes."""
_SMALL_PIXELS = 128 * 128
_DECODING_BYTES = 32 * 1000**2
_MOST_PARALLEL = 16
_HINT = "remove or replace the file"
# What Pillow thinks of odd palettes and EXIF changes no pixel.
warnings.filterwarnings("ignore", module="PIL")


def reason(error: tf.errors.OpError) -> str:
    """Return the part of TensorFlow's message that is about the data."""
    text = str(error.message).partition(" [Op:")[0].partition("\n\t [[{{")[0]
    return text.rpartition("}} ")[2].strip()[:_MOST] or type(error).__name__


def read_content(path: str | bytes) -> bytes:
    """Return the bytes of a file.

    Raises:
        DataError: it cannot be read.
    """
    try:
        # By descriptor: stream objects take three times as long for small files.
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


def undecodable(error: Exception, kind: str = "an image") -> DataError:
    """Return what is wrong with the content of an image that Pillow raised an error for."""
    if isinstance(error, Image.DecompressionBombError):
        declared = int((re.findall(r"\d+", str(error)) or ["0"])[0])
        return DataError(
            f"the image declares {declared:,} pixels, and {_MOST_PIXELS:,} are the most that is "
            "decoded whole",
            hint="use source: tiles for images of this size, or scale it down",
        )
    return DataError(f"not {kind} that can be decoded: {str(error).partition(' <_io')[0]}")


def decoded(
    content: bytes, channels: int | None = None, size: tuple[int, int] | None = None
) -> np.ndarray:
    """Return the pixels of an image, uint8 (height, width, channels), turned as its EXIF says.

    Args:
        content: of a JPEG, PNG, BMP or GIF file, of which the first frame is taken.
        channels: 1 or 3; by default those of the image.
        size: height and width that it is resized to (bilinear, antialiased), where they differ.

    Raises:
        DataError: no such image, too large, in CMYK, or damaged; without a subject.
    """
    if not content:
        raise DataError("the file is empty", hint=_HINT)
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.mode == "CMYK":
                raise DataError(
                    "not an image that can be decoded: its colours are for printing (CMYK)",
                    hint="convert it to RGB with its colour profile",
                )
            if image.format == "PNG":
                check_png(content)
            is_gray = image.mode in _GRAY_MODES and image.format != "GIF"
            has_exif = "exif" in image.info or (image.format == "PNG" and b"eXIf" in content)
            upright = ImageOps.exif_transpose(image) if has_exif else image
            if upright.mode.startswith("I"):  # 16 bits, of which the higher ones are taken
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            channels = channels or (1 if is_gray else 3)
            mode = "L" if channels == 1 else "RGB"
            upright = upright if upright.mode == mode else upright.convert(mode)
            if size is not None and upright.size != (size[1], size[0]):
                upright = upright.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            return np.asarray(upright).reshape(upright.height, upright.width, channels)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # what decoders make of damaged bytes is of many kinds
        wrong = undecodable(error)
        raise DataError(wrong.message, hint=wrong.hint or _HINT) from error


def check_png(content: bytes) -> None:
    """Raise `ValueError` for a wrong checksum, which Pillow passes over (PNG, section 5.3).

    Pillow's `verify` needs the file opened once more, and skips the last chunk. Chunks end with
    IEND; what is behind it is no part of the image.
    """
    at, kind = len(_PNG), b""
    while at < len(content) and kind != b"IEND":
        kind, end = content[at + 4 : at + 8], at + 8 + int.from_bytes(content[at : at + 4])
        if end + 4 > len(content):
            raise ValueError("the PNG file is cut off")
        if zlib.crc32(memoryview(content)[at + 4 : end]) != int.from_bytes(content[end : end + 4]):
            raise ValueError("a checksum of the PNG file is wrong")
        at = end + 4


def read_image(
    path: str, channels: int | None = None, size: tuple[int, int] | None = None
) -> np.ndarray:
    """Return the pixels of an image file, see `decoded`.

    Raises:
        DataError: it cannot be read or decoded; its subject is the file.
    """
    try:
        return decoded(read_content(path), channels, size)
    except DataError as error:
        raise DataError(error.message, subject=shown(path), hint=error.hint) from error


@dataclass(frozen=True)
class ImageDecoder:
    """Reads image files as pixels of one shape, uint8 (height, width, channels).

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
    def spec(self) -> Spec:
        """One image."""
        return Spec((self.height, self.width, self.channels), np.dtype(np.uint8))

    def read(self, path: str) -> np.ndarray:
        """Return the pixels of a file.

        Raises:
            DataError: it cannot be read or decoded, or is of another size; its subject is the file.
        """
        image = read_image(path, self.channels, (self.height, self.width) if self.resize else None)
        if image.shape != (self.height, self.width, self.channels):
            raise DataError(
                f"the image is {image.shape[0]} x {image.shape[1]} pixels (height x width), and "
                f"the first one, {shown(self.first)}, is {self.height} x {self.width}",
                subject=shown(path),
                hint=f"set data.image_size: [{self.height}, {self.width}] to resize all of them",
            )
        return image

    def read_all(self, paths: Sequence[str]) -> np.ndarray:
        """Return the pixels of some files, (n, height, width, channels), decoded in threads."""
        images = np.empty((len(paths), self.height, self.width, self.channels), np.uint8)
        # A thread costs more than a small image takes.
        small = self.first_size[0] * self.first_size[1] <= _SMALL_PIXELS
        for row, image in enumerate((map if small else self._threads.map)(self.read, paths)):
            images[row] = image
        return images

    def errors_of(self, paths: Sequence[str]) -> dict[str, str]:
        """Return why files cannot be used, by path, of those that cannot."""

        def error(path: str) -> str | None:
            try:
                self.read(path)
            except DataError as wrong:
                return str(wrong)
            return None

        found = zip(paths, self._threads.map(error, paths), strict=True)
        return {path: text for path, text in found if text is not None}

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Fewer where images are large: each holds the whole image before it is resized.
        image_bytes = max(self.first_size[0] * self.first_size[1] * 3, 1)
        return ThreadPoolExecutor(
            min(len(os.sched_getaffinity(0)), _MOST_PARALLEL, _DECODING_BYTES // image_bytes) or 1
        )
