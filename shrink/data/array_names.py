"""Which arrays of a file are the inputs and targets of which part, by their names; light."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from shrink.base.errors import DataError
from shrink.base.suggest import did_you_mean

_PARTS = ("train", "validation", "test")
_MOST_LISTED = 12


def layout(path: Path, names: Collection[str], inputs: tuple[str, ...]) -> dict[str, str]:
    """Return the suffix of the arrays of each part that the file gives.

    Args:
        path: of the file, for messages.
        names: of all its arrays.
        inputs: names of the inputs, without a suffix.

    Raises:
        DataError: there is no training part, or two that could be meant.
    """
    first = inputs[0]
    given = {part: f"_{part}" for part in _PARTS if f"{first}_{part}" in names}
    expected = f"{first}_train, y_train, {first}_test and y_test, or {first} and y"
    if first in names and given:
        raise DataError(
            f"both {first} and {first}{next(iter(given.values()))} are there; which one is meant?",
            subject=path,
            hint=f"keep {expected}",
        )
    if first in names:
        return {"train": ""}
    if "train" in given:
        return given
    near = did_you_mean(f"{first}_train", names)
    found = ", ".join(sorted(names)[:_MOST_LISTED]) or "none"
    rename = f"rename {near} to {first}_train, or set data.inputs: [{near}]"
    raise DataError(
        f"no array {first}_train or {first} in this file; its arrays: {found}",
        subject=path,
        hint=rename if near else f"name the arrays {expected}, or name yours in data.inputs",
    )


def wanted_targets(
    path: Path,
    names: Collection[str],
    suffixes: Mapping[str, str],
    inputs: tuple[str, ...],
    targets: tuple[str, ...],
    targets_needed: bool,
) -> tuple[str, ...]:
    """Return the targets to read: none where an autoencoder's file has not all of them.

    Args:
        path: of the file, for messages.
        names: of all its arrays.
        suffixes: of each part, from `layout`.
        inputs: names of the inputs, without a suffix.
        targets: names of the targets, likewise.
        targets_needed: whether the file must have them.

    Raises:
        DataError: an array is missing.
    """
    lacking = [f"{n}{s}" for s in suffixes.values() for n in inputs if f"{n}{s}" not in names]
    missing = [f"{n}{s}" for s in suffixes.values() for n in targets if f"{n}{s}" not in names]
    if lacking or (missing and targets_needed):
        raise DataError(
            f"no array {', '.join(sorted(lacking or missing))} in this file",
            subject=path,
            hint="add it, or correct data.inputs"
            if lacking
            else "add the targets, name yours in data.targets, or set data.target: input for an "
            "autoencoder",
        )
    return () if missing else targets
