"""Boxes in COCO's JSON (Lin et al. 2014)."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from shrink.base.errors import DataError
from shrink.base.foreign import Json
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
from shrink.data.folders import shown


def read_coco(found: Mapping[str, Path], classes: Sequence[str] | None) -> BoxFiles:
    """Read COCO files.

    Args:
        found: absolute paths by split.
        classes: names by number; None for the categories of the first file, by their ids.

    Raises:
        DataError: a file is wrong, with its name and place.
    """
    splits: dict[str, list[Annotated]] = {}
    names, files = list(classes or ()), list[Path]()
    for split, path in found.items():
        try:
            content = json.loads(text_of(path))
        except (ValueError, RecursionError) as error:
            raise DataError(f"no JSON: {error}", subject=shown(path)) from error
        if not isinstance(content, dict):
            raise DataError("no COCO file: it holds no mapping", subject=shown(path))
        labels = _labels(path, content)
        names = names or list(labels.values())
        splits[split] = _pictures(path, content, labels, names)
        files += [path, *(one.file for one in splits[split])]
    return BoxFiles(splits, tuple(names), tuple(files))


def _labels(path: Path, content: Mapping[str, Json]) -> dict[int | str, str]:
    """Return names by category, in the order of their numbers, as COCO's own with gaps are."""
    labels: dict[int | str, str] = {}
    for place, row in enumerate(_rows(content, "categories", path)):
        where = f"{shown(path)}: categories[{place}]"
        own, name = _new_id(row, labels, where), str(_value(row, "name", where))
        if name in labels.values():
            raise DataError(
                f"the name {name!r} occurs twice",
                subject=where,
                hint="give the category another name, or its annotations the id of the other",
            )
        labels[own] = name
    if len({type(one) for one in labels}) > 1:
        raise DataError(
            "ids of categories are numbers and texts", subject=shown(path), hint="make all numbers"
        )
    return {one: labels[one] for one in sorted(labels, key=_order)}


def _order(key: int | str) -> tuple[int, str]:
    return (key, "") if isinstance(key, int) else (0, key)


def _value(row: Mapping[str, Json], key: str, where: str) -> int | str:
    """Return a number or a text that is not empty: an id, or a name."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        given = f"is {value!r:.60}" if key in row else "is missing"
        raise DataError(f"{key} {given}, and must be a whole number or a text", subject=where)
    return value


def _new_id(row: Mapping[str, Json], taken: Container[int | str], where: str) -> int | str:
    """Return a row's id, which no row before it has."""
    value = _value(row, "id", where)
    if value in taken:
        raise DataError(f"the id {value!r} occurs twice", subject=where, hint="give ids once")
    return value


def _rows(content: Mapping[str, Json], key: str, path: Path) -> list[Mapping[str, Json]]:
    rows = content.get(key)
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise DataError(f"no COCO file: it has no list {key!r}", subject=shown(path))
    return rows


def _pictures(
    path: Path,
    content: Mapping[str, Json],
    labels: Mapping[int | str, str],
    names: Sequence[str],
) -> list[Annotated]:
    pictures: dict[int | str, tuple[Path, tuple[int, int], list[Box]]] = {}
    owners: dict[str, int | str] = {}
    for row in _rows(content, "images", path):
        where = f"{shown(path)}: image {row.get('id')!r:.60}"
        own = _new_id(row, pictures, where)
        # Where a picture is: beside the JSON file, or in images/ there.
        name = str(_value(row, "file_name", where))
        beside = picture_file(path.parent, name, where)
        file = beside if beside.is_file() else path.parent / "images" / name
        owner = owners.setdefault(os.path.normpath(file), own)
        if owner != own:
            raise DataError(
                f"the picture {shown(file)} is image {owner!r} too",
                subject=where,
                hint="name a picture once, and give its annotations the id of that image",
            )
        pictures[own] = (file, picture_size(file, where), [])
    for row in _rows(content, "annotations", path):
        where = f"{shown(path)}: annotation {row.get('id')!r:.60}"
        image, category = _value(row, "image_id", where), _value(row, "category_id", where)
        if image not in pictures:
            raise DataError(f"there is no image {image!r}", subject=where)
        if category not in labels:
            raise DataError(f"there is no category {category!r}", subject=where)
        _, size, boxes = pictures[image]
        label = known_class(labels[category], names, where)
        edges = row.get("bbox")
        if not isinstance(edges, list) or len(edges) != 4:
            raise DataError("bbox is not [left, top, width, height]", subject=where)
        left, top, width, height = (_number(edge, "bbox", where) for edge in edges)
        area = _number(row.get("area", width * height), "area", where)
        if area < 0:
            raise DataError(f"area is {area:g}, and must be 0 or more", subject=where)
        crowd = row.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise DataError(f"iscrowd is {crowd!r:.60}, and must be 0 or 1", subject=where)
        boxes.append(
            cut_off(
                Box(left, top, left + width, top + height, label, crowd == 1, area), size, where
            )
        )
    every = [Annotated(file, size, tuple(boxes)) for file, size, boxes in pictures.values()]
    return sorted(every, key=lambda one: one.file)


def _number(value: Json, key: str, where: str) -> float:
    """Return a finite number; a text that looks like one is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        held = "is" if key == "area" else "holds"
        hint = "leave area out for width times height" if key == "area" else None
        raise DataError(
            f"{key} {held} {value!r:.60}, which is not a number", subject=where, hint=hint
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise DataError(f"{key} is not finite", subject=where)
    return number
