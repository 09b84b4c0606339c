"""Finding the pictures of a data set: folders by class, maybe within folders by part."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shrink.base.errors import DataError
from shrink.data.listing import Names

PICTURE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_PART_OF_FOLDER = {
    "train": "train",
    "validation": "validation",
    "val": "validation",
    "test": "test",
}


@dataclass(frozen=True)
class PictureFolders:
    """The pictures under one folder.

    Attributes:
        root: the folder.
        parts: by part (`train`, `validation`, `test`, or `all` where pictures are not divided),
            then by class, each in sorted order: file names relative to the root.
        ignored: what was left alone, by kind, with its number.
        names: all of them, sorted by folder, class and name, whose memory `parts` share.
    """

    root: Path
    parts: Mapping[str, Mapping[str, Names]]
    ignored: Mapping[str, int]
    names: Names

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on what was ignored, where anything was."""
        if not self.ignored:
            return ()
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.ignored.items()))
        return (f"ignored in the picture folders: {kinds}",)


@dataclass
class _Listing:
    folders: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)


def find_pictures(root: Path) -> PictureFolders:
    """Find the pictures of `root/<class>/*` or `root/{train,validation,test}/<class>/*`.

    `val` may stand for `validation`. Hidden files, files that are no pictures by their ending,
    and folders inside a class are ignored and counted; nothing is opened.

    Raises:
        DataError: no such folder, not a folder, unreadable, or without pictures.
    """
    if not root.exists():
        raise DataError(
            "no such folder",
            subject=shown(root),
            hint="data.path is relative to the recipe, or absolute",
        )
    ignored: Counter[str] = Counter()
    names = Names()
    top = _list(str(root), ignored)
    divided = {name: _list(str(root / name), Counter()) for name in top.folders if _is_part(name)}
    if any(listing.folders and not listing.pictures for listing in divided.values()):
        parts = _parts(root, top, ignored, names)
    else:
        parts = {"all": _classes(root, "", top, ignored, names)}
    if not names:
        endings = ", ".join(PICTURE_ENDINGS)
        raise DataError(
            f"no pictures ({endings}) in folders by class",
            subject=shown(root),
            hint="put the pictures of each class into a folder of its name",
        )
    return PictureFolders(root, parts, dict(ignored), names)


def shown(path: str | Path) -> str:
    """Return a path as text that can be printed, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_part(name: str) -> bool:
    return name in _PART_OF_FOLDER


def _parts(
    root: Path, top: _Listing, ignored: Counter[str], names: Names
) -> dict[str, dict[str, Names]]:
    _count_outside(top, ignored)
    parts: dict[str, dict[str, Names]] = {}
    for name in sorted(top.folders):
        if not _is_part(name):
            ignored["folders beside train, validation and test"] += 1
            continue
        part = _PART_OF_FOLDER[name]
        if part in parts:
            raise DataError(
                "both val and validation are there", subject=shown(root), hint="keep one of them"
            )
        parts[part] = _classes(root, name, _list(str(root / name), ignored), ignored, names)
    return parts


def _classes(
    root: Path, part: str, listing: _Listing, ignored: Counter[str], names: Names
) -> dict[str, Names]:
    _count_outside(listing, ignored)
    classes = {}
    for name in sorted(listing.folders):
        relative = f"{part}/{name}" if part else name
        inside = _list(str(root / relative), ignored)
        if inside.folders:
            ignored["folders inside class folders"] += len(inside.folders)
        first = len(names)
        for picture in sorted(inside.pictures):
            names.append(f"{relative}/{picture}")
        classes[name] = names.take(range(first, len(names)))
    return classes


def _count_outside(listing: _Listing, ignored: Counter[str]) -> None:
    if listing.pictures:
        ignored["pictures outside class folders"] += len(listing.pictures)


def _list(folder: str, ignored: Counter[str]) -> _Listing:
    listing = _Listing()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                kind = _kind(entry, folder)
                if kind == "folder":
                    listing.folders.append(entry.name)
                elif kind == "picture":
                    listing.pictures.append(entry.name)
                else:
                    ignored[kind] += 1
    except OSError as error:
        raise DataError(
            f"the folder cannot be read: {error.strerror}", subject=shown(folder)
        ) from error
    return listing


def _kind(entry: os.DirEntry[str], folder: str) -> str:
    if entry.name.startswith("."):
        return "hidden files"
    try:
        if entry.is_file():
            is_picture = entry.name.lower().endswith(PICTURE_ENDINGS)
            return "picture" if is_picture else "files that are no pictures"
        if entry.is_dir():
            return "links to a folder around them" if _is_loop(entry, folder) else "folder"
    except OSError:  # a link to itself
        pass
    return "broken links and special files"


def _is_loop(entry: os.DirEntry[str], folder: str) -> bool:
    if not entry.is_symlink():
        return False
    around, target = os.path.realpath(folder), os.path.realpath(entry.path)
    return os.path.commonpath([around, target]) == target
