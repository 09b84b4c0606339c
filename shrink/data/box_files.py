"""Boxes as others store them: COCO's JSON, YOLO's text files, Pascal VOC's XML; nothing is decoded.

Edges come out in pixels of the picture as it is shown. A box may stick out of its picture by a
pixel, as those of rounded tools do, and is then cut off; one that sticks out farther is an error.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.parsers import expat

from shrink.base.errors import DataError, hint_for
from shrink.base.foreign import Json
from shrink.data.folders import IMAGE_ENDINGS, SPLIT_OF_NAME, shown

ALL = "all"
"""The split of pictures that are not divided."""
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


def read_boxes(path: Path, classes: Sequence[str] | None) -> BoxFiles:
    """Read a COCO file or a folder of them, or a folder in the form of YOLO or Pascal VOC.

    Args:
        path: absolute.
        classes: names by number; None for what the files say.

    Raises:
        DataError: nothing of that is there, or a file is wrong, with its name and place.
    """
    if path.suffix == ".json" and path.is_file():
        return _coco({ALL: path}, classes)
    if (path / "Annotations").is_dir():
        return _voc(path, classes)
    if (path / "labels").is_dir() and (path / "images").is_dir():
        return _yolo(path, classes)
    found = {
        split: path / f"{name}.json"
        for name, split in SPLIT_OF_NAME.items()
        if (path / f"{name}.json").is_file()
    }
    if "train" in found:
        return _coco(found, classes)
    raise DataError(
        "no boxes that shrink reads",
        subject=shown(path),
        hint="give a COCO file, a folder with train.json, one with images/ and labels/ (YOLO), or "
        "one with Annotations/ (Pascal VOC)",
    )


def kind_of_boxes(path: Path) -> Literal["coco", "yolo", "voc"] | None:
    """Return in which form a path holds boxes, by its names alone; None for none."""
    if (path / "Annotations").is_dir():
        return "voc"
    if (path / "labels").is_dir() and (path / "images").is_dir():
        return "yolo"
    return "coco" if path.suffix == ".json" or (path / "train.json").is_file() else None


def _picture(file: Path, where: str) -> tuple[int, int]:
    """Return height and width of a picture as it is shown."""
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


def _checked(box: Box, size: tuple[int, int], where: str) -> Box:
    """Return a box cut off at its picture's edges."""
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


def _within(folder: Path, name: str, where: str) -> Path:
    """Return where a picture is that a file names; a name must not leave the folder."""
    try:
        out = Path(name).is_absolute() or Path(os.path.normpath(name)).parts[:1] == (os.pardir,)
        unfit = "\0" in name or not os.fsencode(name)
    except UnicodeEncodeError:
        out, unfit = False, True
    if out or unfit:
        why = "leaves the folder of the pictures" if out else "is no name of a file"
        raise DataError(
            f"the picture's name {name!r} {why}",
            subject=where,
            hint="give a name relative to the folder, without ..",
        )
    return folder / name


def _known(label: str, classes: Sequence[str], where: str) -> str:
    if label not in classes:
        raise DataError(
            f"there is no class {label!r}", subject=where, hint=hint_for(label, classes)
        )
    return label


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", subject=shown(path)) from error


def _coco(found: Mapping[str, Path], classes: Sequence[str] | None) -> BoxFiles:
    splits: dict[str, list[Annotated]] = {}
    names, files = list(classes or ()), list[Path]()
    for split, path in found.items():
        content = _coco_content(path)
        labels = _coco_labels(path, content)
        names = names or list(labels.values())
        splits[split] = _coco_pictures(path, content, labels, names)
        files += [path, *(one.file for one in splits[split])]
    return BoxFiles(splits, tuple(names), tuple(files))


def _coco_labels(path: Path, content: Mapping[str, Json]) -> dict[int | str, str]:
    """Return names by category, in the order of their numbers, as COCO's own with gaps are."""
    labels: dict[int | str, str] = {}
    for place, row in enumerate(_rows(content, "categories", path)):
        where = f"{shown(path)}: categories[{place}]"
        labels[_new_id(row, labels, where)] = str(_value(row, "name", where))
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
        raise DataError(f"the id {value!r} is there twice", subject=where, hint="give ids once")
    return value


