"""Formats of box annotations: COCO (JSON), YOLO (text), Pascal VOC (XML)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shrink.base.errors import DataError
from shrink.data.annotation import BoxFiles
from shrink.data.box_coco import read_coco
from shrink.data.box_voc import read_voc
from shrink.data.box_yolo import read_yolo
from shrink.data.folders import ALL, named_splits, shown


def read_boxes(path: Path, classes: Sequence[str] | None) -> BoxFiles:
    """Read a COCO file or a folder of them, or a folder in the form of YOLO or Pascal VOC.

    Args:
        path: absolute.
        classes: names by number; None for what the files say.

    Raises:
        DataError: nothing of that is there, or a file is wrong, with its name and place.
    """
    if classes is not None and len(set(classes)) < len(classes):
        raise DataError("data.classes names a class twice", subject=shown(path))
    if path.suffix == ".json" and path.is_file():
        return read_coco({ALL: path}, classes)
    if (path / "Annotations").is_dir():
        return read_voc(path, classes)
    if (path / "labels").is_dir() and (path / "images").is_dir():
        return read_yolo(path, classes)
    named = named_splits(path, lambda name: (path / f"{name}.json").is_file())
    if named:
        return read_coco({split: path / f"{n}.json" for split, n in named.items()}, classes)
    raise DataError(
        "no boxes that shrink reads",
        subject=shown(path),
        hint="give a COCO file, a folder with train.json or test.json, one with images/ and "
        "labels/ (YOLO), or one with Annotations/ (Pascal VOC)",
    )
