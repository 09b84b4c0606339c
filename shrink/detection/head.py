"""What the outputs of a detector mean: boxes and scores of each candidate.

All kinds of heads become the same `Candidates`, in TensorFlow: training's loss, the artifact's
outputs and the host's decoding share this one reading. Lengths are pixels of the model's input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.detection.config import DecodeConfig
from shrink.tflite.lazy import tf

Shape = tuple[int | None, ...]
Pairs = tuple[tuple[float, float], ...]
_EPSILON = 1e-7
"""Probabilities are kept this far from 0 and 1 before they are taken for logits, as Keras does."""


class Candidates(NamedTuple):
    """What a detector says of some pictures.

    Attributes:
        boxes: (n, a, 4): left, top, right, bottom.
        logits: (n, a, classes); with a softmax one more, the first, for the background.
        objectness: logits (n, a); None for a head without.
    """

    boxes: tf.Tensor
    logits: tf.Tensor
    objectness: tf.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Head:
    """A detector's outputs, read for one size of pictures.

    Attributes:
        settings: what the recipe says.
        picture: height and width of the model's input.
        classes: number of classes.
        priors: float32 (a, 4), the cell or anchor of each candidate: left, top, right, bottom;
            None where nobody knows, and nothing can be assigned to candidates.
        levels: int (a,), which of the strides each candidate belongs to.
        outputs: shape of each output of one example.
    """

    settings: DecodeConfig
    picture: tuple[int, int]
    classes: int
    priors: Array | None = field(repr=False)
    levels: Array | None = field(repr=False)
    outputs: tuple[Shape, ...]

    @property
    def score_columns(self) -> int:
        """Numbers of a candidate that say what it is."""
        return self.classes + (self.settings.scores == "softmax")

    def logit_channels(self) -> list[Array] | None:
        """Return, for each output, which places of its last axis a sigmoid is taken of alone.

        None where there are no such places: a softmax compares its logits with each other, and
        probabilities are none.
        """
        kind = self.settings.name
        if self.settings.scores == "softmax" or kind == "boxes":
            return None
        if kind == "ssd" and len(self.outputs) == 2:
            return [np.zeros(4, bool), np.ones(self.score_columns, bool)]
        width = self.score_columns + (5 if kind == "yolo" else 4)
        one = np.arange(width) >= 4
        return [np.tile(one, int(shape[-1] or 0) // width) for shape in self.outputs]

    def read(self, outputs: Sequence[tf.Tensor]) -> Candidates:
        """Return the candidates of outputs (n, ...)."""
        return _READERS[self.settings.name](self, outputs)

    def probabilities(self, candidates: Candidates) -> tf.Tensor:
        """Return the score of each class, (n, a, classes)."""
        if self.settings.scores == "softmax":
            return tf.nn.softmax(candidates.logits)[..., 1:]
        scores = tf.sigmoid(candidates.logits)
        if candidates.objectness is None:
            return scores
        return scores * tf.sigmoid(candidates.objectness)[..., None]


def head_of(settings: DecodeConfig, picture: Shape, outputs: Sequence[Shape], classes: int) -> Head:
    """Return how a model's outputs are read.

    Args:
        settings: what the recipe says.
        picture: shape of the model's input, (height, width, channels).
        outputs: shape of each output of one example.
        classes: number of classes.

    Raises:
        ModelError: the outputs are not those of such a head.
    """
    if len(picture) != 3 or None in picture[:2]:
        raise _unfit(settings, f"the model's input {picture} is no picture of a fixed size")
    size = (int(picture[0] or 0), int(picture[1] or 0))
    priors, levels = _priors(settings, size)
    head = Head(settings, size, classes, priors, levels, tuple(outputs))
    wanted = _wanted_shapes(head)
    if not any(_alike(outputs, shapes) for shapes in wanted):
        texts = " or ".join(" and ".join(map(str, shapes)) for shapes in wanted)
        got = " and ".join(map(str, outputs))
        raise _unfit(settings, f"for {classes} classes its outputs are {texts}, not {got}")
    return head


def _unfit(settings: DecodeConfig, why: str) -> ModelError:
    return ModelError(
        f"the model's outputs cannot be decoded as {settings.name}: {why}",
        hint="correct task.decode (strides, anchors, scores), or data.classes; or decode with "
        "file.py:function",
    )


def _alike(outputs: Sequence[Shape], wanted: Sequence[Shape]) -> bool:
    return len(outputs) == len(wanted) and all(
        len(own) == len(want)
        and all(a is None or b is None or a == b for a, b in zip(own, want, strict=True))
        for own, want in zip(outputs, wanted, strict=True)
    )


def _cells(picture: tuple[int, int], stride: int) -> tuple[int, int]:
    return -(-picture[0] // stride), -(-picture[1] // stride)


def _anchors(settings: DecodeConfig, level: int) -> Pairs:
    """Return width and height of a level's anchors; of heads without, one cell."""
    stride = float(settings.strides[level])
    return settings.anchors[level] if settings.anchors else ((stride, stride),)


