"""A detector's task: its outputs are decoded together, its targets are boxes, its loss is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from shrink.base.errors import RecipeError, StageError
from shrink.base.losses import DETECTION
from shrink.base.types import Array, Tensors
from shrink.detection.config import DetectionLossConfig
from shrink.detection.decode import decode
from shrink.detection.head import Head
from shrink.detection.loss import detection_loss
from shrink.detection.teaching import teacher_loss
from shrink.engine.losses import at_least_float32
from shrink.engine.objective import Objective
from shrink.task.user_detector import UserDetector
from shrink.tflite.lazy import tf

_NO_PLACES = "task.decode has no strides, so the places of the candidates are unknown"
METRIC = "map"
"""The main metric of a detector, where the recipe names none."""


@dataclass(frozen=True)
class Detector:
    """How a detector with a head that shrink knows is decoded and trained.

    Attributes:
        head: what the outputs mean, and what the recipe says of them.
    """

    head: Head

    @property
    def _loss(self) -> DetectionLossConfig:
        loss = self.head.settings.loss
        assert isinstance(loss, DetectionLossConfig), "a function stands beside one that decodes"
        return loss

    @property
    def no_loss(self) -> str | None:
        """Why there is no loss; None where there is one."""
        return _NO_PLACES if self.head.priors is None else None

    def detections(self, outputs: Sequence[Array]) -> Array:
        """Return detections, float64 (n, most, 6), see `shrink.detection.decode`."""
        return decode(self.head, outputs)

    def losses(self, targets: Tensors, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the loss of each example, (n,)."""
        return detection_loss(self.head, self._loss, targets, self.head.read(outputs))

    def teacher_losses(
        self,
        outputs: Sequence[tf.Tensor],
        teacher_outputs: Sequence[tf.Tensor],
        temperature: float | tf.Tensor,
    ) -> tf.Tensor:
        """Return what each example loses against a teacher, (n,)."""
        return teacher_loss(self.head, self._loss.box_weight, outputs, teacher_outputs, temperature)

    def scores(self, outputs: Sequence[Array], targets: Array) -> Array | None:
        """Return the loss of each example in float64, (n,); None where it cannot be had."""
        if self.head.priors is None:
            return None
        own = [tf.constant(one, tf.float64) for one in outputs]
        return np.asarray(self.losses(tf.constant(targets), own))


Decoder: TypeAlias = Detector | UserDetector
"""What outputs of a detector mean, and what they lose."""


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
