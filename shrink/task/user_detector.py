"""A detector whose outputs a user's function decodes: `task.decode: file.py:function`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.errors import StageError
from shrink.base.types import Array, Tensors
from shrink.detection.decode import CLASS, COLUMNS, SCORE
from shrink.distillation.losses import squared_error
from shrink.engine.losses import per_example
from shrink.model.user_modules import blaming, function_of
from shrink.tflite.lazy import tf

_RETURNS = (
    "it takes the outputs of n pictures, and returns an array (n, k, 6), or n arrays (k, 6): left, "
    "top, right and bottom in pixels of the model's input, score, and class, -1 for padding"
)
_LOSES = "it takes boxes (n, k, 7) and outputs as TensorFlow tensors, and returns a loss each, (n,)"


@dataclass(frozen=True)
class UserDetector:
    """How a user decodes a detector, the same for every stage; see `shrink.task.detector`.

    Attributes:
        function: file and name of what decodes.
        loss: file and name of what training minimises; None for a model that is not trained.
        max_detections: of a picture, those of the highest scores.
        classes: how many there are.
    """

    function: tuple[str, str]
    loss: tuple[str, str] | None
    max_detections: int
    classes: int

    @property
    def no_loss(self) -> str | None:
        """Why there is no loss; None where there is one."""
        return None if self.loss else f"task.decode is {self.function[1]}, without decode.loss"

    def detections(self, outputs: Sequence[Array]) -> Array:
        """Return detections, float64 (n, max_detections, 6), best first; padding has class -1.

        Raises:
            StageError: the function raises, or returns no detections.
        """
        arrays = tuple(np.asarray(one, np.float64) for one in outputs)
        returned = _called(self.function, _RETURNS, arrays[0] if len(arrays) == 1 else arrays)
        count = len(arrays[0])
        found = np.zeros((count, self.max_detections, COLUMNS))
        found[:, :, CLASS] = -1
        try:
            parts = [np.asarray(one, np.float64) for one in returned]  # type: ignore[attr-defined]
        except (TypeError, ValueError) as error:
            raise self._refused(f"it returned {type(returned).__name__}") from error
        if len(parts) != count:
            raise self._refused(f"it returned {len(parts)} arrays for {count} pictures")
        for row, own in zip(found, parts, strict=True):
            best = self._best(own)
            row[: len(best)] = best
        return found

    def _best(self, rows: Array) -> Array:
        """Return the best detections of a picture, (k, 6); equal scores stay in their order."""
        if not rows.size:
            return np.zeros((0, COLUMNS))
        if rows.ndim != 2 or rows.shape[1] != COLUMNS:
            raise self._refused(f"it returned shape {rows.shape} for a picture")
        label = rows[:, CLASS]
        if not np.isin(label, np.arange(-1, self.classes)).all():
            wrong = label[~np.isin(label, np.arange(-1, self.classes))][0]
            raise self._refused(f"it returned the class {wrong:g} of {self.classes}")
        rows = rows[(label >= 0) & np.isfinite(rows).all(axis=1)]
        order = np.argsort(-rows[:, SCORE], kind="stable")
        return np.asarray(rows[order[: self.max_detections]])

    def _refused(self, why: str) -> StageError:
        return StageError(f"{self.function[1]}: {why}", subject=self.function[0], hint=_RETURNS)

    def losses(self, targets: Tensors, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the loss of each example, (n,).

        Raises:
            StageError: there is none; the function raises, or returns another shape.
        """
        if self.loss is None:
            raise StageError(str(self.no_loss), subject="task.decode.loss", hint=_LOSES)
        given = outputs[0] if len(outputs) == 1 else tuple(outputs)
        boxes = tf.cast(targets, outputs[0].dtype)
        values = tf.convert_to_tensor(_called(self.loss, _LOSES, boxes, given))
        if values.shape.rank != 1 or not values.dtype.is_floating:
            shape = tuple(values.shape)
            raise StageError(
                f"{self.loss[1]}: it returned {values.dtype.name} of shape {shape}",
                subject=self.loss[0],
                hint=_LOSES,
            )
        return values

    def teacher_losses(
        self,
        outputs: Sequence[tf.Tensor],
        teacher_outputs: Sequence[tf.Tensor],
        temperature: float | tf.Tensor,
    ) -> tf.Tensor:
        """Return the mean over outputs of their squared error: nobody knows what they mean."""
        pairs = zip(outputs, teacher_outputs, strict=True)
        return tf.add_n([per_example(squared_error(*pair)) for pair in pairs]) / len(outputs)

    def scores(self, outputs: Sequence[Array], targets: Array) -> Array | None:
        """Return the loss of each example in float64, (n,); None without one."""
        if self.loss is None:
            return None
        own = [tf.constant(one, tf.float32) for one in outputs]
        values = np.asarray(self.losses(tf.constant(targets), own), np.float64)
        if values.shape != (len(targets),):
            raise StageError(
                f"{self.loss[1]}: it returned shape {values.shape} for {len(targets)} pictures",
                subject=self.loss[0],
                hint=_LOSES,
            )
        return values


def _called(named: tuple[str, str], hint: str, *arguments: object) -> object:
    """Return what a user's function returns."""
    file, name = named
    function = function_of(Path(file), name)
    with blaming(f"{name}: ", file, hint):
        return function(*arguments)
