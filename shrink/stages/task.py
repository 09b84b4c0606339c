"""What a model is trained and measured on, once both the model and the data are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.data.dataset import Dataset
from shrink.engine.objective import SupervisedObjective
from shrink.errors import DataError, ModelError, RecipeError, StageError
from shrink.recipe.suggest import hint_for
from shrink.recipe.task import TaskConfig
from shrink.tflite.interpreter import load
from shrink.tflite.names import named, signature_names

_PROBABILITIES = {"softmax", "sigmoid"}
_EXAMPLES = 16
_METRIC_OF_LOSS = {
    "sparse_categorical_crossentropy": "accuracy",
    "binary_crossentropy": "binary_accuracy",
    "categorical_crossentropy": "accuracy",
    "mean_absolute_error": "mean_absolute_error",
}
"""The metric that goes with a loss, where it is not the squared error."""


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
    """

    losses: tuple[str, ...]
    metrics: tuple[str, ...]
    monitor: str
    from_logits: tuple[bool, ...]
    input_names: tuple[str, ...]
    loss_weights: tuple[float, ...]

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

    def objective(self) -> SupervisedObjective:
        """Return what training on the labels or targets minimises."""
        return SupervisedObjective(self.losses, self.from_logits, self.loss_weights)


@dataclass(frozen=True)
class Interface:
    """What a model takes and gives; shapes without the batch, None for an unknown side.

    Attributes:
        name: for messages; empty where nobody gave it one.
        inputs: shape of each input.
        outputs: shape of each output.
        probabilities: whether each output is probabilities, not logits.
        input_names: of the inputs, as a converted model has them.
        output_names: of the outputs, as a recipe calls them.
    """

    name: str
    inputs: tuple[tuple[int | None, ...], ...]
    outputs: tuple[tuple[int | None, ...], ...]
    probabilities: tuple[bool, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


def keras_interface(model: keras.Model) -> Interface:
    """Return what a Keras model takes and gives."""
    return Interface(
        model.name,
        tuple(tuple(t.shape[1:]) for t in model.inputs),
        tuple(tuple(t.shape[1:]) for t in model.outputs),
        tuple(_is_probabilities(tensor) for tensor in model.outputs),
        tuple(signature_names(model.input_names)),
        tuple(model.output_names),
    )


def artifact_interface(tflite: Path, dataset: Dataset) -> Interface:
    """Return what a TFLite artifact takes and gives.

    Whether an output is probabilities is told from a few training examples: all in [0, 1] and,
    but for a single number, adding up to 1 (to the precision of int8).
    """
    runner = load(tflite)
    inputs = tuple(tuple(detail.shape[1:]) for detail in runner.input_details)
    outputs = tuple(tuple(detail.shape[1:]) for detail in runner.output_details)
    shapes = Interface(
        "",  # a file of our own, whose name nobody gave
        inputs,
        outputs,
        probabilities=(False,) * len(outputs),
        input_names=runner.input_names,
        output_names=tuple(detail.name for detail in runner.output_details),
    )
    check_shapes(dataset, shapes)
    x, _ = dataset.train.arrays(np.arange(min(_EXAMPLES, len(dataset.train))))
    arrays = [np.asarray(part, np.float32) for part in tf.nest.flatten(x)]
    found = runner.predict(named(arrays, runner.input_names))
    return replace(shapes, probabilities=tuple(_looks_like_probabilities(o) for o in found))


def resolve_task(config: TaskConfig, dataset: Dataset, model: Interface) -> Task:
    """Fill in what the recipe leaves out, and check that model and data belong together.

    Raises:
        RecipeError: a loss or a weight for an output that the model does not have.
        DataError: labels beyond the model's outputs, or inputs of another shape.
        ModelError: the model's output cannot be trained on such targets.
    """
    check_shapes(dataset, model)
    _check_outputs(dataset, model)
    losses = _losses(config, dataset, model)
    metrics = config.metrics
    if metrics is None:
        defaults = [_default_metric(*pair) for pair in zip(losses, model.outputs, strict=True)]
        metrics = tuple(dict.fromkeys(defaults))
    if losses == ("sparse_categorical_crossentropy",):
        _check_labels(dataset, model)
    monitor = config.monitor or (metrics[0] if metrics else "loss")
    weights = _by_output(config.loss_weights or {}, model, "task.loss_weights")
    return Task(
        losses,
        metrics,
        monitor,
        tuple(not probabilities for probabilities in model.probabilities),
        model.input_names,
        tuple(1.0 if weight is None else weight for weight in weights),
    )


def _losses(config: TaskConfig, dataset: Dataset, model: Interface) -> tuple[str, ...]:
    """Return the loss of each output: as the recipe says, else as the targets suggest."""
    specs = tf.nest.flatten(dataset.train.target_spec)
    if isinstance(config.loss, str):
        return (config.loss,) * len(specs)
    integers = [spec.dtype == tf.int64 and spec.shape.rank == 0 for spec in specs]
    return tuple(
        given or ("sparse_categorical_crossentropy" if integer else "mean_squared_error")
        for given, integer in zip(
            _by_output(config.loss or {}, model, "task.loss"), integers, strict=True
        )
    )


def _default_metric(loss: str, shape: tuple[int | None, ...]) -> str:
    if loss == "binary_crossentropy" and shape[-1:] == (1,):
        return "accuracy"
    return _METRIC_OF_LOSS.get(loss, "mean_squared_error")


def _by_output(values: Mapping[str, Any], model: Interface, key: str) -> list[Any]:
    """Return the value of each output, None where there is none.

    Raises:
        RecipeError: a value for an output that the model does not have.
    """
    for name in values:
        if name not in model.output_names:
            raise RecipeError(
                f"the {_called(model, 'model')} has no output {name!r}; it has "
                f"{', '.join(model.output_names)}",
                subject=key,
                hint=hint_for(name, model.output_names),
            )
    return [values.get(name) for name in model.output_names]


def _is_probabilities(tensor: Any) -> bool:
    """Whether a functional model's output comes out of a softmax or a sigmoid."""
    layer, _, index = tensor._keras_history
    if isinstance(layer, keras.layers.Softmax):
        return True
    if isinstance(layer, keras.Model):
        return _is_probabilities(layer.outputs[index])
    activation = getattr(layer, "activation", None)
    return getattr(activation, "__name__", "") in _PROBABILITIES


def _looks_like_probabilities(outputs: np.ndarray) -> bool:
    bounded = bool(np.all((outputs >= 0) & (outputs <= 1)))
    return bounded and (outputs.shape[-1] == 1 or np.allclose(outputs.sum(-1), 1, atol=0.05))


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
            f"the {_called(model, role)} takes {len(model.inputs)} inputs "
            f"({', '.join(model.input_names)}), the examples have {len(given)}",
            subject="data",
            hint=f"set data.inputs: [{', '.join(model.input_names)}]",
        )
    for place, (wanted, shape) in enumerate(zip(model.inputs, given, strict=True)):
        if not _fits(wanted, shape):
            raise DataError(
                f"the {_called(model, role)} takes inputs of shape {wanted}, the examples have "
                f"{shape}{_meeting(dataset, model, place)}",
                subject="data",
                hint=_shape_hint(model),
            )


