"""Examples that come one after the other, written to disk once, so that they can be read by index.

Shuffling and resuming need examples by number, and a generator has none. Each part becomes a
folder with a file of raw rows for every array, and a manifest that is written last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from shrink.base import files
from shrink.base.errors import DataError, ResourceError
from shrink.base.paths import cache_root

ALL = "all"
"""The part of examples that are not divided."""

_MANIFEST = "spool.json"
_LEAST_FREE_BYTES = 500 * 1000**2
_CHECKED_EVERY = 1000

Example = list[np.ndarray]
"""The arrays of one example, inputs first; every example has the same shapes and dtypes."""


def spooled(
    key: Callable[[], str],
    parts: Callable[[], Mapping[str, Iterable[Example]]],
    names: Sequence[str],
    watched: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of each part by name, each (rows, ...), mapped from the cache folder.

    Args:
        key: returns what decides the examples, a hash; the next stage with the same key reads them
            from the disk. Once they are written it may know more than before.
        parts: gives the examples of each part; called only where nothing is under this key.
        names: of the arrays of an example, in order.
        watched: what is entered while the examples are made.

    Raises:
        DataError: no examples, or examples of different shapes or dtypes.
        ResourceError: the disk is full.
    """
    folder = _folder(key())
    if not (folder / _MANIFEST).is_file():
        with files.replacing(folder) as temporary:
            temporary.mkdir()
            with watched():
                described = {
                    part: _write(temporary / part, examples, names)
                    for part, examples in parts().items()
                }
            (temporary / _MANIFEST).write_text(json.dumps(described), encoding="utf-8")
        folder = _moved(folder, _folder(key()))
    manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    return {part: _mapped(folder / part, found) for part, found in manifest.items()}


def _folder(key: str) -> Path:
    return cache_root() / "spool" / key


def _moved(made: Path, wanted: Path) -> Path:
    """Give examples the name by which they are found from now on; return where they are."""
    if made != wanted:
        shutil.rmtree(wanted, ignore_errors=True)
        try:
            made.rename(wanted)
        except OSError:  # somebody else, who made the same, was first
            return wanted if (wanted / _MANIFEST).is_file() else made
    return wanted


def _write(folder: Path, examples: Iterable[Example], names: Sequence[str]) -> dict[str, Any]:
    folder.mkdir()
    first: Example | None = None
    rows = 0
    with ExitStack() as stack:
        streams = [
            stack.enter_context((folder / f"{place}.bin").open("wb")) for place in range(len(names))
        ]
        for example in examples:
            first = example if first is None else first
            _check_alike(rows, example, first, names)
            for stream, array in zip(streams, example, strict=True):
                stream.write(np.ascontiguousarray(array).data)
            if rows % _CHECKED_EVERY == 0:
                _check_disk(folder)
            rows += 1
    if first is None:
        raise DataError("there are no examples", subject=", ".join(names))
    described = [{"shape": a.shape, "dtype": a.dtype.str} for a in first]
    return {"rows": rows, "arrays": dict(zip(names, described, strict=True))}


def _check_alike(row: int, example: Example, first: Example, names: Sequence[str]) -> None:
    if len(example) != len(names):
        raise DataError(f"example {row} has {len(example)} arrays, not {len(names)}")
    for name, array, wanted in zip(names, example, first, strict=True):
        if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
            raise DataError(
                f"{name} of example {row} is {array.dtype} of shape {array.shape}, and that of "
                f"the first is {wanted.dtype} of shape {wanted.shape}",
                hint="give every example the same shape and dtype",
            )


def _check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE_BYTES:
        raise ResourceError(
            f"{free / 1e9:.1f} GB are left on the disk that examples are written to",
            subject=folder,
            hint="free some space, choose another place with SHRINK_CACHE_DIR, or end the stream "
            "of examples, for example with dataset.take(n)",
        )


def _mapped(folder: Path, manifest: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for place, (name, described) in enumerate(manifest["arrays"].items()):
        shape, dtype = (manifest["rows"], *described["shape"]), np.dtype(described["dtype"])
        path = folder / f"{place}.bin"
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        arrays[name] = np.memmap(path, dtype, "r", shape=shape) if size else np.zeros(shape, dtype)
    return arrays
