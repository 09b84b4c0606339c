"""Images with a mask each, in two folders: the class of every pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.file_hashes import DIGEST_BYTES, hash_files
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, ExtremeLabel
from shrink.data.decoding import ImageDecoder
from shrink.data.examples import SPLIT_NAMES
from shrink.data.folders import ALL, Names, shown
from shrink.data.masks import VOID, examined, read_mask, resized_mask
from shrink.data.membership import Membership, contents_of
from shrink.data.pairs import Pairs, find_pairs
from shrink.data.pictures import FilePictures
from shrink.data.slices import path_values
from shrink.data.sources.images import image_decoder
from shrink.data.splits import derived_splits

Paired = tuple[Names, Names]
"""Absolute paths of images and of their masks."""


class MaskedImages(FilePictures):
    """Images with masks; both are read when they are asked for.

    Args:
        files: images and masks.
        decoder: decides shape and channels.
    """

    def __init__(self, files: Paired, decoder: ImageDecoder) -> None:
        images, self._masks = files
        mask = tf.TensorSpec((decoder.height, decoder.width), tf.uint8)
        super().__init__(images, decoder, None, mask)

    def load(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a batch as tensors."""
        masks = tf.numpy_function(self._read_masks, [indices], tf.uint8)
        whole = tf.ensure_shape(masks, (indices.shape[0], *self.target_spec.shape))
        return self.pictures(indices), whole

    def _why_unusable(self, index: int) -> DataError | None:
        error = super()._why_unusable(index)
        if error is None:
            try:
                read_mask(self._masks.encoded(index))
            except DataError as unreadable:
                return unreadable
        return error

    def _read_masks(self, indices: np.ndarray) -> np.ndarray:
        size = self._decoder.height, self._decoder.width
        masks = np.empty((len(indices), *size), np.uint8)
        for row, index in enumerate(indices):
            masks[row] = resized_mask(read_mask(self._masks.encoded(index)), *size)
        return masks


@dataclass(frozen=True)
class _Found:
    """The pairs under a folder, with the SHA-256 of all their files in the order of `names()`."""

    pairs: Pairs
    digests: bytes

    def paths(self, split: str) -> Paired:
        """Return the absolute paths of a split's images and masks."""
        images, masks = self.pairs.splits[split]
        root = str(self.pairs.root)
        return images.under(root), masks.under(root)


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open `config.path`; every mask is read once, and then remembered by content.

    Raises:
        DataError: see `find_pairs`; a mask that cannot be read, is of another size than its image
            or has a class beyond `data.classes`; a first image that cannot be decoded.
    """
    pairs = find_pairs(Path(config.path or "").expanduser().absolute())
    found = _Found(pairs, hash_files(pairs.root, pairs.names(), pairs.root))
    extremes = _extremes(found)
    _check_classes(extremes, config)
    divided = _divided(found, config, seed)
    decoder = image_decoder(config, divided["train"][0], skip=False)
    opened = {split: MaskedImages(divided[split], decoder) for split in SPLIT_NAMES}
    files = {split: divided[split][0] for split in SPLIT_NAMES}
    contents = contents_of(
        files,
        pairs.names().under(str(pairs.root)),
        found.digests,
    )
    highest = max((one.value for one in extremes if one.value != VOID), default=0)
    return Dataset(
        train=opened["train"],
        validation=opened["validation"],
        test=opened["test"],
        class_names=config.classes or tuple(map(str, range(highest + 1))),
        num_classes=None,
        given=frozenset(pairs.splits) - {ALL, "train"},
        known_membership=Membership("file", contents, files),
        extremes=extremes,
        slice_values={
            split: path_values(config.slices or (), divided[split][0], pairs.root)
            for split in SPLIT_NAMES
        },
    )


def _extremes(found: _Found) -> tuple[ExtremeLabel, ...]:
    """Return the two largest class numbers of each split, and a mask with each."""
    extremes, start = [], 0
    for split in found.pairs.splits:
        images, masks = found.paths(split)
        end = start + 2 * len(images) * DIGEST_BYTES
        highest = examined(images, masks, found.digests[start:end]).highest
        start = end
        name = "train" if split == ALL else split
        for value in np.unique(highest)[-2:]:
            at = int((highest == value).any(axis=1).argmax())
            extremes.append(ExtremeLabel(name, int(value), shown(masks[at])))
    return tuple(extremes)


def _check_classes(extremes: tuple[ExtremeLabel, ...], config: DataConfig) -> None:
    for one in extremes:
        if config.classes is not None and len(config.classes) <= one.value != VOID:
            raise DataError(
                f"the mask has the class number {one.value}, and data.classes has "
                f"{len(config.classes)} names (0 to {len(config.classes) - 1})",
                subject=one.where,
                hint="correct the mask, or name every class, background first",
            )


def _divided(found: _Found, config: DataConfig, seed: int) -> Mapping[str, Paired]:
    """Return the files of all three splits; those not given come from the training one."""
    given = found.pairs.splits
    images, masks = found.paths(ALL if ALL in given else "train")
    rows = derived_splits(None, len(images), seed, config, given, shown(found.pairs.root))
    taken = {split: (images.take(chosen), masks.take(chosen)) for split, chosen in rows.items()}
    return {
        **taken,
        **{split: found.paths(split) for split in ("validation", "test") if split in given},
    }