def _called(model: Interface, role: str) -> str:
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


def _check_outputs(dataset: Dataset, model: Interface) -> None:
    targets = len(tf.nest.flatten(dataset.train.target_spec))
    if targets != len(model.outputs):
        raise DataError(
            f"the {_called(model, 'model')} gives {len(model.outputs)} outputs "
            f"({', '.join(model.output_names)}), the examples have {targets} targets",
            subject="data",
            hint="name one array for each output in data.targets",
        )


def _check_labels(dataset: Dataset, model: Interface) -> None:
    labels = dataset.train.labels
    if len(model.outputs) != 1 or not model.outputs[0] or model.outputs[0][-1] is None:
        raise ModelError("integer labels need a model with one output of known size")
    if labels is None:
        raise DataError(
            "sparse_categorical_crossentropy needs integer labels, and the targets are real",
            subject="data",
            hint="set task.loss to mean_squared_error, or store integer labels",
        )
    classes = model.outputs[0][-1]
    for name in ("train", "validation", "test"):
        found = getattr(dataset, name).labels
        if found is not None and len(found) and int(np.max(found)) >= classes:
            raise DataError(
                f"a label of the {name} split is {int(np.max(found))}, and the model has "
                f"{classes} outputs (labels 0 to {classes - 1})",
                subject="data",
                hint="name the model for these classes, or correct the labels",
            )
