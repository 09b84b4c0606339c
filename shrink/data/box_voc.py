"""Boxes in the XML files of Pascal VOC (Everingham et al. 2010)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from shrink.base.errors import DataError
from shrink.data.annotation import (
    Annotated,
    Box,
    BoxFiles,
    cut_off,
    known_class,
    picture_file,
    picture_size,
    text_of,
)
from shrink.data.folders import ALL, named_splits, shown


def read_voc(root: Path, classes: Sequence[str] | None) -> BoxFiles:
    """Read the pictures of `Annotations/`.

    Args:
        root: absolute.
        classes: names by number; None for those of the objects, sorted.

    Raises:
        DataError: a file is wrong, with its name and the number of the object.
    """
    images = root / "JPEGImages" if (root / "JPEGImages").is_dir() else root / "images"
    pictures: dict[str, Annotated] = {}
    files = sorted((root / "Annotations").glob("*.xml"))
    read = {file: _objects(file) for file in files}
    labels = {_text(one, "name") for _, objects in read.values() for one in objects}
    names = list(classes or sorted(labels))
    owners: dict[str, Path] = {}
    for file, (picture, objects) in read.items():
        place = picture_file(images, picture, shown(file))
        owner = owners.setdefault(os.path.normpath(place), file)
        if owner != file:
            raise DataError(
                f"the picture {shown(place)} is that of {owner.name} too",
                subject=shown(file),
                hint="correct filename, or remove one of the files",
            )
        pictures[file.stem] = _annotated(file, place, objects, names)
    main = root / "ImageSets" / "Main"
    named = named_splits(main, lambda name: (main / f"{name}.txt").is_file())
    lists = {split: main / f"{name}.txt" for split, name in named.items()}
    splits = {split: _listed(path, pictures) for split, path in lists.items()}
    if not splits:
        splits, lists = {ALL: list(pictures.values())}, {}
    every = [*files, *lists.values(), *(one.file for one in pictures.values())]
    return BoxFiles(splits, tuple(names), tuple(every))


def _listed(path: Path, pictures: Mapping[str, Annotated]) -> list[Annotated]:
    listed = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        stem = line.split()[0] if line.split() else ""
        if stem and stem not in pictures:
            raise DataError(f"Annotations has no {stem}.xml", subject=f"{shown(path)}:{number}")
        listed += [pictures[stem]] if stem else []
    return sorted(listed, key=lambda one: one.file)


_EDGES = ("xmin", "ymin", "xmax", "ymax")


def _objects(path: Path) -> tuple[str, list[Element]]:
    """Return the picture's name, and the objects in it."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, LookupError, ValueError, ElementTree.ParseError) as error:
        raise DataError(f"cannot be read: {error}", subject=shown(path)) from error
    return _text(root, "filename") or f"{path.stem}.jpg", root.findall("{*}object")


def _text(element: Element, place: str) -> str:
    """Return the text below an element, in any namespace."""
    anywhere = "/".join(f"{{*}}{tag}" for tag in place.split("/"))
    return (element.findtext(anywhere) or "").strip()


def _annotated(
    path: Path, file: Path, objects: Sequence[Element], names: Sequence[str]
) -> Annotated:
    """Return a picture; its pixels count from 1, and a box holds its last ones."""
    size = picture_size(file, shown(path))
    boxes = []
    for number, one in enumerate(objects, 1):
        where = f"{shown(path)}: object {number}"
        try:
            left, top, right, bottom = (float(_text(one, f"bndbox/{edge}")) for edge in _EDGES)
        except ValueError as error:
            raise DataError(
                "the object has no bndbox of xmin, ymin, xmax and ymax", subject=where
            ) from error
        label = known_class(_text(one, "name"), names, where)
        crowd = _text(one, "difficult")
        if crowd not in ("0", "1", ""):
            raise DataError(f"difficult is {crowd!r:.60}, and must be 0 or 1", subject=where)
        box = Box(left - 1, top - 1, right, bottom, label, crowd == "1")
        boxes.append(cut_off(box, size, where))
    return Annotated(file, size, tuple(boxes))