def _coco_content(path: Path) -> dict[str, Json]:
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"no JSON: {error}", subject=shown(path)) from error
    if not isinstance(content, dict):
        raise DataError("no COCO file: it holds no mapping", subject=shown(path))
    return content


def _rows(content: Mapping[str, Json], key: str, path: Path) -> list[Mapping[str, Json]]:
    rows = content.get(key)
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise DataError(f"no COCO file: it has no list {key!r}", subject=shown(path))
    return rows


def _coco_pictures(
    path: Path,
    content: Mapping[str, Json],
    labels: Mapping[int | str, str],
    names: Sequence[str],
) -> list[Annotated]:
    pictures: dict[int | str, tuple[Path, tuple[int, int], list[Box]]] = {}
    for row in _rows(content, "images", path):
        where = f"{shown(path)}: image {row.get('id')!r:.60}"
        own = _new_id(row, pictures, where)
        file = _coco_file(path.parent, str(_value(row, "file_name", where)), where)
        pictures[own] = (file, _picture(file, where), [])
    for row in _rows(content, "annotations", path):
        where = f"{shown(path)}: annotation {row.get('id')!r:.60}"
        image, category = _value(row, "image_id", where), _value(row, "category_id", where)
        if image not in pictures:
            raise DataError(f"there is no image {image!r}", subject=where)
        if category not in labels:
            raise DataError(f"there is no category {category!r}", subject=where)
        _, size, boxes = pictures[image]
        label = _known(labels[category], names, where)
        boxes.append(_checked(_coco_box(row, label, where), size, where))
    every = [Annotated(file, size, tuple(boxes)) for file, size, boxes in pictures.values()]
    return sorted(every, key=lambda one: one.file)


def _coco_box(row: Mapping[str, Json], label: str, where: str) -> Box:
    try:
        left, top, width, height = map(float, row["bbox"])
        area = float(row.get("area", width * height))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError("bbox is not [left, top, width, height]", subject=where) from error
    if not all(map(math.isfinite, (left, top, width, height, area))):
        raise DataError("bbox is not finite, or area is not", subject=where)
    return Box(left, top, left + width, top + height, label, bool(row.get("iscrowd", 0)), area)


def _coco_file(folder: Path, name: str, where: str) -> Path:
    """Return where a picture is: beside the JSON file, or in images/ there."""
    beside = _within(folder, name, where)
    return beside if beside.is_file() else folder / "images" / name


def _yolo(root: Path, classes: Sequence[str] | None) -> BoxFiles:
    listed = root / "classes.txt"
    files = [listed] if classes is None and listed.is_file() else []
    if classes is None:
        if not files:
            raise DataError(
                "YOLO's files have numbers for classes, and nobody said their names",
                subject=shown(root),
                hint="set data.classes, or write the names into classes.txt, one a line",
            )
        classes = [line.strip() for line in _text(listed).splitlines() if line.strip()]
    names = [name for name in SPLIT_OF_NAME if (root / "images" / name).is_dir()]
    splits: dict[str, list[Annotated]] = {}
    for name in names or [""]:
        split = SPLIT_OF_NAME[name] if name else ALL
        splits[split] = [
            _yolo_picture(file, root / "labels" / name / f"{file.stem}.txt", classes)
            for file in sorted((root / "images" / name).iterdir())
            if file.suffix.lower() in IMAGE_ENDINGS
        ]
        labels = sorted((root / "labels" / name).glob("*.txt"))
        stems = {one.file.stem for one in splits[split]}
        for label in labels:
            if label.stem not in stems:
                raise DataError("there is no picture of this name", subject=shown(label))
        files += [*labels, *(one.file for one in splits[split])]
    return BoxFiles(splits, tuple(classes), tuple(files))


def _yolo_picture(file: Path, labels: Path, classes: Sequence[str]) -> Annotated:
    """Return a picture; without a text file, or with an empty one, it has no boxes."""
    height, width = _picture(file, shown(file))
    boxes = []
    lines = _text(labels).splitlines() if labels.is_file() else []
    for number, line in enumerate(lines, 1):
        where = f"{shown(labels)}:{number}"
        if not line.strip():
            continue
        try:
            label, x, y, w, h = (float(part) for part in line.split())
        except ValueError as error:
            raise DataError(
                f"not five numbers, class, centre, width and height: {line[:60]!r}", subject=where
            ) from error
        if not label.is_integer() or not 0 <= label < len(classes):
            raise DataError(
                f"there is no class {label:g}; classes are 0 to {len(classes) - 1}", subject=where
            )
        box = Box(
            (x - w / 2) * width,
            (y - h / 2) * height,
            (x + w / 2) * width,
            (y + h / 2) * height,
            classes[int(label)],
        )
        boxes.append(_checked(box, (height, width), where))
    return Annotated(file, (height, width), tuple(boxes))


