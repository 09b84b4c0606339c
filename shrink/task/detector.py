"""A detector's task: its outputs are decoded together, its targets are boxes, its loss is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from shrink.base.errors import RecipeError, StageError
from shrink.base.losses import DETECTION
from shrink.base.types import Array, Tensors
from shrink.detection.decode import Selection, decode
from shrink.detection.head import Head, HeadKind, HeadSettings, head_of
from shrink.detection.loss import DetectionLoss, detection_loss
from shrink.detection.teaching import teacher_loss
from shrink.engine.losses import at_least_float32
from shrink.engine.objective import Objective
from shrink.task.decode_config import DecodeConfig, DetectionLossConfig
from shrink.tflite.lazy import tf

_NO_PLACES = "task.decode has no strides, so the places of the candidates are unknown"
METRIC = "map"
"""The main metric of a detector, where the recipe names none."""


class Decoder(Protocol):
    """What outputs of a detector mean, and what they lose."""

    @property
    def no_loss(self) -> str | None:
        """Why there is no loss; None where there is one."""

    def detections(self, outputs: Sequence[Array]) -> Array:
        """Return detections, float64 (n, most, 6), see `shrink.detection.decode`."""

    def losses(self, targets: Tensors, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the loss of each example, (n,)."""

    def teacher_losses(
        self,
        outputs: Sequence[tf.Tensor],
        teacher_outputs: Sequence[tf.Tensor],
        temperature: float | tf.Tensor,
    ) -> tf.Tensor:
        """Return what each example loses against a teacher, (n,)."""

    def scores(self, outputs: Sequence[Array], targets: Array) -> Array | None:
        """Return the loss of each example in float64, (n,); None where it cannot be had."""


@dataclass(frozen=True)
class Detector:
    """How a detector with a head that shrink knows is decoded and trained.

    Attributes:
        head: what the outputs mean.
        selection: which candidates become detections.
        loss: what the parts of the loss weigh.
    """

    head: Head
    selection: Selection
    loss: DetectionLoss

    @property
    def no_loss(self) -> str | None:
        """Why there is no loss; None where there is one."""
        return _NO_PLACES if self.head.priors is None else None

    def detections(self, outputs: Sequence[Array]) -> Array:
        """Return detections, float64 (n, most, 6), see `shrink.detection.decode`."""
        return decode(self.head, self.selection, outputs)

    def losses(self, targets: Tensors, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the loss of each example, (n,)."""
        return detection_loss(self.head, self.loss, targets, self.head.read(outputs))

    def teacher_losses(
        self,
        outputs: Sequence[tf.Tensor],
        teacher_outputs: Sequence[tf.Tensor],
        temperature: float | tf.Tensor,
    ) -> tf.Tensor:
        """Return what each example loses against a teacher, (n,)."""
        return teacher_loss(self.head, self.loss.box_weight, outputs, teacher_outputs, temperature)

    def scores(self, outputs: Sequence[Array], targets: Array) -> Array | None:
        """Return the loss of each example in float64, (n,); None where it cannot be had."""
        if self.head.priors is None:
            return None
        own = [tf.constant(one, tf.float64) for one in outputs]
        return np.asarray(self.losses(tf.constant(targets), own))


def detector_of(
    config: DecodeConfig,
    picture: tuple[int | None, ...],
    outputs: Sequence[tuple[int | None, ...]],
    classes: int,
) -> Detector:
    """Return how a model with such an input and outputs is decoded.

    Raises:
        ModelError: the outputs are not those of such a head.
    """
    settings = HeadSettings(
        kind=cast(HeadKind, config.name),
        strides=config.strides,
        anchors=config.anchors,
        box_format=config.box_format,
        units=config.units,
        coding=config.coding,
        variances=config.variances,
        scores=config.scores,
    )
    chosen = Selection(config.score_threshold, config.nms_iou, config.max_detections)
    loss = config.loss if isinstance(config.loss, DetectionLossConfig) else DetectionLossConfig()
    return Detector(
        head_of(settings, picture, outputs, classes),
        chosen,
        DetectionLoss(gamma=loss.gamma, alpha=loss.alpha, box=loss.box, box_weight=loss.box_weight),
    )


class DetectionObjective(Objective):
    """The mean over the examples of a detector's loss on boxes.

    Args:
        detector: has a loss.

    Raises:
        StageError: nobody knows which candidate stands where, or what a user's outputs lose.
    """

    def __init__(self, detector: Decoder) -> None:
        if detector.no_loss is not None:
            raise StageError(
                f"a detector cannot be trained without a loss: {detector.no_loss}",
                hint="give task.decode.strides, or beside a function as decode.name one as "
                "decode.loss",
            )
        self._detector = detector

    def validation_loss(self, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the loss of each example, (n,), in float32 at least."""
        own = [at_least_float32(one) for one in tf.nest.flatten(outputs)]
        return self._detector.losses(tf.nest.flatten(y)[0], own)

    def metric(self, name: str, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the loss, which is all that a batch tells.

        Raises:
            RecipeError: another metric.
        """
        if name != DETECTION:
            raise RecipeError(f"{name} is no mean over batches of a detector")
        return self.validation_loss(y, outputs)
