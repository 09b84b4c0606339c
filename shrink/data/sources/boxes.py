"""Pictures with boxes, from COCO's JSON, YOLO's text files or Pascal VOC's XML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shrink.base.types import Array
from shrink.data.box_files import Annotated, read_boxes
from shrink.data.boxes import AREA as AREA_COLUMN
from shrink.data.boxes import box_rows, padded
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import ImageDecoder
from shrink.data.membership import file_contents
from shrink.data.source_table import SourceTable
from shrink.data.sources.images import image_decoder, pictures


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open `config.path`: x uint8 pictures, y boxes float32 (boxes, 7), see `shrink.data.boxes`.

    Raises:
        DataError: see `read_boxes`; a first picture that cannot be decoded.
    """
    path = Path(config.path or "").expanduser().absolute()
    found = read_boxes(path, config.classes)
    pictured = [one for own in found.splits.values() for one in own]
    given, first = {}, 0
    for split, own in found.splits.items():
        given[split] = np.arange(first, first := first + len(own))
    root = path if path.is_dir() else path.parent
    files = [str(one.file) for one in pictured]
    # The files that the fingerprint hashes, in its order: they are then read once.
    names = [str(file.relative_to(root)) for file in sorted(set(found.files))]
    number = {f"{root}/{name}": index for index, name in enumerate(names)}
    table = SourceTable(
        path,
        given,
        y=(),
        class_names=found.classes,
        names=files,
        root=root,
        contents=file_contents(root, names, path)[[number[file] for file in files]],
    )
    decoder = image_decoder(config, table.files(), skip=False)
    y = padded([_rows(one, found.classes, decoder) for one in pictured])
    dataset = replace(table, x=pictures(decoder, table), y=y).open(config, seed)
    return replace(dataset, num_classes=None, has_boxes=True)


def _rows(one: Annotated, classes: Sequence[str], decoder: ImageDecoder) -> Array:
    """Return a picture's boxes in pixels of the decoded picture, (k, 7)."""
    y, x = decoder.height / one.size[0], decoder.width / one.size[1]
    edges = np.array([[b.left, b.top, b.right, b.bottom] for b in one.boxes]).reshape(-1, 4)
    rows = box_rows(
        edges * [x, y, x, y],
        np.array([classes.index(b.label) for b in one.boxes], np.int64),
        np.array([b.crowd for b in one.boxes], bool),
    )
    for row, box in zip(rows, one.boxes, strict=True):
        if box.area is not None:
            row[AREA_COLUMN] = box.area * x * y
    return rows
