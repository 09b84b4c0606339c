"""The pictures of a data set with their targets, and those that a CSV file lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.data.class_order import class_order
from shrink.data.config import DataConfig
from shrink.data.listing import Listing, read_listing
from shrink.data.names import Names

ALL = "all"
"""The part of pictures that are not divided."""

Numbered = tuple[Names, np.ndarray]
"""Absolute paths, and int64 (n,) labels or float32 (n, k) targets."""


@dataclass(frozen=True)
class Pictures:
    """What a folder or a CSV file names.

    Attributes:
        path: the folder or file.
        root: the folder that names are relative to, where they are not absolute.
        names: of all pictures, whose memory `parts` share.
        parts: files and targets by part.
        class_names: of the labels; empty where targets are real.
        num_classes: None where targets are real.
        notes: for the report.
    """

    path: Path
    root: Path
    names: Names
    parts: Mapping[str, Numbered]
    class_names: tuple[str, ...]
    num_classes: int | None
    notes: tuple[str, ...] = ()

    def files(self) -> Names:
        """Return the files of the part that decides shapes."""
        return (self.parts.get(ALL) or self.parts["train"])[0]


def listed_pictures(path: Path, config: DataConfig) -> Pictures:
    """Return the pictures of a CSV file.

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
            hint="list pictures of other classes",
        )
    parts = _parts(listing, files, values)
    return Pictures(path, path.parent, listing.files, parts, names, len(names) or None)


def _parts(listing: Listing, files: Names, values: np.ndarray) -> dict[str, Numbered]:
    if listing.parts is None:
        return {ALL: (files, values)}
    parts = np.array(listing.parts)
    if "train" not in listing.parts:
        raise DataError(
            "no row of the column split is train", subject=listing.path, hint="add such rows"
        )
    return {
        str(part): (files.take(np.flatnonzero(parts == part)), values[parts == part])
        for part in np.unique(parts)
    }


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
