"""Boxes in COCO's JSON, in YOLO's text files and in Pascal VOC's XML; no picture is decoded.

Lin et al. 2014; Everingham et al. 2010. Edges come out in pixels of the picture as it is shown. A
box may stick out of its picture by a pixel, as those of rounded tools do, and is then cut off; one
that sticks out farther is an error.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from shrink.base.errors import DataError, hint_for
from shrink.base.foreign import Json
from shrink.data.folders import ALL, IMAGE_ENDINGS, named_splits, shown

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


def _picture_size(file: Path, where: str) -> tuple[int, int]:
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


def _cut_off(box: Box, size: tuple[int, int], where: str) -> Box:
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
    return replace(
        box,
        left=_between(box.left, width),
        top=_between(box.top, height),
        right=_between(box.right, width),
        bottom=_between(box.bottom, height),
    )


def _between(edge: float, end: float) -> float:
    return min(max(edge, 0.0), end)


def _picture_file(folder: Path, name: str, where: str) -> Path:
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


def _known_class(label: str, classes: Sequence[str], where: str) -> str:
    """Return a class's name, which stands among `classes`; else raise `DataError`."""
    if label not in classes:
        raise DataError(
            f"there is no class {label!r}", subject=where, hint=hint_for(label, classes)
        )
    return label


