"""`shrink data check`: reads every example once and reports what is there and what is damaged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from PIL import Image

from shrink.base.errors import DataError
from shrink.base.progress import Share
from shrink.base.types import Tensors, leaves
from shrink.contract.events import Send
from shrink.contract.findings import DataCheck, InputRange, SplitRow
from shrink.contract.job import CheckJob
from shrink.contract.result import HeldOut
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES, Examples, reading_batch
from shrink.data.folders import shown
from shrink.data.membership import duplicates
from shrink.data.opening import open_dataset
from shrink.data.source_types import Images
from shrink.data.sources.images import SkippedNote, open_images, remembered_bad_files
from shrink.run.lineage import describe_shared
from shrink.task.task import targets_of

_ENDINGS = {"JPEG": (".jpg", ".jpeg"), "PNG": (".png",), "BMP": (".bmp",), "GIF": (".gif",)}


def data_check(job: CheckJob, send: Send) -> DataCheck:
    """Return counts, shapes, value ranges and unreadable examples of the job's data."""
    config = DataConfig.model_validate(job.data)
    files = _Files([], (), [], [])
    if config.source == "images":
        config = _of_one_size(config)
        files = _check_files(config, send, said_size=DataConfig.model_validate(job.data).image_size)
        config = config.model_copy(update={"on_bad_example": "skip", "bad_examples_limit": 1.0})
    dataset = open_dataset(config, job.seed)
    started = time.perf_counter()
    splits: dict[str, SplitRow] = {}
    bad = list(files.bad)
    for name in SPLIT_NAMES:
        splits[name], unreadable = _split(dataset, getattr(dataset, name), name, send)
        bad += unreadable
    total = sum(split.examples for split in splits.values())
    notes = [note for note in dataset.notes if not isinstance(note, SkippedNote)] + files.notes
    notes += [warning.message for warning in dataset.warnings]
    if not bad:
        held_out = HeldOut(shared=tuple(dataset.shared()))
        notes += [warning.message for warning in describe_shared(held_out)[0]]
    if not bad and config.target == "label":
        notes += _target_notes(dataset)
    return DataCheck(
        splits=splits,
        class_names=tuple(dataset.class_names),
        bad=tuple(bad),
        duplicates=files.duplicates,
        suspicious=tuple(files.suspicious),
        notes=tuple(notes),
        examples_per_s=total / (time.perf_counter() - started),
    )


def _target_notes(dataset: Dataset) -> list[str]:
    """Return what targets look like that are no plain labels; a loss follows from it."""
    if dataset.train.labels is not None:
        return []
    specs = leaves(dataset.train.target_spec)
    shapes = tuple(tuple(spec.shape) for spec in specs)
    notes = []
    for one, spec, shape in zip(targets_of(dataset, shapes), specs, shapes, strict=True):
        numbers = "whole numbers" if spec.dtype.kind in "iu" else "numbers"
        kind = "one-hot labels" if one.one_hot else "zeros and ones" if one.yes_or_no else numbers
        notes.append(f"targets of shape {shape} are {kind}")
    return notes


