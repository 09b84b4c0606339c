"""The `distill` stage: a student follows its teacher's softened outputs and the hard labels."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras as keras

from shrink.engine.objective import SupervisedObjective, at_least_float32
from shrink.errors import ModelError, StageError
from shrink.model.logits import logits_of
from shrink.stages.context import StageContext, StageResult
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.losses import softened_kl
from shrink.stages.task import check_shapes, keras_interface


class DistillationObjective:
    """alpha · loss(labels) + (1 - alpha) · T² · KL(teacher ‖ student), per example.

    Args:
        teacher: gives logits; runs once per micro-batch, in inference mode.
        hard: the loss on the labels.
        temperature: T.
        alpha: weight of the hard loss.
    """

    def __init__(
        self, teacher: keras.Model, hard: SupervisedObjective, temperature: float, alpha: float
    ) -> None:
        self._teacher = teacher
        self._hard = hard
        self._temperature = temperature
        self._alpha = alpha

    def targets(self, x: Any) -> tf.Tensor:
        """Return the teacher's logits, (n, classes)."""
        return at_least_float32(self._teacher(x, training=False))

    def loss(self, y: Any, outputs: Any, targets: Any) -> tf.Tensor:
        """Return the loss of each example, (n,)."""
        logits = at_least_float32(outputs)
        soft = softened_kl(logits, tf.cast(targets, logits.dtype), self._temperature)
        hard = self._hard.loss(y, outputs, None)
        return self._alpha * hard + (1.0 - self._alpha) * tf.cast(soft, hard.dtype)

    def validation_loss(self, y: Any, outputs: Any) -> tf.Tensor:
        """Return the hard loss of each example, (n,)."""
        return self._hard.validation_loss(y, outputs)

    def metric(self, name: str, y: Any, outputs: Any) -> tf.Tensor:
        """Return the named metric of each example, (n,)."""
        return self._hard.metric(name, y, outputs)


def run(config: DistillConfig, context: StageContext) -> StageResult:
    """Train the student beside its teacher."""
    teacher, student = context.load("teacher"), context.load("model")
    task = context.task(student)
    check_shapes(context.dataset, keras_interface(teacher))
    _check_outputs(teacher, student, task.loss)
    with context.devices.scope(), logits_of(teacher) as taught, logits_of(student) as learning:
        hard = SupervisedObjective(task.loss, from_logits=True)
        objective = DistillationObjective(taught, hard, config.temperature, config.alpha)
        record = context.train(learning, objective, config.epochs)
    return StageResult(model=student, training=record)


def _check_outputs(teacher: keras.Model, student: keras.Model, loss: str) -> None:
    shapes = [tuple(model.outputs[0].shape[1:]) for model in (teacher, student)]
    if shapes[0] != shapes[1] or len(teacher.outputs) != len(student.outputs):
        raise ModelError(
            f"the teacher gives outputs of shape {shapes[0]}, the student {shapes[1]}",
            subject="distill",
            hint="teacher and student must tell the same classes apart",
        )
    if "crossentropy" not in loss:
        raise StageError(
            f"softened outputs are for classification, and the task's loss is {loss}",
            subject="distill",
        )
