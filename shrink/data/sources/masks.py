"""Images with a mask each, in two folders: the class of every pixel."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError
from shrink.base.file_hashes import DIGEST_BYTES, hash_files
from shrink.data.arrays import LazyRows
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, ExtremeLabel
from shrink.data.decoding import check_png, read_content, read_image, undecodable
from shrink.data.folders import ALL, shown
from shrink.data.membership import short_hashes
from shrink.data.pairs import find_pairs
from shrink.data.source_table import SourceTable
from shrink.data.sources.images import image_decoder, pictures
from shrink.data.splits import tested_split

_HINT = "save it as a PNG of class numbers: with a palette, or gray with the number as value"
_MOST_CLASSES = 256
_MOST_THREADS = 8
_MEANING = "3"
"""Version of the remembered facts."""
VOID = 255
"""The usual class number of pixels that belong to no class, as in Pascal VOC and Cityscapes."""
_GRAY = 0
"""PNG's colour type of gray without alpha."""


def read_mask(path: str) -> np.ndarray:
    """Return the class numbers of a mask, uint8 (height, width).

    A palette's index is the number, whatever the colour; of a gray image the value is; of a
    bilevel one 0 and 1.

    Raises:
        DataError: no PNG, in colours, beyond 255, or damaged; its subject is the file.
    """
    try:
        return _numbers(read_content(path))
    except DataError as error:
        raise DataError(error.message, subject=shown(path), hint=error.hint or _HINT) from error


def _numbers(content: bytes) -> np.ndarray:
    if not content:
        raise DataError("the file is empty")
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise DataError("a mask has to be a PNG file")
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            check_png(content)
            depth, colour = content[24:26]
            # Pillow multiplies gray values of 2 or 4 bits to fill 8.
            factor = 255 // (2**depth - 1) if colour == _GRAY and depth in (2, 4) else 1
            mode, values = image.mode, np.asarray(image) // factor
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise undecodable(error, "a PNG") from error
    if values.ndim != 2:
        raise DataError(f"the mask is in colours ({mode}), not class numbers")
    if values.size and int(values.max()) >= _MOST_CLASSES:
        raise DataError(
            f"the mask has the class number {int(values.max())}, and {_MOST_CLASSES - 1} is the "
            "largest"
        )
    return values.astype(np.uint8)


def resized_mask(mask: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return a mask at another size: of each pixel's centre the nearest class number."""
    rows = ((np.arange(height) + 0.5) * mask.shape[0] / height).astype(np.int64)
    columns = ((np.arange(width) + 0.5) * mask.shape[1] / width).astype(np.int64)
    return mask[rows[:, None], columns[None, :]]


def examined(images: Sequence[str], masks: Sequence[str], digests: bytes) -> np.ndarray:
    """Return the two largest class numbers of each mask, int64 (n, 2), after checking its size.

    Args:
        images: absolute paths.
        masks: of each image, likewise.
        digests: of the content of all of them: what was seen is remembered by it.

    Raises:
        DataError: a mask cannot be read, or is of another size than its image.
    """
    memory = entry_path("masks", key_of(_MEANING, digests.hex(), str(len(images))), ".json")
    try:
        remembered = json.loads(memory.read_text(encoding="utf-8"))
        if len(remembered) == len(masks):
            return np.array(remembered, np.int64)
    except (OSError, ValueError, TypeError):
        pass
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        highest = list(pool.map(_examine, images, masks))
    keep(memory, json.dumps(highest).encode())
    return np.array(highest, np.int64)


def _examine(image: str, mask: str) -> list[int]:
    """Return the two largest class numbers of a mask, after checking its size."""
    numbers = read_mask(mask)
    height, width, _ = read_image(image).shape
    if numbers.shape != (height, width):
        raise DataError(
            f"the mask is {numbers.shape[0]} x {numbers.shape[1]} pixels (height x width), and "
            f"its image, {shown(image)}, is {height} x {width}",
            subject=shown(mask),
            hint="give image and mask the same size; data.image_size then resizes both",
        )
    present = np.flatnonzero(np.bincount(numbers.reshape(-1)))
    return [int(present[-1]), int(present[-2:][0])]


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
    read = {tested_split(pairs.splits)} if config.test_split == 1 else pairs.splits.keys()
    for split, (of_images, of_masks) in pairs.splits.items():
        first, count = len(images), len(of_images)
        given[split] = np.arange(first, first + count)
        images += of_images
        masks += of_masks
        files = [f"{root}/{n}" for n in of_images], [f"{root}/{n}" for n in of_masks]
        own = digests[2 * first * DIGEST_BYTES : 2 * (first + count) * DIGEST_BYTES]
        hashes.append(short_hashes(own)[:count])
        if split in read:
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
