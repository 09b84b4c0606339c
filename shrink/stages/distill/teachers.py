"""Teachers, ready to be asked: one or several, for outputs and for features."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras as keras

from shrink.engine.microbatch import cast_inputs
from shrink.engine.objective import at_least_float32
from shrink.model.logits import logits_of
from shrink.stages.distill.objective import Taught

Teach = Callable[[Any], Taught]
"""A batch of inputs as the data set stores them to what a teacher gives for it."""

CLOSING = {
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
    if loss not in CLOSING or named == "output_mse":
        return "output_mse"
    chosen = "kl" if named == "auto" else named
    return "bernoulli_kl" if (chosen, loss) == ("kl", "binary_crossentropy") else chosen


@contextlib.contextmanager
def open_outputs(model: keras.Model, losses: Sequence[str]) -> Iterator[keras.Model]:
    """Yield the model with logits where an output is classes, and the other outputs as they are.

    Args:
        model: any functional model.
        losses: the task's, of each output.
    """
    if CLOSING.keys().isdisjoint(losses):
        yield model
        return
    with logits_of(model, *(CLOSING.get(loss, ()) for loss in losses)) as logits:
        yield logits


def taught_by(model: keras.Model, features: Sequence[Any] = ()) -> Teach:
    """Return what asks one teacher, in inference mode.

    Args:
        model: gives logits or outputs.
        features: tensors of the model to give beside them.
    """
    count = len(model.outputs)
    asked = keras.Model(model.inputs, [*model.outputs, *features]) if features else model

    def teach(x: Any) -> Taught:
        given = tf.nest.flatten(asked(cast_inputs(asked, x), training=False))
        given = [at_least_float32(each) for each in given]
        return Taught(tuple(given[:count]), tuple(given[count:]))

    return teach


def ensemble(teachers: Sequence[Teach]) -> Teach:
    """Return what asks several teachers and gives the mean of their outputs.

    The mean of logits is the geometric mean of the probabilities, up to a factor that a softmax
    does not see (Hinton, Vinyals & Dean 2015, section 1, has both means). Features are the first
    teacher's.
    """
    if len(teachers) == 1:
        return teachers[0]

    def teach(x: Any) -> Taught:
        each = [one(x) for one in teachers]
        columns = zip(*(taught.outputs for taught in each), strict=True)
        means = tuple(tf.add_n(list(column)) / len(each) for column in columns)
        return Taught(means, each[0].features)

    return teach
