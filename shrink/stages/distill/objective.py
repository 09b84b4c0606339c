"""The objective of distillation: teachers, what they give, losses and schedules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import tensorflow as tf
import tf_keras as keras

from shrink.base.losses import DETECTION, kind_of_loss, takes_logits
from shrink.base.types import Tensors
from shrink.contract.choices import Choice
from shrink.data.examples import single
from shrink.distillation.losses import FEATURE_LOSSES, SOFT_LOSSES, Case, squared_error
from shrink.engine.losses import at_least_float32, masked, per_example
from shrink.engine.microbatch import cast_inputs
from shrink.engine.objective import Objective, SupervisedObjective, for_each
from shrink.model.logits import logits_of, takes_logarithm
from shrink.task.detector import DetectionObjective
from shrink.task.task import Task

_TEMPERATURE, _DETECTORS_TEMPERATURE = 4.0, 1.0


class TeacherOutputs(NamedTuple):
    """What a teacher gives for a batch: logits or outputs, and chosen features, (n, ...) each."""

    outputs: tuple[tf.Tensor, ...]
    features: tuple[tf.Tensor, ...] = ()


class DistillationTargets(NamedTuple):
    """Labels and cached teacher outputs of a batch; `cached` as they are stored."""

    labels: Tensors
    cached: tf.Tensor


@dataclass(frozen=True)
class DistillationLoss:
    """The loss by which a student follows its teacher.

    Attributes:
        loss: a key of `SOFT_LOSSES`, or one for each output.
        temperature: T.
        alpha: weight of the hard loss.
        beta: see `decoupled_kd`.
        output_weights: factor of each output's soft loss in their sum; by default 1.
        feature_loss: a key of `FEATURE_LOSSES`; None for no features.
        feature_weight: of the features' loss, the mean over the pairs of features.
    """

    loss: str | tuple[str, ...] = "kl"
    temperature: float = 4.0
    alpha: float = 0.1
    beta: float = 8.0
    output_weights: tuple[float, ...] = ()
    feature_loss: str | None = None
    feature_weight: float = 1.0


Together = Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor], float], tf.Tensor]
"""Outputs of student and teacher, and a temperature, to the loss of each example, (n,)."""


class DistillationObjective(Objective):
    """alpha · loss(labels) + (1 - alpha) · loss(teacher) + weight · loss(features), per example.

    Args:
        teach: gives a teacher's `TeacherOutputs` for inputs as the data set stores them; called
            once per micro-batch, in inference mode. Not called where the targets are
            `DistillationTargets`.
        hard: the loss on the labels.
        distillation_loss: the rest.
        decode: from what a `DistillationTargets` holds to `TeacherOutputs`.
        outputs: how many of the model's outputs are its own; features follow them.
        together: compares all outputs of student and teacher at once, at a temperature, in place
            of the loss of each: (n,).
    """

    def __init__(
        self,
        teach: Callable[[Tensors], TeacherOutputs] | None,
        hard: Objective,
        distillation_loss: DistillationLoss,
        decode: Callable[[tf.Tensor], TeacherOutputs] | None = None,
        outputs: int = 1,
        together: Together | None = None,
    ) -> None:
        self._teach = teach
        self._hard = hard
        self._distillation_loss = distillation_loss
        self._decode = decode
        self._outputs = outputs
        self._together = together

    def targets(self, x: Tensors) -> TeacherOutputs | None:
        """Return what the teacher gives, or None where its outputs are cached."""
        return None if self._teach is None else self._teach(x)

    def loss(self, y: Tensors, outputs: Tensors, targets: Tensors) -> tf.Tensor:
        """Return the loss of each example, (n,)."""
        if isinstance(y, DistillationTargets) and self._decode is not None:
            targets = self._decode(y.cached)
        labels, flat, count = _labels(y), tf.nest.flatten(outputs), self._outputs
        hard = self._hard.loss(labels, single(tuple(flat[:count])), None)
        alpha = self._distillation_loss.alpha
        soft = self._soft(labels, flat[:count], targets.outputs)
        total = alpha * hard + (1 - alpha) * tf.cast(soft, hard.dtype)
        settings = self._distillation_loss
        if settings.feature_loss is None:
            return total
        compare = FEATURE_LOSSES[settings.feature_loss]
        students = map(at_least_float32, flat[count:])
        parts = [
            compare(student, tf.cast(teacher, student.dtype))
            for student, teacher in zip(students, targets.features, strict=True)
        ]
        features = settings.feature_weight * tf.add_n(parts) / len(parts)
        return total + tf.cast(features, hard.dtype)

    def validation_loss(self, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the hard loss of each example, (n,)."""
        return self._hard.validation_loss(_labels(y), self._own(outputs))

    def metric(self, name: str, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the named metric of each example, (n,)."""
        return self._hard.metric(name, _labels(y), self._own(outputs))

    def ignored(self, outputs: int) -> Sequence[int | None]:
        """Return the class number of each output whose elements do not count; None for none."""
        features = outputs - self._outputs
        return [*self._hard.ignored(self._outputs), *[None] * features]

    def user_losses(self) -> Sequence[str]:
        """Return the losses that are a user's functions."""
        return self._hard.user_losses()

    def _own(self, outputs: Tensors) -> Tensors:
        """Return the model's outputs without the features that follow them."""
        return single(tuple(tf.nest.flatten(outputs)[: self._outputs]))

    def _soft(
        self, labels: Tensors, outputs: Sequence[tf.Tensor], teacher_outputs: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        distillation_loss = self._distillation_loss
        if self._together is not None:
            student = [at_least_float32(own) for own in outputs]
            teacher = [tf.cast(t, s.dtype) for t, s in zip(teacher_outputs, student, strict=True)]
            return self._together(student, teacher, distillation_loss.temperature)
        weights = distillation_loss.output_weights or (1.0,) * len(outputs)
        parts = []
        losses = for_each(distillation_loss.loss, len(outputs))
        for loss, weight, y, own, other in zip(
            losses, weights, tf.nest.flatten(labels), outputs, teacher_outputs, strict=True
        ):
            student = at_least_float32(own)
            teacher = tf.cast(other, student.dtype)
            classes = y  # class numbers, of the logits' shape but the last
            if y.shape.rank == student.shape.rank:
                one = y.shape[-1] == 1
                classes = tf.squeeze(y, axis=-1) if one else tf.argmax(y, axis=-1)
            temperature, beta = distillation_loss.temperature, distillation_loss.beta
            case = Case(student, teacher, classes, temperature, beta)
            values = masked(SOFT_LOSSES[loss](case), own)
            parts.append(weight * per_example(values))
        return tf.add_n(parts)


def _labels(y: Tensors) -> Tensors:
    return y.labels if isinstance(y, DistillationTargets) else y


Teach = Callable[[Tensors], TeacherOutputs]
"""A batch of inputs as the data set stores them to what a teacher gives for it."""


def final_activations(loss: str) -> tuple[str, ...]:
    """Return the activations that turn logits into an output, by the key of its loss.

    None for outputs that are no probabilities, and for those that a user's function is given.
    """
    if not takes_logits(loss):
        return ()
    return ("softmax",) if kind_of_loss(loss) == "classes" else ("sigmoid",)


def soft_loss(named: str, loss: str) -> str:
    """Return the key of `SOFT_LOSSES` by which an output is compared with its teacher's.

    Args:
        named: what the recipe names, or "auto".
        loss: the output's loss on labels.
    """
    if not takes_logits(loss) or named == "output_mse":
        return "output_mse"
    chosen = "kl" if named == "auto" else named
    return "bernoulli_kl" if (chosen, kind_of_loss(loss)) == ("kl", "labels") else chosen


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
    if not any(map(takes_logits, losses)):
        yield model
        return
    activations = map(final_activations, losses)
    with logits_of(model, *activations, from_logits=from_logits) as logits:
        yield logits


def opened_task(task: Task) -> Task:
    """Return the task of what `open_outputs` yields: classes are logits."""
    pairs = zip(task.losses, task.from_logits, strict=True)
    return replace(task, from_logits=tuple(takes_logits(loss) or logits for loss, logits in pairs))


def hard_loss(task: Task) -> Objective:
    """Return the loss on the labels of what `open_outputs` yields."""
    if task.detector is not None:
        return DetectionObjective(task.detector)
    return SupervisedObjective(task.losses, opened_task(task).from_logits, task.loss_weights)


def temperature_of(setting: float | Literal["auto"], losses: Sequence[str]) -> float:
    """Return the temperature that a recipe asks for, or leaves open.

    The softmax of an image says more of the classes that it is not, the softer it is. A detector's
    boxes are not softened: divergences of softened scores, times T², outweigh them, and those of
    background, whose logits are far below 0, the scores of what is found.

    Args:
        setting: as the recipe has it.
        losses: of the task's outputs.
    """
    if setting != "auto":
        return setting
    return _DETECTORS_TEMPERATURE if DETECTION in losses else _TEMPERATURE


def temperature_choice(setting: object, losses: Sequence[str]) -> tuple[Choice, ...]:
    """Return what the report says of a temperature that a detector's recipe left open."""
    if setting != "auto" or DETECTION not in losses:
        return ()
    why = "boxes are not softened, and softened scores would outweigh them"
    return (Choice(key="temperature", value=f"{_DETECTORS_TEMPERATURE:g}", why=why),)


def together_of(task: Task, named: str) -> Together | None:
    """Return what compares all outputs of a detector with its teacher's; None for other tasks.

    Args:
        task: of the student.
        named: `auto`, for boxes and scores, or `output_mse` for the outputs as they are, as always
            where a user's function decodes them.
    """
    if task.detector is None:
        return None
    if named != "output_mse":
        return task.detector.teacher_losses

    def raw_outputs(
        outputs: Sequence[tf.Tensor], others: Sequence[tf.Tensor], temperature: float
    ) -> tf.Tensor:
        parts = [per_example(squared_error(*pair)) for pair in zip(outputs, others, strict=True)]
        return tf.add_n(parts) / len(parts)

    return raw_outputs


def logarithm_note(model: keras.Model, role: str, loss: str) -> list[str]:
    """Return a sentence for the report where the logarithm of probabilities stands for logits."""
    if not takes_logarithm(model):
        return []
    apart = "equal up to a constant for each example"
    if loss == "logit_mse":
        apart = "shifted so that their exponentials add up to 1, to which logit_mse is sensitive"
    return [
        f"the {role}'s softmax or sigmoid cannot be left out, so the logarithm of its "
        f"probabilities is used as its logits ({apart})"
    ]


def teacher_outputs_of(model: keras.Model, features: Sequence[tf.Tensor] = ()) -> Teach:
    """Return what gives one teacher's outputs, in inference mode.

    Args:
        model: gives logits or outputs.
        features: tensors of the model to give beside them.
    """
    count = len(model.outputs)
    extended = keras.Model(model.inputs, [*model.outputs, *features]) if features else model

    def teach(x: Tensors) -> TeacherOutputs:
        outputs = tf.nest.flatten(extended(cast_inputs(extended, x), training=False))
        outputs = [at_least_float32(each) for each in outputs]
        return TeacherOutputs(tuple(outputs[:count]), tuple(outputs[count:]))

    return teach


def ensemble(teachers: Sequence[Teach]) -> Teach:
    """Return what gives the mean of several teachers' outputs.

    The mean of logits is the geometric mean of the probabilities, up to a factor that a softmax
    does not see (Hinton, Vinyals & Dean 2015, section 1, has both means). Features are the first
    teacher's.
    """
    if len(teachers) == 1:
        return teachers[0]

    def teach(x: Tensors) -> TeacherOutputs:
        each = [one(x) for one in teachers]
        columns = zip(*(teacher_outputs.outputs for teacher_outputs in each), strict=True)
        means = tuple(tf.add_n(list(column)) / len(each) for column in columns)
        return TeacherOutputs(means, each[0].features)

    return teach
