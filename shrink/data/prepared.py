"""Folders that TensorFlow Datasets has prepared, found without it; light."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shrink.base.errors import DataError
from shrink.data.folders import shown

INFO = "dataset_info.json"
_FEATURES = "features.json"
_DEPTH = 3  # name/config/version
_MOST_SHOWN = 5
_OWN = "tensorflow_datasets."
_HINT = "prepare it with tfds build NAME --data_dir DIR, and name DIR/NAME/VERSION"


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds one version of a data set."""
    return (folder / INFO).is_file() and (folder / _FEATURES).is_file()


def prepared_folder(path: Path) -> Path:
    """Return the folder of the one version of a data set at `path`, or up to three levels below.

    Raises:
        DataError: nothing is there, there are several, or its features are not TensorFlow
            Datasets' own.
    """
    if not path.exists():
        raise DataError("no such folder", subject=shown(path), hint=_HINT)
    found = [path] if is_prepared(path) else sorted(_below(path, _DEPTH))
    if not found:
        raise DataError("no prepared data set is there", subject=shown(path), hint=_HINT)
    if len(found) > 1:
        some = ", ".join(shown(folder.relative_to(path)) for folder in found[:_MOST_SHOWN])
        more = ", ..." if len(found) > _MOST_SHOWN else ""
        raise DataError(
            f"there are {len(found)} data sets or versions: {some}{more}",
            subject=shown(path),
            hint="name the folder of one of them in data.path",
        )
    _check_features(found[0] / _FEATURES)
    return found[0]


def _below(folder: Path, levels: int) -> Iterator[Path]:
    for entry in folder.iterdir() if levels and folder.is_dir() else ():
        if is_prepared(entry):
            yield entry
        else:
            yield from _below(entry, levels - 1)


def _check_features(path: Path) -> None:
    """Refuse features of other packages: their modules would be imported, code from a data file.

    Raises:
        DataError: damaged, or such a feature.
    """
    try:
        names = list(_class_names(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"damaged: {error}", subject=shown(path), hint=_HINT) from error
    for name in names:
        if not str(name).startswith(_OWN):
            raise DataError(
                f"the feature {name} is not TensorFlow Datasets' own; refused, as reading it would "
                "run code that the data names",
                subject=shown(path),
                hint="read it with source: python",
            )


def _class_names(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for part in value:
            yield from _class_names(part)
    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("pythonClassName", "python_class_name"):
                yield part
            else:
                yield from _class_names(part)
