"""Pictures with boxes, from COCO's JSON, YOLO's text files or Pascal VOC's XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from shrink.base.file_hashes import hash_files
from shrink.base.types import Array
from shrink.data.annotated import Annotated, BoxFiles
from shrink.data.box_files import read_boxes
from shrink.data.boxes import AREA as AREA_COLUMN
from shrink.data.boxes import box_rows, padded
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import ImageDecoder
from shrink.data.examples import SPLIT_NAMES
from shrink.data.folders import ALL
from shrink.data.membership import Membership, contents_of
from shrink.data.pictures import TargetedPictures
from shrink.data.slices import path_values
from shrink.data.sources.images import image_decoder
from shrink.data.splits import derived_splits


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open `config.path`: x uint8 pictures, y boxes float32 (boxes, 7), see `shrink.data.boxes`.

    Raises:
        DataError: see `read_boxes`; a first picture that cannot be decoded.
    """
    path = Path(config.path or "").expanduser().absolute()
    found = read_boxes(path, config.classes)
    source = found.splits.get(ALL, found.splits.get("train", ()))
    rows = derived_splits(None, len(source), seed, config, found.splits, str(path))
    given = frozenset(found.splits) - {ALL, "train"}
    pictures = {
        split: found.splits[split] if split in given else [source[int(row)] for row in rows[split]]
        for split in SPLIT_NAMES
    }
    decoder = image_decoder(config, [str(one.file) for one in pictures["train"]], skip=False)
    most = max([1, *(len(one.boxes) for own in pictures.values() for one in own)])

    files = {split: [str(one.file) for one in pictures[split]] for split in SPLIT_NAMES}
    root = path if path.is_dir() else path.parent
    contents = _contents(found, root, path, files)

    def examples(split: str) -> TargetedPictures:
        own = [_rows(one, found.classes, decoder) for one in pictures[split]]
        return TargetedPictures(files[split], padded(own, most), decoder)

    return Dataset(
        train=examples("train"),
        validation=examples("validation"),
        test=examples("test"),
        class_names=found.classes,
        num_classes=None,
        given=given,
        known_membership=Membership("file", contents, files),
        slice_values={
            split: path_values(config.slices or (), files[split], root) for split in SPLIT_NAMES
        },
        has_boxes=True,
    )


def _contents(
    found: BoxFiles, root: Path, owner: Path, files: Mapping[str, Sequence[str]]
) -> dict[str, Array]:
    """Return what stands for the content of each picture of a split, uint64 (n,)."""
    # The files that the fingerprint hashes, in its order: they are then read once.
    names = [str(file.relative_to(root)) for file in sorted(set(found.files))]
    return contents_of(files, [f"{root}/{name}" for name in names], hash_files(root, names, owner))


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
