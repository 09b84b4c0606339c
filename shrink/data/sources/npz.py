"""Arrays in an .npz file: `x_train, y_train, x_test, y_test`, or `x, y` split by fractions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.sources.arrays import ArrayExamples, are_labels
from shrink.data.sources.npz_checks import (
    check_inputs,
    check_same_inputs,
    check_same_targets,
    fed_dtype,
    targets_of,
)
from shrink.data.sources.npz_members import array_names, read_arrays
from shrink.data.splits import split_examples
from shrink.errors import DataError
from shrink.recipe.suggest import did_you_mean

_PARTS = ("train", "validation", "test")
_MOST_NAMES = 10_000
_EXPECTED = "x_train, y_train, x_test and y_test, or x and y"


@dataclass(frozen=True)
class _Part:
    """Inputs and targets of one part, checked; the suffix is that of their names in the file."""

    x: np.ndarray
    y: np.ndarray
    suffix: str

    @property
    def labels(self) -> np.ndarray | None:
        return self.y if are_labels(self.y) else None


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the arrays of `config.path`; parts that are not given are split from the training one.

    Integer `y` of shape (n,) or (n, 1) are labels, int64. Any other `y` is a real target,
    float32; (n,) is fed as (n, 1), the shape of a model's single output. Inputs are fed as
    stored, except that float64 becomes float32 and bool becomes uint8.

    Raises:
        DataError: missing or damaged file or arrays, shapes that do not fit together, values
            that are not finite, negative labels, labels that training never sees.
    """
    path = Path(config.path or "").expanduser()
    suffixes = _layout(path, array_names(path))
    parts, notes = _read_parts(path, suffixes, targets_needed=config.target == "label")
    opened = _opened(path, parts, config, seed)
    classes = _class_count(parts)
    return Dataset(
        train=opened["train"],
        validation=opened["validation"],
        test=opened["test"],
        class_names=tuple(map(str, range(classes))) if classes and classes <= _MOST_NAMES else (),
        num_classes=classes,
        notes=notes,
    )


def _layout(path: Path, names: Collection[str]) -> dict[str, str]:
    """Return the suffix of the arrays of each part that the file gives."""
    given = {part: f"_{part}" for part in _PARTS if f"x_{part}" in names}
    if "x" in names and given:
        raise DataError(
            f"both x and x{next(iter(given.values()))} are there; which one is meant?",
            subject=path,
            hint=f"keep {_EXPECTED}",
        )
    if "x" in names:
        return {"train": ""}
    if "train" in given:
        return given
    near = did_you_mean("x_train", names)
    found = ", ".join(sorted(names)[:12]) or "none"
    raise DataError(
        f"no array x_train or x in this file; its arrays: {found}",
        subject=path,
        hint=f"rename {near} to x_train" if near else f"name the arrays {_EXPECTED}",
    )


def _read_parts(
    path: Path, suffixes: Mapping[str, str], targets_needed: bool
) -> tuple[dict[str, _Part], tuple[str, ...]]:
    names = set(array_names(path))
    missing = sorted(f"y{s}" for s in suffixes.values() if f"y{s}" not in names)
    if missing and targets_needed:
        raise DataError(
            f"no array {', '.join(missing)} in this file",
            subject=path,
            hint="add the targets, or set data.target: input for an autoencoder",
        )
    wanted = [name for s in suffixes.values() for name in (f"x{s}", f"y{s}") if name in names]
    arrays = read_arrays(path, wanted)
    notes: list[str] = []
    parts = {}
    for part, suffix in suffixes.items():
        x = arrays[f"x{suffix}"]
        check_inputs(path, f"x{suffix}", x)
        stored = arrays.get(f"y{suffix}")
        y = np.zeros((len(x), 0), np.float32)
        if stored is not None:
            y = targets_of(path, f"y{suffix}", stored, f"x{suffix}", len(x), notes)
        parts[part] = _Part(x, y, suffix)
    _check_parts(path, parts)
    return parts, tuple(notes)


def _check_parts(path: Path, parts: Mapping[str, _Part]) -> None:
    train = parts["train"]
    for name, part in parts.items():
        if name == "train":
            continue
        check_same_inputs(path, f"x{part.suffix}", part.x, train.x)
        check_same_targets(path, f"y{part.suffix}", part.y, train.y)


def _opened(
    path: Path, parts: Mapping[str, _Part], config: DataConfig, seed: int
) -> dict[str, ArrayExamples]:
    train = parts["train"]
    try:
        split = split_examples(
            train.labels,
            len(train.x),
            seed,
            validation=0.0 if "validation" in parts else config.validation_split,
            test=0.0 if "test" in parts else config.test_split,
        )
    except DataError as error:
        raise DataError(error.message, subject=path, hint=error.hint) from error
    derived = {"train": split.train, "validation": split.validation, "test": split.test}
    opened = {}
    for name in _PARTS:
        given = name in parts and name != "train"
        part = parts[name] if given else train
        rows = np.arange(len(part.x)) if given else derived[name]
        y_dtype = np.float32 if part.labels is None else np.int64
        opened[name] = ArrayExamples(part.x, part.y, rows, fed_dtype(part.x), y_dtype)
    return opened


def _class_count(parts: Mapping[str, _Part]) -> int | None:
    highest = [int(part.labels.max()) for part in parts.values() if part.labels is not None]
    return max(highest) + 1 if highest else None
