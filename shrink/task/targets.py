"""Targets of a data set, and whether they suit a model's outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError
from shrink.data.dataset import Dataset
from shrink.model.endings.kinds import EndingKind
from shrink.task.interface import Interface

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
    read: Callable[[], np.ndarray[Any, Any]]

    @functools.cached_property
    def sample(self) -> np.ndarray[Any, Any]:
        """Values of some training examples, (n, ...); all of them where they are class numbers."""
        return self.read()

    @property
    def width(self) -> int | None:
        """Numbers on the last axis of the output."""
        return self.output[-1] if self.output else None

    @property
    def form(self) -> Form:
        """What the shapes allow."""
        if self.width != 1 and any(_alike(self.shape, s) for s in _positions(self.output)):
            return "classes"
        single = self.width == 1 and _alike(self.shape, self.output[:-1])
        return "values" if single or _alike(self.shape, self.output) else "other"

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
    specs = tf.nest.flatten(dataset.train.target_spec)
    labels = dataset.train.labels

    @functools.cache
    def samples() -> list[np.ndarray[Any, Any]]:
        if len(specs) == 1 and labels is not None:
            return [np.asarray(labels)]
        return [np.asarray(part) for part in tf.nest.flatten(dataset.train.arrays(chosen)[1])]

    count = min(_LOOKED_AT, len(dataset.train))
    chosen = np.linspace(0, len(dataset.train) - 1, count).astype(np.int64)
    return [
        Target(
            tuple(spec.shape),
            output,
            spec.dtype.is_integer or spec.dtype.is_bool,
            functools.partial(lambda place: samples()[place], place),
        )
        for place, (spec, output) in enumerate(zip(specs, outputs, strict=True))
    ]


def inferred_loss(target: Target, ending: EndingKind | None) -> tuple[str, str]:
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


def _of_values(target: Target, ending: EndingKind | None) -> tuple[str, str]:
    if target.width == 1:
        if target.yes_or_no and (ending != "logits" or target.integers):
            return "binary_crossentropy", "one output and labels 0 and 1"
        if target.integers and not target.shape:
            raise DataError(
                f"labels {int(target.sample.min())} to {int(target.sample.max())} for a single "
                "output, which tells 0 from 1",
                subject="data",
                hint="where they are numbers to predict, set task.loss: mean_squared_error; "
                "else name the model for these classes",
            )
        return "mean_squared_error", "real targets"
    if target.one_hot and ending != "sigmoid":
        return "categorical_crossentropy", "one-hot labels"
    if target.yes_or_no and ending == "sigmoid":
        return "binary_crossentropy", "several labels of 0 and 1 for each example"
    return "mean_squared_error", "targets of the output's shape"


def fits(loss: str, target: Target) -> bool:
    """Whether a loss can be computed on such targets."""
    if loss == "sparse_categorical_crossentropy":
        return target.form == "classes" and target.whole
    if loss == "categorical_crossentropy":
        return target.form == "values" and target.width != 1
    return target.form == "values" and (loss != "binary_crossentropy" or _within_one(target))


def check_fit(loss: str, target: Target) -> None:
    """Raise `DataError` where a loss cannot be computed on such targets."""
    if loss == "sparse_categorical_crossentropy" and target.form == "classes":
        if target.whole:
            return
        raise DataError(
            "sparse_categorical_crossentropy needs integer labels, and the targets are real",
            subject="data",
            hint="set task.loss to mean_squared_error, or store integer labels",
        )
    if loss == "binary_crossentropy" and target.form == "values" and not _within_one(target):
        raise DataError(
            f"binary_crossentropy needs targets from 0 to 1, and they are {target.sample.min()} "
            f"to {target.sample.max()}",
            subject="data",
            hint="correct the labels, or set task.loss to mean_squared_error",
        )
    if not fits(loss, target):
        raise _unfit(target, loss)


def _unfit(target: Target, loss: str | None = None) -> DataError:
    """Return the error for targets whose shape is not the output's."""
    wanted = f"{loss} compares" if loss else "there is nothing to compare"
    message = (
        f"{wanted} outputs of shape {target.output} with targets of shape {target.shape} "
        f"({'integers' if target.integers else 'real numbers'})"
    )
    if loss is None and target.form == "classes":
        message += ", which are no class numbers: they are not whole"
    hint = f"store one target for each output, or a class number, {_SET_LOSS}"
    if target.form == "classes" and loss != "sparse_categorical_crossentropy":
        hint = "class numbers go with task.loss: sparse_categorical_crossentropy, which is taken "
        hint += "where task.loss is left out"
    elif target.form == "values" and loss == "sparse_categorical_crossentropy":
        hint = "targets of the output's shape go with task.loss: categorical_crossentropy (one-hot)"
        hint += ", binary_crossentropy or mean_squared_error"
    return DataError(message, subject="data", hint=hint)


def _within_one(target: Target) -> bool:
    return bool(np.all((target.sample >= 0) & (target.sample <= 1)))


