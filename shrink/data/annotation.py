"""Pictures with boxes, as they are read from files; nothing is decoded.

Edges come out in pixels of the picture as it is shown. A box may stick out of its picture by a
pixel, as those of rounded tools do, and is then cut off; one that sticks out farther is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.base.errors import DataError, hint_for
from shrink.data.folders import shown

_SLACK = 1.0
"""Pixels that a box may stick out by."""
_ROTATED = range(5, 9)
"""EXIF orientations that change height and width with each other."""
_ORIENTATION = 0x0112


@dataclass(frozen=True)
class Box:
    """One box: edges in pixels, the class's name, whether it is a crowd, and its area."""

    left: float
    top: float
    right: float
    bottom: float
    label: str
    crowd: bool = False
    area: float | None = None


@dataclass(frozen=True)
class Annotated:
    """A picture with its boxes.

    Attributes:
        file: absolute path of the picture.
        size: its height and width.
        boxes: in the order of the file.
    """

    file: Path
    size: tuple[int, int]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class BoxFiles:
    """Everything under a path.

    Attributes:
        splits: pictures by split, sorted by file name; `all` where they are not divided.
        classes: names by number.
        files: every file that was read, pictures too, absolute.
    """

    splits: Mapping[str, Sequence[Annotated]]
    classes: tuple[str, ...]
    files: tuple[Path, ...]


def picture_size(file: Path, where: str) -> tuple[int, int]:
    """Return height and width of a picture as it is shown.

    Args:
        file: of the picture.
        where: it is named, for messages.

    Raises:
        DataError: it is missing, or cannot be read.
    """
    from PIL import Image, UnidentifiedImageError  # the light half, too, looks for files here

    try:
        with Image.open(file) as image:
            width, height = image.size
            turned = image.getexif().get(_ORIENTATION) in _ROTATED
    except FileNotFoundError as error:
        raise DataError(f"there is no picture {shown(file)}", subject=where) from error
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DataError(f"the picture cannot be read: {error}", subject=shown(file)) from error
    return (width, height) if turned else (height, width)


def cut_off(box: Box, size: tuple[int, int], where: str) -> Box:
    """Return a box cut off at its picture's edges.

    Args:
        box: edges in pixels.
        size: height and width of its picture.
        where: it stands, for messages.

    Raises:
        DataError: it sticks out by more than a pixel.
    """
    height, width = size
    inside = (
        -_SLACK <= box.left <= box.right <= width + _SLACK
        and -_SLACK <= box.top <= box.bottom <= height + _SLACK
    )
    if not inside:
        edges = ", ".join(f"{edge:g}" for edge in (box.left, box.top, box.right, box.bottom))
        raise DataError(
            f"the box {edges} (left, top, right, bottom) is not inside its picture of {width} x "
            f"{height} pixels",
            subject=where,
            hint="correct the box, or the order of its numbers",
        )
    return Box(
        _between(box.left, width),
        _between(box.top, height),
        _between(box.right, width),
        _between(box.bottom, height),
        box.label,
        box.crowd,
        box.area,
    )


def _between(edge: float, end: float) -> float:
    return min(max(edge, 0.0), end)


def picture_file(folder: Path, name: str, where: str) -> Path:
    """Return where a picture is that a file names.

    Args:
        folder: of the pictures.
        name: relative to it.
        where: it stands, for messages.

    Raises:
        DataError: it leads out of the folder, or is not a file name.
    """
    try:
        out = Path(name).is_absolute() or Path(os.path.normpath(name)).parts[:1] == (os.pardir,)
        unfit = "\0" in name or not os.fsencode(name)
    except UnicodeEncodeError:
        out, unfit = False, True
    if out or unfit:
        why = "leaves the folder of the pictures" if out else "is not a file name"
        raise DataError(
            f"the picture's name {name!r} {why}",
            subject=where,
            hint="give a name relative to the folder, without ..",
        )
    return folder / name


def known_class(label: str, classes: Sequence[str], where: str) -> str:
    """Return a class's name, which stands among `classes`; else raise `DataError`."""
    if label not in classes:
        raise DataError(
            f"there is no class {label!r}", subject=where, hint=hint_for(label, classes)
        )
    return label


def text_of(path: Path) -> str:
    """Return what a file holds; raise `DataError` where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", subject=shown(path)) from error
