"""Pictures with boxes, from COCO's JSON, YOLO's text files or Pascal VOC's XML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.types import Array
from shrink.data.box_files import ALL, Annotated, read_boxes
from shrink.data.boxes import AREA as AREA_COLUMN
from shrink.data.boxes import COLUMNS, box_rows, padded
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import ImageDecoder
from shrink.data.examples import SPLIT_NAMES, DecodedExamples
from shrink.data.sources.images import image_decoder
from shrink.data.splits import derived_splits


class BoxedImages(DecodedExamples):
    """Pictures, decoded when they are asked for, with their boxes.

    Args:
        pictures: which.
        boxes: float32 (n, g, 7), in pixels of the decoded pictures.
        decoder: decides shape and channels.
    """

    def __init__(self, pictures: Sequence[Annotated], boxes: Array, decoder: ImageDecoder) -> None:
        target = tf.TensorSpec((boxes.shape[1], COLUMNS), tf.float32)
        super().__init__(None, decoder.spec, target)
        self._files = [str(one.file) for one in pictures]
        self._boxes, self._decoder = boxes, decoder

    def __len__(self) -> int:
        return len(self._files)

    def load(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a batch as tensors; pictures are decoded in parallel."""
        images = tf.map_fn(
            self._read_and_decode,
            indices,
            fn_output_signature=self._decoder.spec,
            parallel_iterations=self._decoder.parallel_decodes,
        )
        boxes = tf.numpy_function(lambda rows: self._boxes[rows], [indices], tf.float32)
        return images, tf.ensure_shape(boxes, (indices.shape[0], *self.target_spec.shape))

    def why_unreadable(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these pictures that cannot be decoded, or None."""
        for index in indices:
            with tf.device("CPU:0"):
                error = self._decoder.explain(self._files[int(index)])
            if error is not None:
                return error
        return None

    def _read_and_decode(self, index: tf.Tensor) -> tf.Tensor:
        content = tf.numpy_function(self._read, [index], tf.string)
        return self._decoder.decode(tf.ensure_shape(content, ()))

    def _read(self, index: int) -> bytes:
        return self._decoder.read(self._files[int(index)].encode("utf-8", "surrogateescape"))


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open `config.path`: x uint8 pictures, y boxes float32 (boxes, 7), see `shrink.data.boxes`.

    Raises:
        DataError: see `read_boxes`; a first picture that cannot be decoded.
    """
    path = Path(config.path or "").expanduser().absolute()
    found = read_boxes(path, config.classes)
    source = found.splits.get(ALL, found.splits.get("train", ()))
    rows = derived_splits(None, len(source), seed, config, found.splits, str(path))
    pictures = {split: [source[int(row)] for row in rows[split]] for split in SPLIT_NAMES}
    pictures |= {split: list(own) for split, own in found.splits.items() if split in rows and own}
    if "train" in found.splits:
        pictures["train"] = [source[int(row)] for row in rows["train"]]
    decoder = image_decoder(config, [str(one.file) for one in pictures["train"]], skip=False)
    most = max([1, *(len(one.boxes) for own in pictures.values() for one in own)])

    def examples(split: str) -> BoxedImages:
        own = [_rows(one, found.classes, decoder) for one in pictures[split]]
        return BoxedImages(pictures[split], padded(own, most), decoder)

    return Dataset(
        train=examples("train"),
        validation=examples("validation"),
        test=examples("test"),
        class_names=found.classes,
        num_classes=None,
        given=frozenset(found.splits) - {ALL, "train"},
        has_boxes=True,
    )


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