@dataclass
class _Object:
    """An `object` of Pascal VOC: its line, and the text of what it holds by name."""

    line: int
    texts: dict[str, str]


def _voc(root: Path, classes: Sequence[str] | None) -> BoxFiles:
    images = root / "JPEGImages" if (root / "JPEGImages").is_dir() else root / "images"
    pictures: dict[str, Annotated] = {}
    files = sorted((root / "Annotations").glob("*.xml"))
    read = {file: _voc_objects(file) for file in files}
    labels = {one.texts.get("name", "") for _, objects in read.values() for one in objects}
    names = list(classes or sorted(labels))
    for file, (picture, objects) in read.items():
        place = _within(images, picture, shown(file))
        pictures[file.stem] = _voc_picture(file, place, objects, names)
    lists = {
        split: root / "ImageSets" / "Main" / f"{name}.txt"
        for name, split in SPLIT_OF_NAME.items()
        if (root / "ImageSets" / "Main" / f"{name}.txt").is_file()
    }
    splits = {split: _voc_listed(path, pictures) for split, path in lists.items()}
    if "train" not in splits:
        splits, lists = {ALL: list(pictures.values())}, {}
    every = [*files, *lists.values(), *(one.file for one in pictures.values())]
    return BoxFiles(splits, tuple(names), tuple(every))


def _voc_listed(path: Path, pictures: Mapping[str, Annotated]) -> list[Annotated]:
    listed = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        stem = line.split()[0] if line.split() else ""
        if stem and stem not in pictures:
            raise DataError(f"Annotations has no {stem}.xml", subject=f"{shown(path)}:{number}")
        listed += [pictures[stem]] if stem else []
    return sorted(listed, key=lambda one: one.file)


_EDGES = ("xmin", "ymin", "xmax", "ymax")
_VOC_TEXTS = [
    ["object", "name"],
    ["object", "difficult"],
    *(["object", "bndbox", edge] for edge in _EDGES),
]


def _voc_objects(path: Path) -> tuple[str, list[_Object]]:
    """Return the picture's name, and the objects with their lines."""
    parser, objects, trail = expat.ParserCreate(), list[_Object](), list[str]()
    picture = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        trail.append(name)
        if trail[1:] == ["object"]:
            objects.append(_Object(parser.CurrentLineNumber, {}))

    def text(content: str) -> None:
        nonlocal picture
        if trail[1:] == ["filename"]:
            picture += content.strip()
        elif trail[1:] in _VOC_TEXTS:
            texts = objects[-1].texts
            texts[trail[-1]] = texts.get(trail[-1], "") + content.strip()

    parser.StartElementHandler, parser.CharacterDataHandler = start, text
    parser.EndElementHandler = lambda name: trail.pop() and None
    try:
        parser.Parse(path.read_bytes(), True)
    except (OSError, expat.ExpatError) as error:
        raise DataError(f"cannot be read: {error}", subject=shown(path)) from error
    return picture or f"{path.stem}.jpg", objects


def _voc_picture(
    path: Path, file: Path, objects: Sequence[_Object], names: Sequence[str]
) -> Annotated:
    """Return a picture; its pixels count from 1, and a box holds its last ones."""
    size = _picture(file, shown(path))
    boxes = []
    for one in objects:
        where = f"{shown(path)}:{one.line}"
        try:
            left, top, right, bottom = (float(one.texts[key]) for key in _EDGES)
        except (KeyError, ValueError) as error:
            raise DataError(
                "the object has no bndbox of xmin, ymin, xmax and ymax", subject=where
            ) from error
        label = _known(one.texts.get("name", ""), names, where)
        crowd = one.texts.get("difficult") == "1"
        boxes.append(_checked(Box(left - 1, top - 1, right, bottom, label, crowd), size, where))
    return Annotated(file, size, tuple(boxes))
