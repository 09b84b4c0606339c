"""Arrays and tf.data datasets in memory, written to an .npz file named by its content hash."""

from __future__ import annotations

import hashlib
import math
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeGuard, cast

import numpy as np

from shrink.base import files
from shrink.base.cache import cache_root, mark_used
from shrink.base.errors import DataError
from shrink.base.foreign import Json, JsonObject

_SPLITS = ("train", "validation", "test")
_CHUNK_BYTES = 1 << 24
_DIGITS = 16
_FORMS = (
    "give (x, y), ((x_train, y_train), (x_test, y_test)), "
    "{'train': (x, y), 'test': (x, y)}, or a tf.data.Dataset of batches; several inputs by name: "
    "x = {'image': a, 'age': b}"
)


class _Dataset(Protocol):
    element_spec: Json

    def as_numpy_iterator(self) -> Iterator[Json]:
        """Yield batches (x, y) of arrays."""

    def cardinality(self) -> Json:
        """Return the number of batches; negative where it is unknown or infinite."""


def written(data: object) -> tuple[Path, JsonObject]:
    """Return the file that holds arrays, and the keys of `data` that say which they are.

    The same arrays give the same file: it is written where it is not there yet.

    Args:
        data: inputs and targets, (n, ...) each: `(x, y)`, two of them for train and test, a mapping
            of splits to such pairs, a mapping of arrays by their names in an .npz file, or a
            `tf.data.Dataset` of batches in the place of any pair. x and y are arrays or mappings of
            arrays by name.

    Raises:
        DataError: another form, or arrays that do not hold numbers.
    """
    with tempfile.TemporaryDirectory(prefix=files.TEMPORARY_PREFIX) as spool:
        columns, keys = _columns(data, Path(spool))
        digest = hashlib.sha256()
        for name, array in sorted(columns.items()):
            digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
            for piece in _pieces(array):
                digest.update(piece)
        target = cache_root() / "inputs" / digest.hexdigest()[:_DIGITS] / "data.npz"
        if target.is_file():
            mark_used(target)
        else:
            with files.replacing(target) as temporary, files.typed_errors(target):
                _write(columns, temporary)
    return target, keys


def _columns(data: object, spool: Path) -> tuple[dict[str, np.ndarray], JsonObject]:
    """Return the arrays by their names in the file, and which are inputs and targets."""
    if _is_array(data):
        return {"x": _array("x", data)}, {}
    if isinstance(data, Mapping) and not {*data} & {*_SPLITS}:
        named = {str(name): _array(str(name), one) for name, one in data.items()}
        return named, {}
    splits = _splits(data)
    columns: dict[str, np.ndarray] = {}
    keys: JsonObject = {}
    for split, pair in splits.items():
        suffix = f"_{split}" if split else ""
        x, y = _pair(pair, split, spool)
        for role, part in (("x", x), ("y", y)):
            names = list(part)
            if names != [role]:
                keys["inputs" if role == "x" else "targets"] = names
            columns |= {f"{name}{suffix}": array for name, array in part.items()}
    return columns, keys


def _splits(data: object) -> dict[str, object]:
    """Return what each split is made of; one without a name is divided by the recipe."""
    if isinstance(data, Mapping):
        unknown = [str(name) for name in data if name not in _SPLITS]
        if unknown:
            raise DataError(f"splits are train, validation and test, not {[*data]}", hint=_FORMS)
        if not (given := {str(name): one for name, one in data.items() if one is not None}):
            raise DataError("the data has no split: no train, validation or test", hint=_FORMS)
        return given
    if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_pair, data)):
        return {"train": data[0], "test": data[1]}
    if _is_pair(data) or _is_dataset(data):
        return {"": data}
    raise DataError(f"a {type(data).__name__} is not a supported kind of data", hint=_FORMS)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_part, value))


def _is_part(value: object) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_array, value.values()))
    return _is_array(value)


