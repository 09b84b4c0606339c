"""Images with a mask each, in two folders: the class of every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.base.file_hashes import DIGEST_BYTES, hash_files
from shrink.data.arrays import LazyRows
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, ExtremeLabel
from shrink.data.folders import ALL, shown
from shrink.data.masks import VOID, examined, read_mask, resized_mask
from shrink.data.membership import short_hashes
from shrink.data.pairs import find_pairs
from shrink.data.source_table import SourceTable
from shrink.data.sources.images import image_decoder, pictures


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open `config.path`; every mask is read once, and then remembered by content.

    Raises:
        DataError: see `find_pairs`; a mask that cannot be read, is of another size than its image
            or has a class beyond `data.classes`; a first image that cannot be decoded.
    """
    pairs = find_pairs(Path(config.path or "").expanduser().absolute())
    names, root = pairs.names(), str(pairs.root)
    digests = hash_files(pairs.root, names, pairs.root)
    images, masks, given, extremes = list[str](), list[str](), {}, list[ExtremeLabel]()
    hashes = list[np.ndarray]()
    for split, (of_images, of_masks) in pairs.splits.items():
        first, count = len(images), len(of_images)
        given[split] = np.arange(first, first + count)
        images += of_images
        masks += of_masks
        files = [f"{root}/{n}" for n in of_images], [f"{root}/{n}" for n in of_masks]
        own = digests[2 * first * DIGEST_BYTES : 2 * (first + count) * DIGEST_BYTES]
        hashes.append(short_hashes(own)[:count])
        extremes += _extremes("train" if split == ALL else split, *files, own)
    _check_classes(extremes, config)
    highest = max((one.value for one in extremes if one.value != VOID), default=0)
    table = SourceTable(
        pairs.root,
        given,
        y=(),
        class_names=config.classes or tuple(map(str, range(highest + 1))),
        names=images,
        root=pairs.root,
        contents=np.concatenate(hashes),
    )
    decoder = image_decoder(config, table.files(), skip=False)
    size = decoder.height, decoder.width

    def read_masks(chosen: np.ndarray) -> np.ndarray:
        values = np.empty((len(chosen), *size), np.uint8)
        for mask, row in zip(values, chosen.tolist(), strict=True):
            mask[:] = resized_mask(read_mask(f"{root}/{masks[row]}"), *size)
        return values

    y = LazyRows(read_masks, (len(images), *size), np.uint8, is_decoded=True)
    dataset = replace(table, x=pictures(decoder, table), y=y).open(config, seed)
    return replace(dataset, num_classes=None, extremes=tuple(extremes))


def _extremes(
    split: str, images: Sequence[str], masks: Sequence[str], digests: bytes
) -> list[ExtremeLabel]:
    """Return the two largest class numbers of a split, and a mask with each."""
    highest = examined(images, masks, digests)
    return [
        ExtremeLabel(split, int(value), shown(masks[int((highest == value).any(axis=1).argmax())]))
        for value in np.unique(highest)[-2:]
    ]


def _check_classes(extremes: Sequence[ExtremeLabel], config: DataConfig) -> None:
    for one in extremes:
        if config.classes is not None and len(config.classes) <= one.value != VOID:
            raise DataError(
                f"the mask has the class number {one.value}, and data.classes has "
                f"{len(config.classes)} names (0 to {len(config.classes) - 1})",
                subject=one.where,
                hint="correct the mask, or name every class, background first",
            )