def _priors(settings: DecodeConfig, picture: tuple[int, int]) -> tuple[Array | None, Array | None]:
    """Return the cell or anchor of each candidate, row by row and anchor by anchor in a cell."""
    if not settings.strides:
        return None, None
    every, levels = [], []
    for level, stride in enumerate(settings.strides):
        rows, columns = _cells(picture, stride)
        y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
        centres = (np.stack([x, y], axis=-1) + 0.5) * stride
        half = np.asarray(_anchors(settings, level)) / 2
        low = centres[:, :, None] - half
        high = centres[:, :, None] + half
        every.append(np.concatenate([low, high], axis=-1).reshape(-1, 4))
        levels.append(np.full(len(every[-1]), level))
    return np.concatenate(every).astype(np.float32), np.concatenate(levels)


def _wanted_shapes(head: Head) -> list[tuple[Shape, ...]]:
    """Return the shapes of outputs that the kind of head can have."""
    settings, columns = head.settings, head.score_columns
    count = None if head.priors is None else len(head.priors)
    if settings.name in ("boxes", "ssd"):
        apart = ((count, 4), (count, columns))
        return [((count, 4 + columns),), apart]
    shapes = []
    for level, stride in enumerate(settings.strides):
        width = 4 + columns
        if settings.name == "yolo":
            width = len(_anchors(settings, level)) * (5 + columns)
        shapes.append((*_cells(head.picture, stride), width))
    return [tuple(shapes)]


def _parts(outputs: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the four numbers of boxes, and the others."""
    if len(outputs) == 2:
        return outputs[0], outputs[1]
    return outputs[0][..., :4], outputs[0][..., 4:]


def _read_boxes(head: Head, outputs: Sequence[tf.Tensor]) -> Candidates:
    """Boxes and probabilities, decoded by the model itself."""
    boxes, scores = _parts(outputs)
    if head.settings.units == "fraction":
        height, width = head.picture
        boxes = boxes * tf.constant([width, height, width, height], boxes.dtype)
    if head.settings.box_format == "xywh":
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        boxes = tf.concat([centre - half, centre + half], axis=-1)
    if head.settings.scores == "softmax":
        return Candidates(boxes, tf.math.log(tf.maximum(scores, _EPSILON)))
    p = tf.clip_by_value(scores, _EPSILON, 1 - _EPSILON)
    return Candidates(boxes, tf.math.log(p) - tf.math.log1p(-p))


def _flat(outputs: Sequence[tf.Tensor], width: int) -> tf.Tensor:
    """Return all levels' cells and anchors one after the other, (n, a, width)."""
    rows = [tf.reshape(one, (tf.shape(one)[0], -1, width)) for one in outputs]
    return tf.concat(rows, axis=1)


def _prior_tensors(head: Head, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return centres (a, 2), sizes (a, 2) and strides (a, 1) of the priors."""
    assert head.priors is not None
    assert head.levels is not None
    low, high = head.priors[:, :2].astype(np.float64), head.priors[:, 2:].astype(np.float64)
    strides = np.asarray(head.settings.strides, np.float64)[head.levels][:, None]
    return tuple(tf.constant(one, dtype) for one in ((low + high) / 2, high - low, strides))


def _read_grid(head: Head, outputs: Sequence[tf.Tensor]) -> Candidates:
    """Distances from each cell's centre to the four edges, in strides (Tian et al. 2019, FCOS)."""
    raw = _flat(outputs, 4 + head.score_columns)
    centre, _, stride = _prior_tensors(head, raw.dtype)
    distances = tf.nn.softplus(raw[..., :4]) * stride
    boxes = tf.concat([centre - distances[..., :2], centre + distances[..., 2:]], axis=-1)
    return Candidates(boxes, raw[..., 4:])


def _read_yolo(head: Head, outputs: Sequence[tf.Tensor]) -> Candidates:
    """Offsets in cells, sizes in anchors: YOLOv3 (Redmon & Farhadi 2018, section 2.1) or YOLOv5."""
    raw = _flat(outputs, 5 + head.score_columns)
    centre, size, stride = _prior_tensors(head, raw.dtype)
    offset = tf.sigmoid(raw[..., :2])
    if head.settings.coding == "exp":
        place, scale = centre + (offset - 0.5) * stride, tf.exp(raw[..., 2:4])
    else:
        place = centre + (2 * offset - 1) * stride
        scale = tf.square(2 * tf.sigmoid(raw[..., 2:4]))
    half = scale * size / 2
    boxes = tf.concat([place - half, place + half], axis=-1)
    return Candidates(boxes, raw[..., 5:], raw[..., 4])


def _read_ssd(head: Head, outputs: Sequence[tf.Tensor]) -> Candidates:
    """Offsets in anchors, times variances (Liu et al. 2016, SSD, equation 2)."""
    raw, logits = _parts(outputs)
    centre, size, _ = _prior_tensors(head, raw.dtype)
    of_centre, of_size = head.settings.variances
    place = centre + raw[..., :2] * of_centre * size
    half = size * tf.exp(raw[..., 2:] * of_size) / 2
    return Candidates(tf.concat([place - half, place + half], axis=-1), logits)


_READERS: Mapping[str, Callable[[Head, Sequence[tf.Tensor]], Candidates]] = {
    "boxes": _read_boxes,
    "grid": _read_grid,
    "yolo": _read_yolo,
    "ssd": _read_ssd,
}