class _Counter:
    """Tells the parent how many examples are done, from any thread."""

    def __init__(self, send: Send, name: str, total: int) -> None:
        self._send, self._name, self._total = send, name, total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count examples as done, and report the share."""
        with self._lock:
            self._done += count
            self._send(Share(self._name, self._done, self._total))


class _Files(NamedTuple):
    """Findings about image files: unreadable, equal, and odd ones, and notes."""

    bad: list[str]
    duplicates: tuple[tuple[str, ...], ...]
    suspicious: list[str]
    notes: list[str]


def _of_one_size(config: DataConfig) -> DataConfig:
    """Return the section with the first image's size: a run resizes images to the model's input."""
    if config.image_size is not None:
        return config
    _, decoder = open_images(config, skip=True)
    return config.model_copy(update={"image_size": (decoder.height, decoder.width)})


def _check_files(config: DataConfig, send: Send, said_size: tuple[int, int] | None) -> _Files:
    """Decode every image, and compare contents, names and sizes of all of them."""
    table, decoder = open_images(config, skip=True)
    paths = [path for split in table.splits for path in table.files(split)]
    counter = _Counter(send, "decoding", len(paths))
    bad = remembered_bad_files(paths, decoder, config, counter.add)
    labels = {
        table.file(row): str(np.asarray(table.y)[row].tolist())
        for rows in table.splits.values()
        for row in rows.tolist()
    }
    groups = duplicates(Images(config.source).hashes(config))
    headers = {path: _header(path) for path in paths if path not in bad}
    suspicious = [text for path, one in headers.items() if (text := _wrong_ending(path, one[0]))]
    for group in groups:
        if len({labels.get(path) for path in group}) > 1:
            same = " = ".join(map(shown, group))
            suspicious.append(f"the same image under different labels: {same}")
    copies = tuple(tuple(map(shown, group)) for group in groups)
    notes = [] if said_size is not None else _size_notes(headers.values())
    return _Files(list(bad.values()), copies, suspicious, notes)


def _header(path: str) -> tuple[str, int, int]:
    """Return format, height and width of an image."""
    with Image.open(path) as image:
        # MPO is a JPEG with a second picture behind the first, as phones write them.
        form = "JPEG" if image.format == "MPO" else str(image.format)
        return form, image.height, image.width


def _size_notes(headers: Iterable[tuple[str, int, int]]) -> list[str]:
    sizes = sorted({(height, width) for _, height, width in headers})
    if len(sizes) < 2:
        return []
    (low_height, low_width), (high_height, high_width) = sizes[0], sizes[-1]
    return [
        f"images have {len(sizes):,} sizes, from {low_height} x {low_width} to {high_height} x "
        f"{high_width} pixels (height x width); a run resizes them to the model's input, or to "
        "data.image_size"
    ]


def _wrong_ending(path: str, image_format: str) -> str | None:
    if path.lower().endswith(_ENDINGS.get(image_format, "")):
        return None
    return f"{shown(path)}: the content is {image_format}, whatever the name says"


def _split(
    dataset: Dataset, examples: Examples, name: str, send: Send
) -> tuple[SplitRow, list[str]]:
    counter = _Counter(send, f"reading {name}", len(examples))
    step = reading_batch(examples.input_spec, examples.target_spec)

    def read(start: int) -> tuple[list[InputRange], list[str]]:
        indices = np.arange(start, min(start + step, len(examples)))
        x, unreadable = _read(examples, indices)
        counter.add(len(indices))
        return ([] if x is None else [_range(part) for part in leaves(x)]), unreadable

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        batches = list(pool.map(read, range(0, len(examples), step)))
    inputs = _merged([ranges for ranges, _ in batches if ranges])
    described = SplitRow(
        **vars(inputs[0] if inputs else InputRange()),
        examples=len(examples),
        classes=_counts(dataset, examples),
        inputs=tuple(inputs),
    )
    return described, [text for _, unreadable in batches for text in unreadable]


def _range(x: np.ndarray) -> InputRange:
    low, high = (float(np.min(x)), float(np.max(x))) if x.size else (None, None)
    return InputRange(shape=tuple(x.shape[1:]), dtype=x.dtype.name, low=low, high=high)


def _merged(batches: list[list[InputRange]]) -> list[InputRange]:
    merged: list[InputRange] = []
    for ranges in zip(*batches, strict=True):
        lows = [r.low for r in ranges if r.low is not None]
        highs = [r.high for r in ranges if r.high is not None]
        low, high = min(lows, default=None), max(highs, default=None)
        merged.append(replace(ranges[0], low=low, high=high))
    return merged


def _read(examples: Examples, indices: np.ndarray) -> tuple[Tensors | None, list[str]]:
    """Return the inputs of the examples that can be read, and why the others cannot."""
    try:
        return examples.arrays(indices)[0], []
    except DataError:
        good, unreadable = list[int](), list[str]()
        for index in indices.tolist():
            try:
                examples.arrays(np.array([index]))
                good.append(index)
            except DataError as error:
                unreadable.append(str(error))
        return (examples.arrays(np.array(good))[0] if good else None), unreadable


def _counts(dataset: Dataset, examples: Examples) -> dict[str, int]:
    if examples.labels is None:
        return {}
    values, counts = np.unique(examples.labels, return_counts=True)
    names = dataset.class_names
    return {
        (names[v] if v < len(names) else str(v)): int(c)
        for v, c in zip(values, counts, strict=True)
    }
