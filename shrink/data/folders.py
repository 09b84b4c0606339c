"""File and class names of a data set: class folders, possibly inside split folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
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


def find_images(root: Path, kind: FileKind = IMAGES, flat: bool = False) -> ImageFolders:
    """Find the images of `root/<class>/*` or `root/{train,validation,test}/<class>/*`.

    With `flat` also those of `root/*`, of one class without a name, where folders have none.

    `val` may stand for `validation`. Hidden files, files of another kind by their ending,
    and folders inside a class are ignored and counted; nothing is opened.

    Raises:
        DataError: no such folder, not a folder, unreadable, or without images.
    """
    ignored: Counter[str] = Counter()
    names: list[str] = []

    def count(reason: str, found: Sequence[str]) -> None:
        if found:
            ignored[reason] += len(found)

    def classes_in(
        prefix: str, folders: Sequence[str], files: Sequence[str]
    ) -> dict[str, list[str]]:
        count(f"{kind.noun} outside class folders", files)
        classes = {}
        for name in sorted(folders):
            inside, own = _listed(root, f"{prefix}{name}", kind, ignored)
            count("folders inside class folders", inside)
            classes[name] = [f"{prefix}{name}/{file}" for file in sorted(own)]
            names.extend(classes[name])
        return classes

    folders, files = _listed(root, "", kind, ignored)
    divided = {n: _listed(root, n, kind, Counter()) for n in folders if n in SPLIT_OF_NAME}
    if any(inside and not own for inside, own in divided.values()):
        count(f"{kind.noun} outside class folders", files)
        named = named_splits(root, folders.__contains__)
        count("folders beside train, validation and test", [*{*folders} - {*named.values()}])
        splits = {
            split: classes_in(f"{name}/", *_listed(root, name, kind, ignored))
            for split, name in sorted(named.items(), key=lambda pair: pair[1])
        }
    else:
        splits = {ALL: classes_in("", folders, files)}
    if flat and files and not names:
        names = sorted(files)
        splits = {ALL: {"": names}}
        del ignored[f"{kind.noun} outside class folders"]
    if not names:
        endings = ", ".join(kind.endings)
        raise DataError(
            f"no {kind.noun} ({endings}) in folders by class",
            subject=shown(root),
            hint=f"put the {kind.noun} of each class into a folder of its name"
            + "; to calibrate alone: data.target: none (--data-target none)" * bool(files),
        )
    return ImageFolders(root, splits, dict(ignored), names, kind)


def _listed(
    root: Path, relative: str, wanted: FileKind, ignored: Counter[str]
) -> tuple[list[str], list[str]]:
    """Return the folders and the wanted files in a folder; count what else is there."""
    folder = str(root / relative)
    folders, files = list[str](), list[str]()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.name.startswith("."):
                        ignored["hidden files"] += 1
                    elif entry.is_file():
                        if entry.name.lower().endswith(wanted.endings):
                            files.append(entry.name)
                        else:
                            ignored[f"files that are no {wanted.noun}"] += 1
                    elif not entry.is_dir():
                        ignored["broken links and special files"] += 1
                    elif entry.is_symlink() and f"{os.path.realpath(folder)}/".startswith(
                        os.path.realpath(entry.path).rstrip("/") + "/"
                    ):
                        ignored["links to a folder that contains it"] += 1
                    else:
                        folders.append(entry.name)
                except OSError:  # a link to itself
                    ignored["broken links and special files"] += 1
    except OSError as error:
        raise DataError(
            f"the folder cannot be read: {error.strerror}",
            subject=shown(folder),
            hint="data.path is relative to the recipe, or absolute",
        ) from error
    return folders, files


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
            hint="name every class, or relabel (subtract 1 if labels start at 1)",
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
