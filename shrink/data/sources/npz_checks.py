"""What arrays must be to be trained on: numbers, finite, and as many targets as inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shrink.data.sources.arrays import are_labels
from shrink.errors import DataError

_CHUNK_BYTES = 1 << 24
_REAL_HINT = "store real targets as floating point numbers, labels as integers from 0"


def check_inputs(path: Path, name: str, x: np.ndarray) -> None:
    """Raise `DataError` unless `x` holds examples of finite numbers."""
    _check_numbers(path, name, x)
    if x.ndim == 0 or x.size == 0:
        raise DataError(f"{name} is empty: its shape is {x.shape}", subject=path)
    check_finite(path, name, x)


def fed_dtype(x: np.ndarray) -> np.dtype:
    """Return the dtype that inputs are fed in: as stored, float64 as float32, bool as uint8."""
    if x.dtype.kind == "b":
        return np.dtype(np.uint8)
    native = x.dtype.newbyteorder("=")
    return np.dtype(np.float32) if native == np.float64 else native


def targets_of(
    path: Path, name: str, y: np.ndarray, inputs: str, count: int, notes: list[str]
) -> np.ndarray:
    """Return targets in the shape that they are fed: int64 (n,) labels, or real (n, ...) ones.

    Args:
        path: the file, for messages.
        name: the name of `y` in it.
        y: the stored targets.
        inputs: the name of the inputs that belong to them.
        count: how many inputs there are.
        notes: receives what a reader of the report should know.

    Raises:
        DataError: another number of targets, values that are not finite, negative labels.
    """
    _check_numbers(path, name, y)
    if y.ndim == 0 or len(y) != count:
        length = len(y) if y.ndim else 1
        raise DataError(f"{inputs} has {count} examples and {name} has {length}", subject=path)
    if y.size == 0:
        raise DataError(f"{name} is empty: its shape is {y.shape}", subject=path)
    single = y.ndim == 1 or y.shape[1:] == (1,)
    if y.dtype.kind in "biu" and single:
        return _labels(path, name, y)
    check_finite(path, name, y)
    if single and np.array_equal(y, np.floor(y)):
        notes.append(
            f"{name} holds whole numbers stored as {y.dtype}: taken as real targets, not as labels"
        )
    return y.reshape(count, 1) if y.ndim == 1 else y


def check_same_inputs(path: Path, name: str, x: np.ndarray, train: np.ndarray) -> None:
    """Raise `DataError` where the inputs of a part differ from `x_train` in shape or dtype."""
    if fed_dtype(x) != fed_dtype(train):
        raise DataError(f"{name} is {x.dtype} and x_train is {train.dtype}", subject=path)
    _check_same_shape(path, name, x, "x_train", train)


def check_same_targets(path: Path, name: str, y: np.ndarray, train: np.ndarray) -> None:
    """Raise `DataError` where the targets of a part are of another kind or shape than `y_train`."""
    if are_labels(y) != are_labels(train):
        kinds = [f"{'labels' if are_labels(a) else 'real targets'} ({a.dtype})" for a in (y, train)]
        raise DataError(
            f"{name} holds {kinds[0]} and y_train holds {kinds[1]}", subject=path, hint=_REAL_HINT
        )
    _check_same_shape(path, name, y, "y_train", train)
    if are_labels(y):
        _check_labels_known(path, name, y, train)


def _check_same_shape(
    path: Path, name: str, array: np.ndarray, other: str, reference: np.ndarray
) -> None:
    if array.shape[1:] != reference.shape[1:]:
        raise DataError(
            f"one example of {name} has the shape {array.shape[1:]}, one of {other} has "
            f"{reference.shape[1:]}",
            subject=path,
        )


def _check_labels_known(path: Path, name: str, labels: np.ndarray, known: np.ndarray) -> None:
    """Raise `DataError` for a label above all that training sees.

    Only where the training labels are classes without a gap: other whole numbers may be
    anything, such as ages to be predicted.
    """
    highest = int(known.max())
    if int(labels.max()) <= highest or len(np.unique(known)) != highest + 1:
        return
    place = int(np.argmax(labels > highest))
    raise DataError(
        f"{name}[{place}] is {labels[place]}, out of range: the training labels are 0 to {highest}",
        subject=path,
        hint=_REAL_HINT,
    )


def check_finite(path: Path, name: str, array: np.ndarray) -> None:
    """Raise `DataError` naming the first value that is not finite as it is fed."""
    if array.dtype.kind != "f":
        return
    rows = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        with np.errstate(over="ignore"):  # a float64 beyond float32 shows as infinite
            finite = np.isfinite(np.asarray(array[start : start + rows], fed_dtype(array)))
        if finite.all():
            continue
        row, *rest = (int(i) for i in np.argwhere(~finite)[0])
        index = (start + row, *rest)
        raise DataError(
            f"{name}[{', '.join(map(str, index))}] is {array[index]}: not a finite "
            f"{fed_dtype(array)}",
            subject=path,
            hint="remove or replace such values",
        )


def _check_numbers(path: Path, name: str, array: np.ndarray) -> None:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise DataError(
            f"{name} is of dtype {array.dtype}; integers, floats and bool are taken", subject=path
        )


def _labels(path: Path, name: str, y: np.ndarray) -> np.ndarray:
    flat = np.asarray(y).reshape(len(y))
    lowest, highest = int(flat.min()), int(flat.max())
    if lowest < 0 or highest >= 2**31:
        wrong = lowest if lowest < 0 else highest
        place = int(np.argmax(flat == wrong))
        kind = "negative" if wrong < 0 else "out of range"
        raise DataError(
            f"{name}[{place}] is {wrong}: a {kind} label", subject=path, hint=_REAL_HINT
        )
    return flat.astype(np.int64)
