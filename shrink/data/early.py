"""Checks of .npz files and tables by their names alone, before anything heavy is imported."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shrink.base.errors import DataError
from shrink.data.config import DataConfig, existing_file
from shrink.data.folders import ALL, named_splits

UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz file.

    Raises:
        DataError: no such file, or it is no .npz file.
    """
    with open_archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def holds_objects(path: Path, name: str) -> DataError:
    """Return the error for an array that pickle would have to read."""
    return DataError(
        f"{name} holds Python objects, which may run code when they are read; refused",
        subject=path,
        hint=f"store numbers in an array of one shape, class names as text: {name}.astype(str)",
    )


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open an .npz file.

    Raises:
        DataError: no such file, or it is no .npz file.
    """
    try:
        return zipfile.ZipFile(existing_file(path))
    except UNREADABLE as error:
        raise DataError(
            f"not an .npz file: {error}", subject=path, hint="numpy.savez writes such files"
        ) from error


_MOST_LISTED = 12


@dataclass(frozen=True)
class StoredArrays:
    """Which arrays of a file are read.

    Attributes:
        suffixes: what the arrays of each split end in.
        inputs: names of the inputs, without a suffix.
        targets: names of the targets, likewise; none where they are not needed and not there.
        columns: the array of each slicing by column, by the slicing's name, likewise.
    """

    suffixes: Mapping[str, str]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    columns: Mapping[str, str]


def stored_arrays(
    path: Path, names: Collection[str], config: DataConfig, needs_targets: bool | None = None
) -> StoredArrays:
    """Return which of the arrays in a file a `data` section names.

    Args:
        path: of the file, for messages.
        names: of all its arrays.
        config: the section.
        needs_targets: whether the file must have them; by default where the section says so.

    Raises:
        DataError: there are no examples, or two that could be meant; or an array is missing.
    """
    inputs, targets = config.inputs or ("x",), config.targets or ("y",)
    suffixes = _suffixes(path, names, inputs[0])
    lacking = [f"{n}{s}" for s in suffixes.values() for n in inputs if f"{n}{s}" not in names]
    missing = [f"{n}{s}" for s in suffixes.values() for n in targets if f"{n}{s}" not in names]
    needs_targets = config.target == "label" if needs_targets is None else needs_targets
    if lacking or (missing and needs_targets):
        raise DataError(
            f"no array {', '.join(sorted(lacking or missing))} in this file",
            subject=path,
            hint="add it, or correct data.inputs"
            if lacking
            else "add the targets, name yours in data.targets, or set data.target: input for an "
            "autoencoder, none to calibrate on examples without targets",
        )
    columns = slice_columns(path, names, config, suffixes.values())
    return StoredArrays(suffixes, inputs, () if missing else targets, columns)


def _suffixes(path: Path, names: Collection[str], first: str) -> dict[str, str]:
    """Return the suffix of the arrays of each split that the file gives."""
    named = named_splits(path, lambda split: f"{first}_{split}" in names)
    stored = {split: f"_{name}" for split, name in named.items()}
    expected = f"{first}_train, y_train, {first}_test and y_test, or {first} and y"
    if first in names and stored:
        raise DataError(
            f"both {first} and {first}{next(iter(stored.values()))} are there; which one is meant?",
            subject=path,
            hint=f"keep {expected}",
        )
    if first in names:
        return {ALL: ""}
    if stored:
        return stored
    listed = ", ".join(sorted(names)[:_MOST_LISTED]) or "none"
    raise DataError(
        f"no array {first}_train or {first} in this file; its arrays: {listed}",
        subject=path,
        hint=f"name the arrays {expected}, or name yours, without _train and _test, in data.inputs "
        "and data.targets",
    )


def slice_columns(
    path: Path, names: Collection[str], config: DataConfig, suffixes: Iterable[str] = ("",)
) -> dict[str, str]:
    """Return the column or array of each slicing by column, by the slicing's name.

    Raises:
        DataError: it is missing.
    """
    found = {one.called: one.column for one in config.slices or () if one.column is not None}
    for suffix in suffixes:
        for column in found.values():
            if f"{column}{suffix}" not in names:
                raise no_column(path, f"{column}{suffix}", names)
    return found


def no_column(path: Path, name: str, columns: Iterable[str]) -> DataError:
    """Return the error for a slicing by a column or array that is not there."""
    listed = ", ".join(list(columns)[:_MOST_LISTED]) or "none"
    return DataError(
        f"data.slices names {name!r}, and there is {listed}",
        subject=path,
        hint="name a column or an array, with a value for each example, or file.py:function",
    )
