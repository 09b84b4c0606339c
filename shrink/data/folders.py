"""The names of a data set's files and classes: folders by class, maybe within folders by split."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrink.base.errors import DataError, did_you_mean


def shown(path: str | Path) -> str:
    """Return a path as text that can be printed, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


IMAGE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")


@dataclass(frozen=True)
class FileKind:
    """The files that a data set is made of: what they are called, and how their names end."""

    noun: str
    endings: tuple[str, ...]


IMAGES = FileKind("images", IMAGE_ENDINGS)
CLIPS = FileKind("clips", (".wav",))
TEXTS = FileKind("texts", (".txt",))
SPLIT_OF_NAME = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "validation", "valid"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What a folder, a file or a cell calls a split, and the split's own name."""
ALL = "all"
"""The split of examples that are not divided."""


def named_splits(root: Path, is_there: Callable[[str], bool]) -> dict[str, str]:
    """Return by split what it is called, of those that are there.

    Args:
        root: of the data, for messages.
        is_there: whether there is something of a name.

    Raises:
        DataError: a split has two names there, such as `val` and `validation`.
    """
    named: dict[str, str] = {}
    for name, split in SPLIT_OF_NAME.items():
        if is_there(name) and named.setdefault(split, name) != name:
            raise DataError(
                f"both {named[split]} and {name} are there",
                subject=shown(root),
                hint="keep one of them",
            )
    return named


@dataclass(frozen=True)
class ImageFolders:
    """The images, or other files of one kind, under one folder.

    Attributes:
        root: the folder.
        splits: by split (`train`, `validation`, `test`, or `all` where images are not divided),
            then by class, each in sorted order: file names relative to the root.
        ignored: what was left alone, by kind, with its number.
        names: all of them, sorted by folder, class and name.
        kind: of the files.
    """

    root: Path
    splits: Mapping[str, Mapping[str, Sequence[str]]]
    ignored: Mapping[str, int]
    names: Sequence[str]
    kind: FileKind = IMAGES

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on what was ignored, where anything was."""
        if not self.ignored:
            return ()
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.ignored.items()))
        noun = self.kind.noun.removesuffix("s")
        return (f"ignored in the {noun} folders: {kinds}",)


@dataclass
class _Listing:
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def find_images(root: Path, kind: FileKind = IMAGES) -> ImageFolders:
    """Find the images of `root/<class>/*` or `root/{train,validation,test}/<class>/*`.

    `val` may stand for `validation`. Hidden files, files of another kind by their ending,
    and folders inside a class are ignored and counted; nothing is opened.

    Raises:
        DataError: no such folder, not a folder, unreadable, or without images.
    """
    if not root.exists():
        raise DataError(
            "no such folder",
            subject=shown(root),
            hint="data.path is relative to the recipe, or absolute",
        )
    ignored: Counter[str] = Counter()
    finder = _Finder(root, kind, ignored)
    top = finder.listed("")
    divided = {name: finder.listed(name, Counter()) for name in top.folders if _is_split(name)}
    if any(listing.folders and not listing.files for listing in divided.values()):
        splits = finder.splits(top)
    else:
        splits = {ALL: finder.classes("", top)}
    if not finder.names:
        endings = ", ".join(kind.endings)
        raise DataError(
            f"no {kind.noun} ({endings}) in folders by class",
            subject=shown(root),
            hint=f"put the {kind.noun} of each class into a folder of its name",
        )
    return ImageFolders(root, splits, dict(ignored), finder.names, kind)


def _is_split(name: str) -> bool:
    return name in SPLIT_OF_NAME


class _Finder:
    """Lists folders, collects names, and counts what is left alone."""

    def __init__(self, root: Path, kind: FileKind, ignored: Counter[str]) -> None:
        self._root, self._kind, self._ignored = root, kind, ignored
        self.names: list[str] = []

    def splits(self, top: _Listing) -> dict[str, dict[str, list[str]]]:
        """Return the names in folders by split, by split and class."""
        self._count_outside(top)
        named = named_splits(self._root, top.folders.__contains__)
        if beside := len(top.folders) - len(named):
            self._ignored["folders beside train, validation and test"] += beside
        by_name = sorted(named.items(), key=lambda pair: pair[1])
        return {split: self.classes(name, self.listed(name)) for split, name in by_name}

    def classes(self, split: str, listing: _Listing) -> dict[str, list[str]]:
        """Return the names in folders by class."""
        self._count_outside(listing)
        classes = {}
        for name in sorted(listing.folders):
            relative = f"{split}/{name}" if split else name
            inside = self.listed(relative)
            if inside.folders:
                self._ignored["folders inside class folders"] += len(inside.folders)
            classes[name] = [f"{relative}/{file}" for file in sorted(inside.files)]
            self.names += classes[name]
        return classes

    def _count_outside(self, listing: _Listing) -> None:
        if listing.files:
            self._ignored[f"{self._kind.noun} outside class folders"] += len(listing.files)

    def listed(self, relative: str, ignored: Counter[str] | None = None) -> _Listing:
        """Return what is in a folder; `ignored` counts what is left alone, if not this one's."""
        folder = str(self._root / relative)
        ignored = self._ignored if ignored is None else ignored
        listing = _Listing()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    kind = _kind(entry, folder, self._kind)
                    if kind == "folder":
                        listing.folders.append(entry.name)
                    elif kind == "file":
                        listing.files.append(entry.name)
                    else:
                        ignored[kind] += 1
        except OSError as error:
            raise DataError(
                f"the folder cannot be read: {error.strerror}", subject=shown(folder)
            ) from error
        return listing


