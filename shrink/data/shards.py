"""Sharded files, and prepared TensorFlow Datasets."""

from __future__ import annotations

import glob
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from shrink.base.errors import DataError
from shrink.base.foreign import Json
from shrink.data.config import DataConfig, FeatureConfig
from shrink.data.folders import ALL, SPLIT_OF_NAME, shown

_HINT = (
    "name a file, a folder of files such as train-0.tfrecord, train-00000-of-00010 or a.tfrec, "
    "or a pattern such as 'data/*.records'"
)


_RECORD_NAME = re.compile(r"\.tfrec(ords?)?(?![a-z])|(?<!\.data)-\d+-of-\d+(\.gz)?$", re.IGNORECASE)
"""`a.tfrecord.gz`, `b.tfrec`, `c-00000-of-00010`; no checkpoint of TensorFlow."""


def is_record_name(name: str) -> bool:
    """Whether a file of this name in a folder is taken for a TFRecord file."""
    return _RECORD_NAME.search(name) is not None


def find_shards(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split, sorted; of the split `all` where their names tell none.

    A file belongs to the split that its folder or its name says: `train`, `validation` (`val`) or
    `test`, set off by `-`, `_` or `.`. Files of a pattern that are all of one split are divided by
    fractions.

    Args:
        path: a folder, a file or a pattern (`data/*.tfrec`, `data/*/*.tfrec`).

    Raises:
        DataError: no files, or only some names with a split.
    """
    root = path
    if path.is_dir():
        files = [p for p in sorted(path.rglob("*")) if p.is_file() and is_record_name(p.name)]
    elif path.is_file():
        return {ALL: [path]}
    else:
        plain = itertools.takewhile(lambda part: not glob.has_magic(part), path.parts)
        root = Path(*plain)
        files = sorted(p for p in map(Path, glob.iglob(str(path))) if p.is_file())  # noqa: PTH207
    if not files:
        raise DataError("no TFRecord files found", subject=path, hint=_HINT)
    splits: dict[str, list[Path]] = {}
    for file in files:
        splits.setdefault(_split(file.relative_to(root)), []).append(file)
    if len(splits) == 1 and not path.is_dir():
        return {ALL: files}
    if ALL in splits and len(splits) > 1:
        raise DataError(
            f"the name of {splits[ALL][0].name} has no split, but other files do",
            subject=path,
            hint="put train, validation or test into every name, or into none",
        )
    return splits


def _split(relative: Path) -> str:
    for piece in relative.parts:
        for word in re.split(r"[-_.]", piece.lower()):
            if word in SPLIT_OF_NAME:
                return SPLIT_OF_NAME[word]
    return ALL


def described(
    path: Path, config: DataConfig
) -> tuple[Mapping[str, FeatureConfig], tuple[str, ...], tuple[str, ...]]:
    """Return the features that the recipe declares, and the names of inputs and targets.

    Raises:
        DataError: it declares none, or an input or target is not among them.
    """
    features = config.features
    if features is None:
        raise DataError(
            "the features of the records are not declared",
            subject=path,
            hint="data.features: {x: {type: raw, dtype: uint8, shape: [32, 32, 3]}, "
            "y: {type: int64}}",
        )
    inputs = config.inputs or ("x",)
    targets = config.targets or ("y",)
    needed = (*inputs, *(targets if config.target == "label" else ()))
    for name in needed:
        if name not in features:
            raise DataError(
                f"no feature {name} is declared; there are {', '.join(features)}",
                subject=path,
                hint="declare it in data.features, or correct data.inputs and data.targets",
            )
    return features, inputs, targets


INFO = "dataset_info.json"
_FEATURES = "features.json"
_DEPTH = 3  # name/config/version
_MOST_SHOWN = 5
_OWN = "tensorflow_datasets."
_PREPARED_HINT = "prepare it with tfds build NAME --data_dir DIR, and name DIR/NAME/VERSION"


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
        raise DataError("no such folder", subject=shown(path), hint=_PREPARED_HINT)
    folders = [path] if is_prepared(path) else sorted(_below(path, _DEPTH))
    if not folders:
        raise DataError("no prepared data set found", subject=shown(path), hint=_PREPARED_HINT)
    if len(folders) > 1:
        some = ", ".join(shown(folder.relative_to(path)) for folder in folders[:_MOST_SHOWN])
        more = ", ..." if len(folders) > _MOST_SHOWN else ""
        raise DataError(
            f"there are {len(folders)} data sets or versions: {some}{more}",
            subject=shown(path),
            hint="set data.path to the folder of one data set",
        )
    _check_features(folders[0] / _FEATURES)
    return folders[0]


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
        raise DataError(f"damaged: {error}", subject=shown(path), hint=_PREPARED_HINT) from error
    for name in names:
        if not str(name).startswith(_OWN):
            raise DataError(
                f"the feature {name} is not TensorFlow Datasets' own; refused, as reading it would "
                "run code that the data names",
                subject=shown(path),
                hint="read it with source: python",
            )


def _class_names(value: Json) -> Iterator[Json]:
    if isinstance(value, list):
        for part in value:
            yield from _class_names(part)
    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("pythonClassName", "python_class_name"):
                yield part
            else:
                yield from _class_names(part)
