"""Images, or files of another kind, in folders by class or in a list."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np

from shrink.base import files
from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError
from shrink.base.packages import versions
from shrink.data.arrays import LazyRows
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import ImageDecoder, read_image
from shrink.data.fingerprint import fingerprint
from shrink.data.folders import ALL, IMAGES, FileKind, class_order, find_images, shown
from shrink.data.source_table import SourceTable
from shrink.data.sources.csv import is_finite, listed_splits, table_targets
from shrink.data.splits import tested_split
from shrink.data.table import Table, read_listing


def find_files(config: DataConfig, kind: FileKind = IMAGES) -> SourceTable:
    """Return the rows of files in the folders by class, or in the list, at `config.path`.

    Raises:
        DataError: no such folder, no files, a class that is missing in a split, or a single class;
            a list that cannot be read, a target that is no number, or a single label.
    """
    path = Path(config.path or "").expanduser().absolute()
    return _in_folders(path, config, kind) if path.is_dir() else _listed(path, config)


def _listed(path: Path, config: DataConfig) -> SourceTable:
    """Return the files of a CSV file.

    A single target column of names, or of whole numbers from 0, holds labels; several columns,
    or fractions, are real targets.
    """
    targets = config.targets or ("label",)
    table = read_listing(path, targets if config.target == "label" else ())
    splits = listed_splits(path, table)
    targets = targets if config.target == "label" else ()
    names, values = listed_targets(path, table, targets, config.classes)
    are_words = not all(map(str.isdecimal, names))
    if values.ndim == 1 and len(np.unique(values)) == 1 and not config.takes_one_class(are_words):
        raise DataError(
            f"all labels are {names[int(values[0])]}; a classifier needs at least two classes",
            subject=path,
            hint="list images of other classes",
        )
    return SourceTable(
        path,
        splits,
        values,
        class_names=names,
        names=table.cells["path"],
        root=path.parent,
        columns={name: cells for name, cells in table.cells.items() if name != "path"},
    )


def listed_targets(
    path: Path, table: Table, columns: Sequence[str], classes: Sequence[str] | None = None
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the labels and int64 (n,), or no names and float32 (n, k).

    Raises:
        DataError: one of several columns holds no numbers.
    """
    names, values = table_targets(
        path, table, columns, classes, lambda cells: not all(map(is_finite, cells))
    )
    if values.ndim == 1 and not names:
        names = tuple(map(str, range(int(values.max()) + 1)))
    return names, values


def _in_folders(path: Path, config: DataConfig, kind: FileKind) -> SourceTable:
    """Return the files in folders by class.

    An autoencoder's may lack classes: it is trained on what is normal, and tested on the rest too.
    """
    folders = find_images(path, kind, flat=config.target != "label")
    root, needs_two, divided = shown(path), config.target == "label", folders.splits
    present = sorted({name for classes in divided.values() for name in classes})
    every = all(classes.get(name) for classes in divided.values() for name in present)
    only_tested = config.test_split == 1 and needs_two and not every
    if only_tested:  # the other splits need not have the same classes
        tested = tested_split(divided)
        divided = {tested: divided[tested]}
        present = sorted(divided[tested]) if config.classes else present
    for split, classes in divided.items() if needs_two else ():
        for name in sorted(classes) if only_tested else present:
            if not classes.get(name):
                where = "" if split == ALL else f" of {split}"
                raise DataError(
                    f"the class {shown(name)!r}{where} has no {kind.noun}",
                    subject=root,
                    hint=f"add {kind.noun} ({', '.join(kind.endings)}) or remove the folder",
                )
    if needs_two and len(present) == 1 and not config.takes_one_class(are_words=True):
        raise DataError(
            f"a single class, {shown(present[0])!r}; a classifier needs at least two classes",
            subject=root,
            hint="add a folder for each class, or set data.target: input for an autoencoder",
        )
    names = class_order(present, config.classes, path)
    splits, labels, first = {}, list[np.ndarray](), 0
    for split, classes in divided.items():
        numbers_of = np.array([names.index(name) for name in classes], np.int64)
        labels.append(np.repeat(numbers_of, [len(files) for files in classes.values()]))
        splits[split] = np.arange(first, first := first + len(labels[-1]))
    return SourceTable(
        path,
        splits,
        np.concatenate(labels),
        class_names=names,
        notes=folders.notes(),
        names=[file for own in divided.values() for files in own.values() for file in files],
        root=path,
    )


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the images under `config.path`; without `on_bad_example: skip`, only one is read.

    Raises:
        DataError: see `find_files`; a first image that cannot be decoded, or too many that cannot
            be.
    """
    table, decoder = open_images(config, skip=config.on_bad_example == "skip")
    if config.on_bad_example == "skip":
        table = without_bad(table, decoder, config)
    return replace(table, x=pictures(decoder, table)).open(config, seed)


def open_images(config: DataConfig, skip: bool) -> tuple[SourceTable, ImageDecoder]:
    """Return the images that a `data` section names, and what decodes them.

    Args:
        config: the `data` section.
        skip: whether the first image may be one that cannot be decoded.

    Raises:
        DataError: see `open_source`.
    """
    table = find_files(config)
    return table, image_decoder(config, table.files(), skip)


def pictures(decoder: ImageDecoder, table: SourceTable) -> LazyRows:
    """Return the pictures of a table's files as rows that are decoded when they are read."""
    return LazyRows(
        lambda rows: decoder.read_all([table.file(row) for row in rows.tolist()]),
        (len(table.names), decoder.height, decoder.width, decoder.channels),
        np.uint8,
        is_decoded=True,
    )