def _kind(entry: os.DirEntry[str], folder: str, wanted: FileKind) -> str:
    if entry.name.startswith("."):
        return "hidden files"
    try:
        if entry.is_file():
            is_wanted = entry.name.lower().endswith(wanted.endings)
            return "file" if is_wanted else f"files that are no {wanted.noun}"
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


def class_order(
    present: Collection[str], wanted: Sequence[str] | None, path: Path
) -> tuple[str, ...]:
    """Return the class names by label.

    Args:
        present: the names that the data has.
        wanted: `data.classes`; it may name classes that the data has no example of.
        path: of the data, for messages.

    Raises:
        DataError: a class of the data is not in `wanted`, or one is there twice.
    """
    if wanted is None:
        return tuple(sorted(present))
    if len(set(wanted)) < len(wanted):
        raise DataError("data.classes names a class twice", subject=path)
    for name in sorted(set(present) - set(wanted)):
        near = did_you_mean(name, list(wanted))
        raise DataError(
            f"the class {name!r} is not in data.classes",
            subject=path,
            hint=f"is {near} of data.classes meant? The data has {', '.join(sorted(present))}"
            if near
            else f"the data has {', '.join(sorted(present))}",
        )
    return tuple(wanted)


def named_classes(
    names: tuple[str, ...], count: int | None, wanted: Sequence[str] | None, path: str | None
) -> tuple[str, ...]:
    """Return the names of classes that the data itself only counts: `data.classes`, else `names`.

    Args:
        names: by label, as the source has them: numbers, where it only counts.
        count: how many there are; None where targets are real.
        wanted: `data.classes`.
        path: of the data, for messages.

    Raises:
        DataError: there are more classes than `data.classes` names, or the data has names of its
            own for the labels that it stores, in another order.
    """
    if wanted is None or count is None or names == tuple(wanted):
        return names
    if len(wanted) < count:
        raise DataError(
            f"data.classes has {len(wanted)} names, and the labels go up to {count - 1}",
            subject=path,
        )
    # Labels that the data stores keep their numbers: names in another order would mislabel them.
    moved = any(name in wanted and list(wanted).index(name) != i for i, name in enumerate(names))
    numbers = list(names) == [str(label) for label in range(len(names))]
    if moved and (not numbers or set(names) == set(wanted)):  # 1, 2, 3 may be what 0, 1, 2 mean
        raise DataError(
            f"data.classes has another order than the labels, which are {', '.join(names)}",
            subject=path,
            hint="leave data.classes out, and give the model's outputs the order of the labels: "
            "only words and folders are numbered by data.classes",
        )
    return tuple(wanted)