def _is_array(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and not any(isinstance(one, tuple | Mapping) for one in value)
    return (hasattr(value, "shape") and hasattr(value, "dtype")) or hasattr(value, "__array__")


def _is_dataset(value: object) -> TypeGuard[_Dataset]:
    return hasattr(value, "as_numpy_iterator") and hasattr(value, "element_spec")


def _pair(
    pair: object, split: str, spool: Path
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    if _is_dataset(pair):
        return _of_dataset(pair, spool / (split or "all"))
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(
            f"{split or 'data'} holds no pair of inputs and targets", subject=split, hint=_FORMS
        )
    x, y = (_named(role, part) for role, part in zip("xy", pair, strict=True))
    return x, y


def _named(role: str, part: object) -> dict[str, np.ndarray]:
    if isinstance(part, Mapping):
        return {str(name): _array(str(name), one) for name, one in part.items()}
    return {role: _array(role, part)}


def _array(name: str, value: object) -> np.ndarray:
    """Return what NumPy makes of a value: tensors and tables, too."""
    try:
        array = np.asarray(value)
    except Exception as error:  # foreign tensors raise their own
        is_ragged = isinstance(value, tuple | list) and isinstance(error, ValueError)
        what = "a list of different shapes" if is_ragged else str(error)
        raise DataError(f"{name} is not an array: {what}", subject=name, hint=_FORMS) from error
    if array.dtype.kind not in "biufUS" or not array.shape:
        raise DataError(
            f"{name} holds {array.dtype} of shape {array.shape}, not a number for each element",
            subject=name,
            hint="give one array of numbers with a row for each example",
        )
    return array


def _of_dataset(
    dataset: _Dataset, folder: Path
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return inputs and targets of a `tf.data.Dataset`, one batch in memory at a time.

    Each array is written to a file as its batches come, and then mapped.
    """
    _check_dataset(dataset)
    folder.mkdir(parents=True)
    first: dict[tuple[int, str], np.ndarray] = {}
    rows: Counter[tuple[int, str]] = Counter()
    for batch in dataset.as_numpy_iterator():
        parts = [_named(role, part) for role, part in zip("xy", batch, strict=True)]
        counts = {len(array) for part in parts for array in part.values()}
        if len(counts) > 1:
            raise DataError(
                f"an element has arrays of {', '.join(map(str, sorted(counts)))} rows",
                hint="a data set gives batches, as for `fit`: dataset.batch(64)",
            )
        for role, part in enumerate(parts):
            for name, array in part.items():
                known = first.setdefault((role, name), array[:0].copy())
                if (array.shape[1:], array.dtype) != (known.shape[1:], known.dtype):
                    raise DataError(
                        f"examples of {name} differ: {known.dtype} {known.shape[1:]} and "
                        f"{array.dtype} {array.shape[1:]}",
                        subject=name,
                        hint="pad or resize them to one shape",
                    )
                number = [*first].index((role, name))
                with (folder / str(number)).open("ab") as stream:
                    stream.write(np.ascontiguousarray(array).tobytes())
                rows[role, name] += len(array)
    if not first:
        raise DataError("the data set is empty", hint="give one with at least one batch")
    found: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = ({}, {})
    for number, ((role, name), known) in enumerate(first.items()):
        shape = (rows[role, name], *known.shape[1:])
        whole = (
            np.memmap(folder / str(number), known.dtype, "r", shape=shape)
            if math.prod(shape)
            else None
        )
        found[role][name] = np.zeros(shape, known.dtype) if whole is None else whole
    return found


def _check_dataset(dataset: _Dataset) -> None:
    """Raise `DataError` where elements are no batches of inputs and targets, or never end."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise DataError(
            f"an element of the data set has {len(spec) if isinstance(spec, tuple) else 1} parts; "
            "expected (x, y)",
            hint="map it to (x, y); sample weights are not supported",
        )
    flat = [one for part in spec for one in (part.values() if isinstance(part, dict) else [part])]
    shapes = [getattr(one, "shape", None) for one in flat]
    if any(shape is None or shape.rank is None for shape in shapes):
        raise DataError("the elements of the data set are not dense tensors", hint=_FORMS)
    if any(cast("Json", shape).rank == 0 for shape in shapes):
        raise DataError(
            "the data set is not batched",
            hint="give batches, as for `fit`: dataset.batch(64)",
        )
    if int(dataset.cardinality()) == -1:  # tf.data.INFINITE_CARDINALITY
        raise DataError("the data set is infinite", hint="give it before .repeat()")


def _pieces(array: np.ndarray) -> Iterator[bytes]:
    """Yield an array's bytes in C order, some rows at a time."""
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    rows = max(1, _CHUNK_BYTES // row_bytes)
    for start in range(0, len(array), rows):
        yield np.ascontiguousarray(array[start : start + rows]).tobytes()


def _write(columns: Mapping[str, np.ndarray], path: Path) -> None:
    """Write what `numpy.savez` would, which takes no array that is named `file`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in sorted(columns.items()):
            member = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
