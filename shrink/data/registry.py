"""Every source of examples by its name: shrink's own, and those that other packages add; light."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from shrink.base.errors import DataError, ShrinkError
from shrink.base.extensions import Extension, find_extension

NO_DATA = "none"
"""The source of a recipe without data: its stages need no examples, its report has no metrics."""
SOURCES: dict[str, str] = {
    "digits": "shrink.data.sources.digits",
    "images": "shrink.data.sources.images",
    "npz": "shrink.data.sources.npz",
    "hdf5": "shrink.data.sources.hdf5",
    "tfrecord": "shrink.data.sources.tfrecord",
    "lmdb": "shrink.data.sources.lmdb",
    "tiles": "shrink.data.sources.tiles",
    "tfds": "shrink.data.sources.tfds",
    "csv": "shrink.data.sources.table",
    "python": "shrink.data.sources.python",
    NO_DATA: "shrink.data.sources.none",
}
"""Shrink's own values of `data.source`: the module with `open_source(config, seed) -> Dataset`."""


def added_source(name: str) -> ModuleType | None:
    """Return the module of a source that an installed package adds; None for any other name.

    A package adds it by an entry point `name = "package.module"` of `shrink.sources`. Beside
    `open_source` the module may have `fingerprint(config) -> str`.

    Raises:
        RecipeError: the package cannot be imported, or adds something else.
    """
    added = _added(name)
    if added is None:
        return None
    module: ModuleType = added.load()
    if not callable(getattr(module, "open_source", None)):
        raise added.error(f"{added.point.value} has no function open_source")
    return module


def source_code(name: str) -> dict[str, str]:
    """Return package, version and hash of the sources of a source that another package adds.

    Of shrink's own sources nothing: shrink's version and sources tell.
    """
    added = _added(name)
    return {} if added is None else added.code()


def ask_source(name: str, function: str, expected: type, *arguments: Any) -> Any:
    """Return what a function of a source's module returns.

    Args:
        name: of the source.
        function: of its module.
        expected: the type of what it returns.
        arguments: of the function.

    Raises:
        RecipeError: see `added_source`.
        DataError: what the source says; or another package's raised something else, or returned no
            `expected`.
    """
    added = _added(name)
    if added is None:
        return getattr(importlib.import_module(SOURCES[name]), function)(*arguments)
    try:
        found = getattr(added_source(name), function)(*arguments)
    except (ShrinkError, MemoryError):
        raise
    except Exception as error:  # whatever foreign code raises
        told = f"its {function} raised {type(error).__name__}: {error}"
        raise DataError(added.error(told).message) from error
    if not isinstance(found, expected):
        told = f"its {function} returned no {expected.__name__}: {found!r:.40}"
        raise DataError(added.error(told).message)
    return found


def _added(name: str) -> Extension | None:
    return None if name in SOURCES else find_extension("source", name)
