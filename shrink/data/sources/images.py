"""Images in folders or in a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.base.file_hashes import hash_files
from shrink.data.bad_examples import without_bad_files
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import ImageDecoder, read_first_image
from shrink.data.examples import SPLIT_NAMES
from shrink.data.folders import (
    ALL,
    IMAGES,
    FileKind,
    ImageFolders,
    Names,
    class_order,
    find_images,
    shown,
)
from shrink.data.membership import Membership, contents_of
from shrink.data.pictures import TargetedPictures
from shrink.data.slice_config import SliceConfig
from shrink.data.slices import listed_values, path_values
from shrink.data.splits import derived_splits
from shrink.data.table import Listing, read_listing

Numbered = tuple[Names, np.ndarray]
"""Absolute paths, and int64 (n,) labels or float32 (n, k) targets."""


@dataclass(frozen=True)
class Images:
    """What a folder or a CSV file names.

    Attributes:
        path: the folder or file.
        root: the folder that names are relative to, where they are not absolute.
        names: of all images, whose memory `splits` share.
        splits: files and targets by split.
        class_names: of the labels; empty where targets are real.
        num_classes: None where targets are real.
        notes: for the report.
        rows: of each split, the place of its files in the list or folder, int64 (n,).
        columns: of a list: its other columns, a text for each row.
    """

    path: Path
    root: Path
    names: Names
    splits: Mapping[str, Numbered]
    class_names: tuple[str, ...]
    num_classes: int | None
    notes: tuple[str, ...] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)

    def files(self) -> Names:
        """Return the files of the split that decides shapes."""
        return (self.splits.get(ALL) or self.splits["train"])[0]


def listed_images(path: Path, config: DataConfig) -> Images:
    """Return the images of a CSV file.

    A single target column of names, or of whole numbers from 0, holds labels; several columns,
    or fractions, are real targets.

    Raises:
        DataError: it cannot be read, a target is no number, or a single label.
    """
    targets = config.targets or ("label",)
    listing = read_listing(path, targets if config.target == "label" else ())
    files = listing.files.under(str(path.parent))
    names: tuple[str, ...] = ()
    values = np.zeros((len(files), 0), np.float32)
    if config.target == "label":
        names, values = listed_targets(listing, targets, config.classes)
    if values.ndim == 1 and len(np.unique(values)) == 1:
        raise DataError(
            f"all labels are {names[int(values[0])]}: nothing to tell apart",
            subject=path,
            hint="list images of other classes",
        )
    rows = _rows(listing)
    splits = {split: (files.take(chosen), values[chosen]) for split, chosen in rows.items()}
    return Images(
        path,
        path.parent,
        listing.files,
        splits,
        names,
        len(names) or None,
        columns=listing.columns,
        rows=rows,
    )


def _rows(listing: Listing) -> dict[str, np.ndarray]:
    if listing.splits is None:
        return {ALL: np.arange(len(listing.files))}
    splits = np.array(listing.splits)
    if "train" not in listing.splits:
        raise DataError(
            "no row of the column split is train", subject=listing.path, hint="add such rows"
        )
    return {str(split): np.flatnonzero(splits == split) for split in np.unique(splits)}


def listed_targets(
    listing: Listing, columns: Sequence[str], classes: Sequence[str] | None = None
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the labels and int64 (n,), or no names and float32 (n, k).

    Raises:
        DataError: one of several columns holds no numbers.
    """
    if len(columns) > 1:
        columns_of_numbers = [numbers_of(listing, column) for column in columns]
        return (), np.stack(columns_of_numbers, axis=1).astype(np.float32)
    cells = listing.columns[columns[0]]
    if all(cell.isdecimal() and len(cell) < 7 for cell in cells):
        labels = np.array([int(cell) for cell in cells], np.int64)
        return tuple(map(str, range(int(labels.max()) + 1))), labels
    try:
        return (), numbers_of(listing, columns[0])[:, None].astype(np.float32)
    except DataError:
        names = class_order(set(cells), classes, listing.path)
        number = {name: label for label, name in enumerate(names)}
        return names, np.fromiter(map(number.__getitem__, cells), np.int64, len(cells))


