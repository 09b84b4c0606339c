"""Folders of images and of masks, matched by the stems of their names; light."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.base.errors import DataError
from shrink.data.folders import ALL, IMAGE_ENDINGS, SPLIT_OF_NAME, named_splits, shown

IMAGES, MASKS = "images", "masks"
MASK_ENDING = ".png"
_HINT = "put the images into images/, and for each a PNG with the same stem into masks/"


@dataclass(frozen=True)
class Pairs:
    """Images with a mask each.

    Attributes:
        root: the folder that names are relative to.
        splits: by split (`train`, `validation`, `test`, or `all`): images and, in the same order,
            their masks, sorted by stem.
    """

    root: Path
    splits: Mapping[str, tuple[Sequence[str], Sequence[str]]]

    def names(self) -> list[str]:
        """Return all names: of each split the images, then the masks."""
        return [name for pair in self.splits.values() for names in pair for name in names]


def holds_masks(path: Path) -> bool:
    """Whether a folder has images and masks, divided by split or not."""
    parts = [path, *(path / name for name in SPLIT_OF_NAME)]
    return any((p / IMAGES).is_dir() and (p / MASKS).is_dir() for p in parts)


def find_pairs(root: Path) -> Pairs:
    """Find `root/images/*` with `root/masks/*.png`, or the same in `root/{train,...}/`.

    Nothing is opened. Hidden files are left alone.

    Raises:
        DataError: no such folder, no images, or an image without mask, a mask without
            image, or two files of one stem.
    """
    if (root / IMAGES).is_dir() or (root / MASKS).is_dir():
        return Pairs(root, {ALL: _paired(root, "")})
    named = named_splits(root, lambda name: (root / name).is_dir())
    if not named:
        raise DataError("no folders images and masks", subject=shown(root), hint=_HINT)
    by_folder = sorted(named.items(), key=lambda pair: pair[1])
    return Pairs(root, {split: _paired(root, f"{folder}/") for split, folder in by_folder})


def _paired(root: Path, prefix: str) -> tuple[list[str], list[str]]:
    images = _by_stem(root, f"{prefix}{IMAGES}", IMAGE_ENDINGS)
    masks = _by_stem(root, f"{prefix}{MASKS}", (MASK_ENDING,))
    for stem in sorted(images.keys() ^ masks.keys()):
        found, lacking = (images, MASKS) if stem in images else (masks, IMAGES)
        raise DataError(
            f"there is no file {shown(stem)}.* in {prefix}{lacking}/",
            subject=shown(root / found[stem]),
            hint=_HINT,
        )
    if not images:
        raise DataError("no images", subject=shown(root / f"{prefix}{IMAGES}"), hint=_HINT)
    stems = sorted(images)
    return [images[stem] for stem in stems], [masks[stem] for stem in stems]


def _by_stem(root: Path, folder: str, endings: tuple[str, ...]) -> dict[str, str]:
    """Return names relative to the root by stem."""
    found: dict[str, str] = {}
    try:
        entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(
            f"the folder cannot be read: {error.strerror}",
            subject=shown(root / folder),
            hint=_HINT,
        ) from error
    for entry in entries:
        if entry.name.startswith(".") or entry.is_dir():
            continue
        stem, ending = os.path.splitext(entry.name)  # noqa: PTH122  names may be of any bytes
        name = f"{folder}/{entry.name}"
        if ending.lower() not in endings:
            raise DataError(
                f"not one of {', '.join(endings)}",
                subject=shown(root / name),
                hint=f"{folder}/ takes such files alone",
            )
        if stem in found:
            raise DataError(
                f"it has the stem of {shown(found[stem])}",
                subject=shown(root / name),
                hint="keep one of them",
            )
        found[stem] = name
    return found
