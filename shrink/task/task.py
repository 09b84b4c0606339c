"""The task with the origin of each setting, the targets of a data set, and losses for them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from shrink.base.errors import DataError, ReportWarning, StageError
from shrink.base.losses import Loss, ValueKind, kind_of_loss, loss_of
from shrink.base.metrics import measured_outputs
from shrink.base.types import Array, leaves
from shrink.base.user_metric import UserMetric
from shrink.contract import details
from shrink.data.dataset import Dataset
from shrink.model.output_kind import OutputKind, described
from shrink.task.interface import Interface, alike, called

if TYPE_CHECKING:
    from shrink.engine.objective import SupervisedObjective
    from shrink.task.detector import Decoder, DetectionObjective

Source = Literal["recipe", "graph", "values", "compiled", "run", "data"]
"""What something was told by."""


def default_metric(loss: str, shape: tuple[int | None, ...]) -> str:
    """Return the metric that goes with a loss on an output of this shape of one example."""
    kind = kind_of_loss(loss)
    if named := loss_of(loss).info.metric:
        return named
    if kind == "values":
        return "mean_squared_error"
    return "accuracy" if kind == "classes" or shape[-1:] == (1,) else "binary_accuracy"


def takes_margins(loss: str, ending: OutputKind | None) -> bool:
    """Whether a loss compares the signs of outputs with labels, as hinge does; not of a sigmoid."""
    known = loss_of(loss)
    signs = known.kind == "labels" and not known.info.of_probabilities and known.function is None
    return signs and ending not in ("sigmoid", "softmax")


@dataclass(frozen=True)
class OutputTask:
    """What was taken for one output.

    Attributes:
        name: of the output, as a recipe calls it.
        loss: on its labels or targets.
        loss_by: recipe, compiled (the model's file), run (that the model comes from), or data.
        why: what the data says, in words; empty where the data was not asked.
        from_logits: whether it is logits, not probabilities; None where nothing depends on it.
        by: recipe, graph (what the model computes), values (on training examples), or compiled.
        ending: what it is; None where that is not known.
        shape: of one example's output.
    """

    name: str
    loss: str
    loss_by: Source
    why: str
    from_logits: bool | None
    by: Source | None
    ending: OutputKind | None
    shape: tuple[int | None, ...]

    def described(self) -> details.TaskOutput:
        """Return what a report keeps of it."""
        return details.TaskOutput(
            name=self.name,
            loss=self.loss,
            loss_by=self.loss_by,
            from_logits=self.from_logits,
            from_logits_by=self.by,
            ending=self.ending,
        )


@dataclass(frozen=True)
class Task:
    """Loss, metrics and the form of the model's output.

    Attributes:
        losses: on the labels or targets of each output.
        metrics: names; of several outputs the mean over those whose loss a metric goes with.
        monitor: decides which epoch is best.
        from_logits: whether each output is logits, not probabilities.
        input_names: as a converted model names its inputs, in the order of the examples' inputs.
        loss_weights: factor of each output's loss in their sum, which is the task's loss.
        outputs: how this was found, output by output.
        metrics_by: recipe, compiled (the model's file), or data.
        warnings: what is likely wrong.
        classes: names of the classes by index; empty where there are none.
        functions: the metrics that are a user's functions, by key.
        detector: how all outputs together become boxes; None where each is for itself.
    """

    losses: tuple[str, ...]
    metrics: tuple[str, ...]
    monitor: str
    from_logits: tuple[bool, ...]
    input_names: tuple[str, ...]
    loss_weights: tuple[float, ...]
    outputs: tuple[OutputTask, ...] = ()
    metrics_by: Source = "recipe"
    warnings: tuple[ReportWarning, ...] = ()
    classes: tuple[str, ...] = ()
    functions: Mapping[str, UserMetric] = field(default_factory=dict)
    detector: Decoder | None = None

    @property
    def loss(self) -> str:
        """The loss that every output has.

        Raises:
            StageError: outputs have different losses.
        """
        if len(set(self.losses)) > 1:
            raise StageError(
                f"a teacher needs outputs of one kind, and their losses are "
                f"{', '.join(self.losses)}",
                subject="task.loss",
                hint="train without a teacher, or with the same loss on every output",
            )
        return self.losses[0]

    @property
    def note(self) -> str:
        """What was taken, in words."""
        parts = [_in_words(output, alone=len(self.outputs) == 1) for output in self.outputs]
        if self.metrics:
            parts.append(f"metrics {', '.join(self.metrics)} ({_BY[self.metrics_by]})")
        return f"task: {'; '.join(parts)}"

    @property
    def has_accuracy(self) -> bool:
        """Whether every output that `accuracy` is averaged over tells classes apart."""
        if self.detector is not None:
            return False
        outputs = [self.outputs[index] for index in self.measured("accuracy")]
        kinds = [(kind_of_loss(each.loss), each.shape[-1:]) for each in outputs]
        return all(kind == "classes" or (kind, width) == ("labels", (1,)) for kind, width in kinds)

    def measured(self, metric: str) -> list[int]:
        """Return the places of the outputs over which a metric is averaged."""
        widths = [(output.shape or (1,))[-1] for output in self.outputs]
        return measured_outputs(metric, self.losses, widths or None)

    def objective(self) -> SupervisedObjective | DetectionObjective:
        """Return what training on the labels or targets minimises."""
        if self.detector is not None:
            from shrink.task.detector import DetectionObjective

            return DetectionObjective(self.detector)
        from shrink.engine.objective import SupervisedObjective

        return SupervisedObjective(self.losses, self.from_logits, self.loss_weights)

    def described(self) -> details.Task:
        """Return what a report keeps of it."""
        return details.Task(
            outputs=tuple(output.described() for output in self.outputs),
            loss_weights=tuple(self.loss_weights),
            metrics=tuple(self.metrics),
            metrics_by=self.metrics_by,
            monitor=self.monitor,
        )


_BY: Mapping[Source, str] = {
    "recipe": "as the recipe says",
    "graph": "by what the model computes",
    "values": "by its values on training examples",
    "compiled": "as the model was compiled",
    "run": "as in the run that made the model",
    "data": "by the loss",
}


def _in_words(output: OutputTask, alone: bool) -> str:
    why = output.why if output.loss_by == "data" else _BY[output.loss_by]
    text = f"{'' if alone else output.name + ': '}loss {output.loss} ({why})"
    if output.from_logits is None or output.by is None:
        return text
    ending = output.ending
    if ending is None or (ending == "logits") != output.from_logits:
        ending = "logits" if output.from_logits else "sigmoid"
    return f"{text}, the output is taken as {described(ending, output.shape)} ({_BY[output.by]})"


Form = Literal["classes", "values", "other"]
"""A class number for each position of the output, a value for each of its elements, or neither."""

_LOOKED_AT = 64
_SET_LOSS = "or say what is minimised: task.loss"


@dataclass(frozen=True)
class Target:
    """The targets of one output.

    Attributes:
        shape: of one example's target.
        output: shape of one example's output.
        integers: whether they are stored as integers.
        read: gives the values of some training examples, (n, ...), when they are looked at.
    """

    shape: tuple[int | None, ...]
    output: tuple[int | None, ...]
    integers: bool
    read: Callable[[], Array]

    @functools.cached_property
    def sample(self) -> Array:
        """Values of some training examples, (n, ...); all of them where they are class numbers."""
        return self.read()

    @property
    def width(self) -> int | None:
        """Numbers on the last axis of the output."""
        return self.output[-1] if self.output else None

    @property
    def form(self) -> Form:
        """What the shapes allow."""
        # The shapes that one class number for each position of an output can have.
        positions = [self.output[:-1], (*self.output[:-1], 1)] if self.output else []
        if self.width != 1 and any(alike(self.shape, shape) for shape in positions):
            return "classes"
        single = self.width == 1 and alike(self.shape, self.output[:-1])
        return "values" if single or alike(self.shape, self.output) else "other"

    @functools.cached_property
    def whole(self) -> bool:
        """Whether all values that were looked at are whole numbers."""
        return bool(np.all(self.sample == np.round(self.sample)))

    @functools.cached_property
    def yes_or_no(self) -> bool:
        """Whether all values that were looked at are 0 or 1."""
        return bool(np.all((self.sample == 0) | (self.sample == 1)))

    @property
    def one_hot(self) -> bool:
        """Whether each row that was looked at holds a single 1 among zeros."""
        several = self.width is not None and self.width > 1
        return several and self.yes_or_no and bool(np.all(self.sample.sum(axis=-1) == 1))


def targets_of(dataset: Dataset, outputs: tuple[tuple[int | None, ...], ...]) -> list[Target]:
    """Return the targets of each output; their values are read where they are looked at."""
    specs = leaves(dataset.reference.target_spec)
    labels = dataset.reference.labels

    @functools.cache
    def samples() -> list[Array]:
        if len(specs) == 1 and labels is not None:
            return [np.asarray(labels)]
        return [np.asarray(part) for part in leaves(dataset.reference.arrays(chosen)[1])]

    count = min(_LOOKED_AT, len(dataset.reference))
    chosen = np.linspace(0, len(dataset.reference) - 1, count).astype(np.int64)
    return [
        Target(
            tuple(spec.shape),
            output,
            spec.dtype.kind in "iub",
            functools.partial(lambda index: samples()[index], index),
        )
        for index, (spec, output) in enumerate(zip(specs, outputs, strict=True))
    ]


def inferred_loss(target: Target, ending: OutputKind | None) -> tuple[str, str]:
    """Return the loss that goes with targets and what the output is, and why in words.

    Raises:
        DataError: no loss does.
    """
    if target.form == "classes":
        if target.integers:
            return "sparse_categorical_crossentropy", "integer labels"
        if target.whole:
            return "sparse_categorical_crossentropy", "whole numbers, taken as labels"
    if target.form == "values":
        return _of_values(target, ending)
    raise _unfit(target)


def _of_values(target: Target, ending: OutputKind | None) -> tuple[str, str]:
    single = target.width == 1 or (not target.output and ending == "sigmoid")
    if single and target.yes_or_no and (ending != "logits" or target.integers):
        return "binary_crossentropy", "one output and labels 0 and 1"
    if target.integers and not target.shape:
        kind = "for labels 0 and 1" if single else "such as the number of a class"
        raise DataError(
            f"labels {int(target.sample.min())} to {int(target.sample.max())}, but the model "
            f"has a single output, {kind}",
            subject="data",
            hint="where they are numbers to predict, set task.loss: mean_squared_error; "
            "else use a model with an output for each class",
        )
    if single:
        return "mean_squared_error", "real targets"
    if target.one_hot and ending != "sigmoid":
        return "categorical_crossentropy", "one-hot labels"
    if target.yes_or_no and ending == "sigmoid":
        return "binary_crossentropy", "several labels of 0 and 1 for each example"
    return "mean_squared_error", "targets of the output's shape"


def kind_of(loss: Loss, target: Target, ending: OutputKind | None) -> ValueKind:
    """Return of which kind an output is, where its loss goes with several.

    Args:
        loss: on its targets; what the recipe says of the kind is taken.
        target: of the output.
        ending: what the output is; None where that is not known.
    """
    if loss.kind is not None:
        return loss.kind
    if target.form == "classes" and target.whole:
        return "classes"
    if loss.function is None:  # Dice
        several = target.form == "values" and target.one_hot and ending != "sigmoid"
        return "classes" if several else "labels"
    try:
        return kind_of_loss(inferred_loss(target, ending)[0])
    except DataError:
        return "values"


def fits(loss: str, target: Target) -> bool:
    """Whether a loss can be computed on such targets."""
    known = loss_of(loss)
    if known.function is not None:
        return True
    if known.kind == "classes":
        one_hot = target.form == "values" and target.width != 1
        numbers = target.form == "classes" and target.whole
        if known.name == "sparse_categorical_crossentropy":
            return numbers
        return one_hot or (numbers and known.name != "categorical_crossentropy")
    return target.form == "values" and _within_bounds(known, target)


def check_fit(loss: str, target: Target) -> None:
    """Raise `DataError` where a loss cannot be computed on such targets."""
    known = loss_of(loss)
    name = known.name
    if known.kind == "classes" and target.form == "classes" and name != "categorical_crossentropy":
        if target.whole or known.function is not None:
            return
        raise DataError(
            f"{name} needs integer labels, and the targets are real",
            subject="data",
            hint="set task.loss to mean_squared_error, or store integer labels",
        )
    if target.form == "values" and known.kind != "classes" and not _within_bounds(known, target):
        low, high = known.info.bounds
        wanted = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
        raise DataError(
            f"{name} needs targets {wanted}, and they are {target.sample.min()} "
            f"to {target.sample.max()}",
            subject="data",
            hint="correct the labels, or set task.loss to mean_squared_error",
        )
    if not fits(loss, target):
        raise _unfit(target, name)


def _unfit(target: Target, loss: str | None = None) -> DataError:
    """Return the error for targets whose shape is not the output's."""
    wanted = f"{loss} cannot compare" if loss else "no loss compares"
    message = (
        f"{wanted} outputs of shape {target.output} with targets of shape {target.shape} "
        f"({'integers' if target.integers else 'real numbers'})"
    )
    if target.form == "classes" and not target.whole:
        found = target.sample[target.sample != np.round(target.sample)][0]
        message = f"labels must be whole numbers, 0 to {(target.width or 0) - 1} for a model with "
        message += f"{target.width} outputs; found {found:g}"
        hint = "correct the labels; to predict numbers use a model with one output and set "
        return DataError(message, subject="data", hint=f"{hint}task.loss: mean_squared_error")
    hint = f"store one target for each output, or a class number, {_SET_LOSS}"
    if target.form == "classes" and loss != "sparse_categorical_crossentropy":
        hint = "class numbers go with task.loss: sparse_categorical_crossentropy, which is taken "
        hint += "where task.loss is left out"
    elif target.form == "values" and loss == "sparse_categorical_crossentropy":
        hint = "targets of the output's shape go with task.loss: categorical_crossentropy (one-hot)"
        hint += ", binary_crossentropy or mean_squared_error"
    return DataError(message, subject="data", hint=hint)


def _within_bounds(loss: Loss, target: Target) -> bool:
    low, high = loss.info.bounds
    return bool(np.all((target.sample >= low) & (target.sample <= high)))


def check_labels(
    dataset: Dataset, model: Interface, target: Target, ignored: int | None = None
) -> None:
    """Raise `DataError` where a class number is not one of the model's classes, nor `ignored`."""
    classes = target.width
    if classes is None:
        raise DataError(
            f"the {called(model, 'model')} does not say how many classes it tells apart",
            subject="data",
            hint="build it with an output of fixed size",
        )
    for one in dataset.extremes:
        if one.value != ignored and not 0 <= one.value < classes:
            raise _beyond(one.split, one.value, classes, one.where)
    for name in ("train", "validation", "test"):
        labels = getattr(dataset, name).labels
        if labels is None:
            labels = target.sample if name == "train" else np.zeros(0)
        if ignored is not None:
            labels = labels[labels != ignored]
        if labels.size and int(np.max(labels)) >= classes:
            raise _beyond(name, int(np.max(labels)), classes, "data")


def _beyond(split: str, value: int, classes: int, where: str) -> DataError:
    hint = f"use a model with {value + 1} outputs, or relabel (subtract 1 if labels start at 1)"
    if value in (255, -1):
        hint = "leave these elements out, if they belong to no class: task: {loss: {name: "
        hint += f"sparse_categorical_crossentropy, ignore_class: {value}}}}}"
    return DataError(
        f"a label of the {split} split is {value}, and the model has {classes} outputs "
        f"(labels 0 to {classes - 1})",
        subject=where,
        hint=hint,
    )