def numbers_of(listing: Listing, column: str) -> np.ndarray:
    """Return a column as float64 (n,).

    Raises:
        DataError: a cell is no finite number.
    """
    values = np.empty(len(listing.files))
    for row, cell in enumerate(listing.columns[column]):
        try:
            values[row] = float(cell)
        except ValueError:
            values[row] = np.nan
        if not np.isfinite(values[row]):
            raise DataError(
                f"{column} in line {row + 2} is {cell!r}, not a finite number",
                subject=listing.path,
                hint="correct the row, or remove it",
            )
    return values


_MOST_TRIED = 100


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the images under `config.path`; without `on_bad_example: skip`, only one is read.

    Raises:
        DataError: no such folder, no images, a class that is missing in a split, a single
            class, a first image that cannot be decoded, or too many that cannot be.
    """
    images, decoder = open_images(config, skip=config.on_bad_example == "skip")
    if config.on_bad_example == "skip":
        images = _without_bad(images, decoder, config)
    parts, rows = divided(images, config, seed)
    opened = {split: TargetedPictures(*parts[split], decoder) for split in SPLIT_NAMES}
    files = {split: parts[split][0] for split in SPLIT_NAMES}
    contents = contents_of(files, *_hashed(images))
    return Dataset(
        train=opened["train"],
        validation=opened["validation"],
        test=opened["test"],
        class_names=images.class_names,
        num_classes=images.num_classes,
        notes=images.notes,
        given=frozenset(images.splits) - {ALL, "train"},
        known_membership=Membership("file", contents, files),
        slice_values=sliced(images, parts, rows, config.slices or ()),
    )


def _without_bad(images: Images, decoder: ImageDecoder, config: DataConfig) -> Images:
    places = {split: np.arange(len(files)) for split, (files, _) in images.splits.items()}
    listed = {split: (files, places[split]) for split, (files, _) in images.splits.items()}
    kept, notes = without_bad_files(listed, decoder, config)
    return replace(
        images,
        splits={p: (files, images.splits[p][1][good]) for p, (files, good) in kept.items()},
        rows={split: images.rows[split][good] for split, (_, good) in kept.items()},
        notes=(*images.notes, *notes),
    )


def sliced(
    images: Images,
    divided: Mapping[str, Numbered],
    rows: Mapping[str, np.ndarray],
    slices: Sequence[SliceConfig],
) -> dict[str, dict[str, np.ndarray]]:
    """Return by split what each file is in, by the column of a list or by its path."""
    columns = listed_values(slices, images.columns, images.path)
    return {
        split: {by: values[rows[split]] for by, values in columns.items()}
        | path_values(slices, files, images.root)
        for split, (files, _) in divided.items()
    }


def _hashed(images: Images) -> tuple[Names, bytes]:
    """Return the path of each file, once, and the SHA-256 of each file's content."""
    names = images.names.unique()
    digests = hash_files(images.root, names, images.path)
    return names.under(str(images.root)), digests


def open_images(config: DataConfig, skip: bool) -> tuple[Images, ImageDecoder]:
    """Return the images that a `data` section names, and what decodes them.

    Args:
        config: the `data` section.
        skip: whether the first image may be one that cannot be decoded.

    Raises:
        DataError: see `open_source`.
    """
    path = Path(config.path or "").expanduser().absolute()
    images = in_folders(path, config) if path.is_dir() else listed_images(path, config)
    return images, image_decoder(config, images.files(), skip)


def fitted_to(
    config: DataConfig, wanted: Callable[[], tuple[int, int, int] | None]
) -> tuple[DataConfig, str | None]:
    """Return a `data` section whose images have the shape that a model takes, and a note.

    Only what the section leaves open is filled in, and only where the first image has another
    shape than the model's input.

    Args:
        config: the `data` section.
        wanted: returns height, width and channels (1 or 3), or None where a model takes no one
            image; called only where images could be fitted.

    Raises:
        DataError: see `open_source`.
    """
    if config.source != "images" or config.image_size is not None:
        return config, None
    path = Path(config.path or "").expanduser().absolute()
    images = in_folders(path, config) if path.is_dir() else listed_images(path, config)
    _, (height, width, channels) = _first_image(
        images.files(), skip=config.on_bad_example == "skip"
    )
    shape = wanted()
    own = (height, width, config.channels or channels)
    if shape is None or own == shape:
        return config, None
    changes: dict[str, object] = {"image_size": shape[:2]} if own[:2] != shape[:2] else {}
    if own[2] != shape[2] and config.channels is None:
        changes["channels"] = shape[2]
    sizes = " x ".join(map(str, own)), " x ".join(map(str, shape))
    note = f"images of {sizes[0]} are brought to the model's input, {sizes[1]}; data.image_size"
    return config.model_copy(update=changes), f"{note} and data.channels say otherwise"