def _text_of(path: Path) -> str:
    """Return what a file holds; raise `DataError` where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", subject=shown(path)) from error


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
        return _read_coco({ALL: path}, classes)
    if (path / "Annotations").is_dir():
        return _read_voc(path, classes)
    if (path / "labels").is_dir() and (path / "images").is_dir():
        return _read_yolo(path, classes)
    named = named_splits(path, lambda name: (path / f"{name}.json").is_file())
    if named:
        return _read_coco({split: path / f"{n}.json" for split, n in named.items()}, classes)
    raise DataError(
        "no boxes that shrink reads",
        subject=shown(path),
        hint="give a COCO file, a folder with train.json or test.json, one with images/ and "
        "labels/ (YOLO), or one with Annotations/ (Pascal VOC)",
    )


def _read_coco(found: Mapping[str, Path], classes: Sequence[str] | None) -> BoxFiles:
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
            content = json.loads(_text_of(path))
        except (ValueError, RecursionError) as error:
            raise DataError(f"no JSON: {error}", subject=shown(path)) from error
        if not isinstance(content, dict):
            raise DataError("no COCO file: it holds no mapping", subject=shown(path))
        labels = _labels(path, content)
        names = names or list(labels.values())
        splits[split] = _coco_pictures(path, content, labels, names)
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


def _coco_pictures(
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
        beside = _picture_file(path.parent, name, where)
        file = beside if beside.is_file() else path.parent / "images" / name
        owner = owners.setdefault(os.path.normpath(file), own)
        if owner != own:
            raise DataError(
                f"the picture {shown(file)} is image {owner!r} too",
                subject=where,
                hint="name a picture once, and give its annotations the id of that image",
            )
        pictures[own] = (file, _picture_size(file, where), [])
    for row in _rows(content, "annotations", path):
        where = f"{shown(path)}: annotation {row.get('id')!r:.60}"
        image, category = _value(row, "image_id", where), _value(row, "category_id", where)
        if image not in pictures:
            raise DataError(f"there is no image {image!r}", subject=where)
        if category not in labels:
            raise DataError(f"there is no category {category!r}", subject=where)
        _, size, boxes = pictures[image]
        label = _known_class(labels[category], names, where)
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
            _cut_off(
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


def _read_voc(root: Path, classes: Sequence[str] | None) -> BoxFiles:
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
        place = _picture_file(images, picture, shown(file))
        owner = owners.setdefault(os.path.normpath(place), file)
        if owner != file:
            raise DataError(
                f"the picture {shown(place)} also belongs to {owner.name}",
                subject=shown(file),
                hint="correct filename, or remove one of the files",
            )
        pictures[file.stem] = _voc_picture(file, place, objects, names)
    main = root / "ImageSets" / "Main"
    named = named_splits(main, lambda name: (main / f"{name}.txt").is_file())
    lists = {split: main / f"{name}.txt" for split, name in named.items()}
    splits = {split: _listed_pictures(path, pictures) for split, path in lists.items()}
    both = main / "trainval.txt"
    if splits and "train" not in splits and both.is_file():  # as VOC2007 comes
        held_out = {one.file for own in splits.values() for one in own}
        rest = [one for one in _listed_pictures(both, pictures) if one.file not in held_out]
        splits, lists = {"train": rest, **splits}, {"train": both, **lists}
    if not splits:
        splits, lists = {ALL: list(pictures.values())}, {}
    every = [*files, *lists.values(), *(one.file for one in pictures.values())]
    return BoxFiles(splits, tuple(names), tuple(every))


def _listed_pictures(path: Path, pictures: Mapping[str, Annotated]) -> list[Annotated]:
    listed = []
    for number, line in enumerate(_text_of(path).splitlines(), 1):
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


def _voc_picture(
    path: Path, file: Path, objects: Sequence[Element], names: Sequence[str]
) -> Annotated:
    """Return a picture; its pixels count from 1, and a box holds its last ones."""
    size = _picture_size(file, shown(path))
    boxes = []
    for number, one in enumerate(objects, 1):
        where = f"{shown(path)}: object {number}"
        try:
            left, top, right, bottom = (float(_text(one, f"bndbox/{edge}")) for edge in _EDGES)
        except ValueError as error:
            raise DataError(
                "the object has no bndbox of xmin, ymin, xmax and ymax", subject=where
            ) from error
        label = _known_class(_text(one, "name"), names, where)
        crowd = _text(one, "difficult")
        if crowd not in ("0", "1", ""):
            raise DataError(f"difficult is {crowd!r:.60}, and must be 0 or 1", subject=where)
        box = Box(left - 1, top - 1, right, bottom, label, crowd == "1")
        boxes.append(_cut_off(box, size, where))
    return Annotated(file, size, tuple(boxes))


def _read_yolo(root: Path, classes: Sequence[str] | None) -> BoxFiles:
    """Read the pictures of `images/` with the text files of `labels/`.

    Args:
        root: absolute.
        classes: names by number; None for those of `classes.txt`.

    Raises:
        DataError: a file is wrong, with its name and line, or nobody says the names.
    """
    listed = root / "classes.txt"
    files = [listed] if classes is None and listed.is_file() else []
    if classes is None:
        if not files:
            raise DataError(
                "YOLO's files have numbers for classes, and their names are unknown",
                subject=shown(root),
                hint="set data.classes, or write the names into classes.txt, one a line",
            )
        classes = _class_names(listed)
    named = named_splits(root, lambda name: (root / "images" / name).is_dir()) or {ALL: ""}
    splits: dict[str, list[Annotated]] = {}
    for split, name in named.items():
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


def _class_names(path: Path) -> list[str]:
    """Return the names of classes in a file: the line is the number."""
    names = [line.strip() for line in _text_of(path).rstrip().splitlines()]
    for number, name in enumerate(names, 1):
        if not name or name in names[: number - 1]:
            why = f"the name {name!r} occurs twice" if name else "the line is empty"
            raise DataError(
                why, subject=f"{shown(path)}:{number}", hint="the line is the class's number"
            )
    return names


def _yolo_picture(file: Path, labels: Path, classes: Sequence[str]) -> Annotated:
    """Return a picture; without a text file, or with an empty one, it has no boxes."""
    height, width = _picture_size(file, shown(file))
    boxes = []
    lines = _text_of(labels).splitlines() if labels.is_file() else []
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
        boxes.append(_cut_off(box, (height, width), where))
    return Annotated(file, (height, width), tuple(boxes))