def _positions(output: tuple[int | None, ...]) -> list[tuple[int | None, ...]]:
    """Return the shapes that one class number for each position of an output can have."""
    return [output[:-1], (*output[:-1], 1)] if output else []


def _alike(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    return len(one) == len(other) and all(
        a is None or b is None or a == b for a, b in zip(one, other, strict=True)
    )


_LOOK_UPS = (
    keras.layers.Embedding,
    keras.layers.CategoryEncoding,
    keras.layers.IntegerLookup,
    keras.layers.Hashing,
)


def check_shapes(dataset: Dataset, model: Interface, role: str = "model") -> None:
    """Raise `DataError` where the examples' shapes are not those of the model's inputs.

    Args:
        dataset: the examples.
        model: what they are fed to.
        role: what it is called in the message, such as teacher.
    """
    given = tuple(tuple(spec.shape) for spec in tf.nest.flatten(dataset.train.input_spec))
    if len(given) != len(model.inputs):
        raise DataError(
            f"the {called(model, role)} takes {len(model.inputs)} inputs "
            f"({', '.join(model.input_names)}), the examples have {len(given)}",
            subject="data",
            hint=f"set data.inputs: [{', '.join(model.input_names)}]",
        )
    for place, (wanted, shape) in enumerate(zip(model.inputs, given, strict=True)):
        if not _fits(wanted, shape):
            raise DataError(
                f"the {called(model, role)} takes inputs of shape {wanted}, the examples have "
                f"{shape}{_meeting(dataset, model, place)}",
                subject="data",
                hint=_shape_hint(model),
            )


def called(model: Interface, role: str) -> str:
    """Return what a message calls a model: its role, and its name where it has one."""
    return f"{role} {model.name!r}" if model.name else role


def _meeting(dataset: Dataset, model: Interface, place: int) -> str:
    """Return which array went to which of several inputs."""
    arrays = dataset.input_arrays or dataset.input_names
    if len(model.inputs) == 1 or len(arrays) != len(model.inputs):
        return ""
    return f": the array {arrays[place]} goes to the input {model.input_names[place]}"


def _shape_hint(model: Interface) -> str:
    if len(model.inputs) == 1:
        return "set data.image_size and data.channels for pictures, or name the model that fits"
    every = zip(model.input_names, model.inputs, strict=True)
    shown = ", ".join(f"{name} {shape}" for name, shape in every)
    return (
        f"call the arrays of data.inputs as the model's inputs, or put them into its order: {shown}"
    )


def _fits(wanted: tuple[int | None, ...], given: tuple[int | None, ...]) -> bool:
    return len(wanted) == len(given) and all(
        w is None or g is None or w == g for w, g in zip(wanted, given, strict=True)
    )


def check_outputs(dataset: Dataset, model: Interface) -> None:
    """Raise `DataError` where there is not one target for each output."""
    targets = len(tf.nest.flatten(dataset.train.target_spec))
    if targets != len(model.outputs):
        raise DataError(
            f"the {called(model, 'model')} gives {len(model.outputs)} outputs "
            f"({', '.join(model.output_names)}), the examples have {targets} targets",
            subject="data",
            hint="name one array for each output in data.targets",
        )


def check_labels(dataset: Dataset, model: Interface, target: Target) -> None:
    """Raise `DataError` where a class number is not one of the model's classes."""
    classes = target.width
    if classes is None:
        raise DataError(
            f"the {called(model, 'model')} does not say how many classes it tells apart",
            subject="data",
            hint="build it with an output of fixed size",
        )
    for name in ("train", "validation", "test"):
        found = getattr(dataset, name).labels
        if found is None:
            found = target.sample if name == "train" else np.zeros(0)
        if found.size and int(np.max(found)) >= classes:
            raise DataError(
                f"a label of the {name} split is {int(np.max(found))}, and the model has "
                f"{classes} outputs (labels 0 to {classes - 1})",
                subject="data",
                hint="name the model for these classes, or correct the labels",
            )


def check_mixup(dataset: Dataset, losses: Sequence[str], model: keras.Model) -> None:
    """Raise `DataError` where mixtures of examples mean nothing.

    Args:
        dataset: the examples, which mixup mixes.
        losses: on the targets of each output.
        model: the Keras model that is trained.
    """
    if dataset.num_classes is None and "sparse_categorical_crossentropy" in losses:
        _refuse_mixup(
            "the class numbers of sequences, or of several targets, would be averaged",
            "store the labels one-hot, or leave data.augment.mixup out",
        )
    inputs = set(map(id, getattr(model, "inputs", None) or ()))
    for layer in model._flatten_layers():
        fed = tf.nest.flatten([node.keras_inputs for node in layer._inbound_nodes])
        if isinstance(layer, _LOOK_UPS) and any(id(tensor) in inputs for tensor in fed):
            _refuse_mixup(
                f"the layer {layer.name} looks whole numbers up, which would be averaged",
                "leave data.augment.mixup out",
            )


def _refuse_mixup(why: str, hint: str) -> None:
    raise DataError(f"mixup cannot be: {why}", subject="data.augment.mixup", hint=hint)