def in_folders(path: Path, config: DataConfig, kind: FileKind = IMAGES) -> Images:
    """Return the images, or files of another kind, in folders by class.

    An autoencoder's may lack classes: it is trained on what is normal, and tested on the rest too.

    Raises:
        DataError: no such folder, no files, a class that is missing in a split, or a single class.
    """
    folders = find_images(path, kind)
    _check_classes(folders, needs_two=config.target == "label")
    present = sorted({name for classes in folders.splits.values() for name in classes})
    names = class_order(present, config.classes, path)
    splits, rows, first = {}, {}, 0
    for split, classes in folders.splits.items():
        counts = [len(files) for files in classes.values()]
        rows[split] = np.arange(first, first + sum(counts))
        files = folders.names.take(rows[split]).under(str(path))
        labels = np.array([names.index(name) for name in classes], np.int64)
        splits[split] = files, np.repeat(labels, counts)
        first += sum(counts)
    notes = folders.notes()
    return Images(path, path, folders.names, splits, names, len(names), notes, rows=rows)


def _check_classes(folders: ImageFolders, needs_two: bool) -> None:
    root, endings = folders.root, ", ".join(folders.kind.endings)
    if ALL not in folders.splits and "train" not in folders.splits:
        names = ", ".join(sorted(folders.splits))
        raise DataError(
            f"there is {names}, and no folder train", subject=shown(root), hint="add a folder train"
        )
    every = {name for classes in folders.splits.values() for name in classes}
    for split, classes in folders.splits.items() if needs_two else ():
        for name in sorted(every):
            if not classes.get(name):
                where = "" if split == ALL else f" of {split}"
                raise DataError(
                    f"the class {shown(name)!r}{where} has no {folders.kind.noun}",
                    subject=shown(root),
                    hint=f"add {folders.kind.noun} ({endings}) or remove the folder",
                )
    if needs_two and len(every) == 1:
        raise DataError(
            f"a single class, {shown(next(iter(every)))!r}: nothing to tell apart",
            subject=shown(root),
            hint="add a folder for each class, or set data.target: input for an autoencoder",
        )


def divided(
    images: Images, config: DataConfig, seed: int
) -> tuple[dict[str, Numbered], dict[str, np.ndarray]]:
    """Return files and targets of all three splits, and their rows in the list or folder.

    Splits that are not given come from the training one.
    """
    splits, main = images.splits, ALL if ALL in images.splits else "train"
    files, targets = splits[main]
    derived = derived_splits(
        targets if targets.ndim == 1 else None,
        len(files),
        seed,
        config,
        splits,
        shown(images.path),
    )
    taken = {split: (files.take(rows), targets[rows]) for split, rows in derived.items()}
    given = [split for split in ("validation", "test") if split in splits]
    rows = {split: images.rows[main][chosen] for split, chosen in derived.items()}
    return (
        {**taken, **{split: splits[split] for split in given}},
        {**rows, **{split: images.rows[split] for split in given}},
    )


def image_decoder(config: DataConfig, files: Sequence[str], skip: bool) -> ImageDecoder:
    """Return what decodes images to the shape of the first, or that `config` asks for.

    Args:
        config: the `data` section.
        files: absolute paths.
        skip: whether the first image may be one that cannot be decoded.

    Raises:
        DataError: the first image cannot be decoded.
    """
    first, (height, width, channels) = _first_image(files, skip)
    own = (height, width)
    if config.image_size is not None:
        height, width = config.image_size
    return ImageDecoder(
        height=height,
        width=width,
        channels=config.channels or channels,
        resize=config.image_size is not None,
        first=first,
        first_size=own,
    )


def _first_image(files: Sequence[str], skip: bool) -> tuple[str, tuple[int, int, int]]:
    """Return the first image, or the first that can be decoded, with its shape."""
    for file in files[: _MOST_TRIED if skip else 1]:
        try:
            return file, read_first_image(file)
        except DataError:
            if not skip:
                raise
    return files[0], read_first_image(files[0])
