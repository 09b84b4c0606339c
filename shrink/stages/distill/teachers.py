"""Teachers, ready to be asked: one or several, for outputs and for features."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras as keras

from shrink.engine.microbatch import cast_inputs
from shrink.engine.objective import SupervisedObjective, at_least_float32
from shrink.model.logits import logits_of, takes_logarithm
from shrink.stages.distill.objective import TeacherOutputs
from shrink.task.task import Task

Teach = Callable[[Any], TeacherOutputs]
"""A batch of inputs as the data set stores them to what a teacher gives for it."""

FINAL_ACTIVATIONS = {
    "sparse_categorical_crossentropy": ("softmax",),
    "categorical_crossentropy": ("softmax",),
    "binary_crossentropy": ("sigmoid",),
}
"""The activations that turn logits into a classifier's outputs, by the task's loss."""


def soft_loss(named: str, loss: str) -> str:
    """Return the key of `SOFT_LOSSES` by which an output is compared with its teacher's.

    Args:
        named: what the recipe names, or "auto".
        loss: the output's loss on labels.
    """
    if loss not in FINAL_ACTIVATIONS or named == "output_mse":
        return "output_mse"
    chosen = "kl" if named == "auto" else named
    return "bernoulli_kl" if (chosen, loss) == ("kl", "binary_crossentropy") else chosen


@contextlib.contextmanager
def open_outputs(
    model: keras.Model, losses: Sequence[str], from_logits: Sequence[bool]
) -> Iterator[keras.Model]:
    """Yield the model with logits where an output is classes, and the other outputs as they are.

    Args:
        model: any functional model.
        losses: the task's, of each output.
        from_logits: the task's, whether an output is logits already.
    """
    if FINAL_ACTIVATIONS.keys().isdisjoint(losses):
        yield model
        return
    closing = (FINAL_ACTIVATIONS.get(loss, ()) for loss in losses)
    with logits_of(model, *closing, from_logits=from_logits) as logits:
        yield logits


def hard_loss(task: Task) -> SupervisedObjective:
    """Return the loss on the labels of what `open_outputs` yields."""
    pairs = zip(task.losses, task.from_logits, strict=True)
    opened = tuple(loss in FINAL_ACTIVATIONS or logits for loss, logits in pairs)
    return SupervisedObjective(task.losses, opened, task.loss_weights)


def logarithm_note(model: keras.Model, role: str, loss: str) -> list[str]:
    """Return a sentence for the report where the logarithm of probabilities stands for logits."""
    if not takes_logarithm(model):
        return []
    apart = "a constant for each example apart, the same"
    if loss == "logit_mse":
        apart = "logits whose exponentials add up to 1, which logit_mse tells from others"
    return [
        f"the {role}'s softmax or sigmoid cannot be left out, so the logarithm of its "
        f"probabilities stands for its logits ({apart})"
    ]


def teacher_outputs_of(model: keras.Model, features: Sequence[Any] = ()) -> Teach:
    """Return what asks one teacher, in inference mode.

    Args:
        model: gives logits or outputs.
        features: tensors of the model to give beside them.
    """
    count = len(model.outputs)
    asked = keras.Model(model.inputs, [*model.outputs, *features]) if features else model

    def teach(x: Any) -> TeacherOutputs:
        given = tf.nest.flatten(asked(cast_inputs(asked, x), training=False))
        given = [at_least_float32(each) for each in given]
        return TeacherOutputs(tuple(given[:count]), tuple(given[count:]))

    return teach


def ensemble(teachers: Sequence[Teach]) -> Teach:
    """Return what asks several teachers and gives the mean of their outputs.

    The mean of logits is the geometric mean of the probabilities, up to a factor that a softmax
    does not see (Hinton, Vinyals & Dean 2015, section 1, has both means). Features are the first
    teacher's.
    """
    if len(teachers) == 1:
        return teachers[0]

    def teach(x: Any) -> TeacherOutputs:
        each = [one(x) for one in teachers]
        columns = zip(*(taught.outputs for taught in each), strict=True)
        means = tuple(tf.add_n(list(column)) / len(each) for column in columns)
        return TeacherOutputs(means, each[0].features)

    return teach
