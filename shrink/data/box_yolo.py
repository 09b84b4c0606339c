"""Boxes in the text files of YOLO: class, centre, width and height as fractions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shrink.base.errors import DataError
from shrink.data.annotation import Annotated, Box, BoxFiles, cut_off, picture_size, text_of
from shrink.data.folders import ALL, IMAGE_ENDINGS, named_splits, shown


def read_yolo(root: Path, classes: Sequence[str] | None) -> BoxFiles:
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
        classes = _listed(listed)
    named = named_splits(root, lambda name: (root / "images" / name).is_dir()) or {ALL: ""}
    splits: dict[str, list[Annotated]] = {}
    for split, name in named.items():
        splits[split] = [
            _annotated(file, root / "labels" / name / f"{file.stem}.txt", classes)
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


def _listed(path: Path) -> list[str]:
    """Return the names of classes in a file: the line is the number."""
    names = [line.strip() for line in text_of(path).rstrip().splitlines()]
    for number, name in enumerate(names, 1):
        if not name or name in names[: number - 1]:
            why = f"the name {name!r} occurs twice" if name else "the line is empty"
            raise DataError(
                why, subject=f"{shown(path)}:{number}", hint="the line is the class's number"
            )
    return names


def _annotated(file: Path, labels: Path, classes: Sequence[str]) -> Annotated:
    """Return a picture; without a text file, or with an empty one, it has no boxes."""
    height, width = picture_size(file, shown(file))
    boxes = []
    lines = text_of(labels).splitlines() if labels.is_file() else []
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
        boxes.append(cut_off(box, (height, width), where))
    return Annotated(file, (height, width), tuple(boxes))