def fitted_to(
    config: DataConfig, wanted: Callable[[], tuple[int, int, int] | None]
) -> tuple[DataConfig, str | None]:
    """Return a `data` section whose images have the shape that a model takes, and a note.

    Only what the section leaves open is filled in, and only where the first image has another
    shape than the model's input.

    Args:
        config: the `data` section.
        wanted: returns height, width and channels (1 or 3), or None where a model takes no one
            image; called only where images could be fitted.

    Raises:
        DataError: see `open_source`.
    """
    if config.image_size is not None:
        return config, None
    _, (height, width, channels) = _first_image(
        find_files(config).files(), skip=config.on_bad_example == "skip"
    )
    shape = wanted()
    own = (height, width, config.channels or channels)
    if shape is None or own == shape:
        return config, None
    changes: dict[str, object] = {"image_size": shape[:2]} if own[:2] != shape[:2] else {}
    if own[2] != shape[2] and config.channels is None:
        changes["channels"] = shape[2]
    sizes = " x ".join(map(str, own)), " x ".join(map(str, shape))
    note = f"images of {sizes[0]} are resized to the model's input, {sizes[1]}; data.image_size"
    return config.model_copy(update=changes), f"{note} and data.channels say otherwise"


_MOST_TRIED = 100


def image_decoder(config: DataConfig, files: Sequence[str], skip: bool) -> ImageDecoder:
    """Return what decodes images to the shape of the first, or that `config` asks for.

    Args:
        config: the `data` section.
        files: absolute paths.
        skip: whether the first image may be one that cannot be decoded.

    Raises:
        DataError: the first image cannot be decoded.
    """
    first, (*own, channels) = _first_image(files, skip)
    height, width = config.image_size or own
    return ImageDecoder(
        height=height,
        width=width,
        channels=config.channels or channels,
        resize=config.image_size is not None,
        first=first,
        first_size=(own[0], own[1]),
    )


def _first_image(files: Sequence[str], skip: bool) -> tuple[str, tuple[int, ...]]:
    """Return the first image, or the first that can be decoded, with its shape."""
    for file in files[: _MOST_TRIED if skip else 1]:
        try:
            return file, read_image(file).shape
        except DataError:
            if not skip:
                raise
    return files[0], read_image(files[0]).shape


_CHUNK = 64
_MOST_NAMED = 10


class SkippedNote(str):
    """A note on examples that were left out, as they cannot be decoded."""


def without_bad(table: SourceTable, decoder: ImageDecoder, config: DataConfig) -> SourceTable:
    """Return the rows whose images can be decoded, with a note on the others for the report.

    The first stage looks at every image; later ones, and later runs on the same files, read its
    findings from the cache folder.

    Args:
        table: the images.
        decoder: decides what can be used.
        config: the `data` section.

    Raises:
        DataError: more than `config.bad_examples_limit` cannot be decoded.
    """
    every = [file for split in table.splits for file in table.files(split)]
    bad = remembered_bad_files(every, decoder, config)
    if not bad:
        return table
    named = ", ".join(shown(path) for path in list(bad)[:_MOST_NAMED])
    more = f" and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
    if len(bad) > config.bad_examples_limit * len(every):
        raise DataError(
            f"{len(bad)} of {len(every):,} images cannot be decoded, more than "
            f"{config.bad_examples_limit:.2%}: {named}{more}",
            subject=shown(config.path or ""),
            hint=f"shrink data check {shown(config.path or '')} shows why; repair them, or raise "
            "data.bad_examples_limit",
        )
    note = f"skipped {len(bad)} of {len(every):,} images that cannot be decoded: {named}{more}"
    kept = {
        split: rows[[file not in bad for file in table.files(split)]]
        for split, rows in table.splits.items()
    }
    return replace(table, splits=kept, notes=(*table.notes, SkippedNote(note)))


def remembered_bad_files(
    paths: Sequence[str],
    decoder: ImageDecoder,
    config: DataConfig,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, str]:
    """Return what is wrong with each bad image, from the cache folder where it was found out.

    Args:
        paths: of all images.
        decoder: decides what can be used.
        config: the `data` section.
        on_progress: called with the number of images done since the last call.
    """
    decoders = json.dumps(versions())
    settings = [fingerprint(config), decoders, *map(str, astuple(decoder)), *sorted(paths)]
    memory = entry_path("checked", key_of(*settings), ".json")
    try:
        known = json.loads(memory.read_text("utf-8", "surrogateescape"))
        if isinstance(known, dict) and known.keys() <= set(paths):
            return {path: str(text) for path, text in known.items()}
    except (OSError, ValueError):
        pass
    errors: dict[str, str] = {}
    for start in range(0, len(paths), _CHUNK):
        chunk = paths[start : start + _CHUNK]
        errors |= decoder.errors_of(chunk)
        if on_progress is not None:
            on_progress(len(chunk))
    keep(memory, files.encoded(files.json_text(errors)))
    return errors
