"""Small folders of images for tests."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def write_image(
    path: Path, seed: int = 0, size: tuple[int, int] = (6, 5), mode: str = "RGB"
) -> None:
    """Write a random image of `size` (height, width); the ending decides the format."""
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, *channels), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_folders(
    root: Path,
    count: int = 10,
    classes: tuple[str, ...] = ("cat", "dog"),
    size: tuple[int, int] = (6, 5),
) -> Path:
    """Write `count` PNG images of each class under `root`, and return it."""
    for number, name in enumerate(classes):
        for index in range(count):
            path = root / name / f"{index:02d}.png"
            write_image(path, seed=100 * number + index, size=size)
    return root


def write_bad_images(folder: Path) -> list[Path]:
    """Write 30 files that are no sound image, three of each of ten kinds; return them."""
    written = []
    for kind, content in _bad_contents().items():
        for number in range(3):
            name, _, ending = kind.partition(".")
            written.append(folder / f"{name}-{number}.{ending}")
            written[-1].write_bytes(content)
    return written


def _bad_contents() -> dict[str, bytes]:
    jpeg, png, gif, bmp = (_encoded(form) for form in ("JPEG", "PNG", "GIF", "BMP"))
    cmyk = io.BytesIO()
    Image.new("CMYK", (8, 8)).save(cmyk, "JPEG")
    wrong_size = io.BytesIO()
    Image.new("RGB", (31, 17)).save(wrong_size, "PNG")
    middle = len(png) // 2
    return {
        "truncated.jpg": jpeg[: len(jpeg) // 2],
        "empty.png": b"",
        "page.jpg": b"<!DOCTYPE html><title>404</title>",
        "printed.jpg": cmyk.getvalue(),
        "huge.png": _png_header(30_000, 30_000),
        "damaged.png": png[:middle] + bytes(20) + png[middle + 20 :],
        "short.gif": gif[:30],
        "short.bmp": bmp[:80],
        "header.jpg": b"\xff\xd8\xff\xe0",
        "size.png": wrong_size.getvalue(),
    }


def _encoded(form: str) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (16, 16, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def _png_header(height: int, width: int) -> bytes:
    """A PNG that declares a size and holds a few bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000)))
