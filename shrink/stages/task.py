"""What a model is trained and measured on, once both the model and the data are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.data.dataset import Dataset
from shrink.errors import DataError, ModelError
from shrink.recipe.task import TaskConfig
from shrink.tflite.interpreter import load
from shrink.tflite.names import signature_names

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
        loss: on the labels or targets; of several outputs the sum of their losses.
        metrics: names; of several outputs the mean over them.
        monitor: decides which epoch is best.
        from_logits: whether the outputs are logits, not probabilities.
        input_names: as a converted model names its inputs, in the order of the examples' inputs.
    """

    loss: str
    metrics: tuple[str, ...]
    monitor: str
    from_logits: bool
    input_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Interface:
    """What a model takes and gives; shapes without the batch, None for an unknown side.

    Attributes:
        name: for messages.
        inputs: shape of each input.
        outputs: shape of each output.
        probabilities: whether the output is probabilities, not logits.
        input_names: of the inputs, as a converted model has them.
    """

    name: str
    inputs: tuple[tuple[int | None, ...], ...]
    outputs: tuple[tuple[int | None, ...], ...]
    probabilities: bool
    input_names: tuple[str, ...] = ()


def keras_interface(model: keras.Model) -> Interface:
    """Return what a Keras model takes and gives."""
    return Interface(
        model.name,
        tuple(tuple(t.shape[1:]) for t in model.inputs),
        tuple(tuple(t.shape[1:]) for t in model.outputs),
        ends_in_probabilities(model),
        tuple(signature_names(model.input_names)),
    )


def artifact_interface(tflite: Path, dataset: Dataset) -> Interface:
    """Return what a TFLite artifact takes and gives.

    Whether it gives probabilities is told from its outputs on a few training examples: all in
    [0, 1] and, but for a single output, adding up to 1 (to the precision of int8).
    """
    runner = load(tflite)
    inputs = tuple(tuple(detail.shape[1:]) for detail in runner.input_details)
    outputs = tuple(tuple(detail.shape[1:]) for detail in runner.output_details)
    names = tuple(detail.name for detail in runner.input_details)
    shapes = Interface(tflite.name, inputs, outputs, probabilities=False, input_names=names)
    check_shapes(dataset, shapes)
    x, _ = dataset.train.arrays(np.arange(min(_EXAMPLES, len(dataset.train))))
    first = runner.predict([np.asarray(part, np.float32) for part in tf.nest.flatten(x)])[0]
    bounded = bool(np.all((first >= 0) & (first <= 1)))
    sums = first.shape[-1] == 1 or bool(np.allclose(first.sum(-1), 1, atol=0.05))
    return replace(shapes, probabilities=bounded and sums)


def resolve_task(config: TaskConfig, dataset: Dataset, model: Interface) -> Task:
    """Fill in what the recipe leaves out, and check that model and data belong together.

    Raises:
        DataError: labels beyond the model's outputs, or inputs of another shape.
        ModelError: the model's output cannot be trained on such targets.
    """
    check_shapes(dataset, model)
    _check_outputs(dataset, model)
    integer_labels = all(
        spec.dtype == tf.int64 and spec.shape.rank == 0
        for spec in tf.nest.flatten(dataset.train.target_spec)
    )
    default_loss = "sparse_categorical_crossentropy" if integer_labels else "mean_squared_error"
    loss = config.loss or default_loss
    default_metric = _METRIC_OF_LOSS.get(loss, "mean_squared_error")
    if loss == "binary_crossentropy" and model.outputs[0][-1:] == (1,):
        default_metric = "accuracy"
    metrics = config.metrics if config.metrics is not None else (default_metric,)
    if loss == "sparse_categorical_crossentropy" and len(model.outputs) == 1:
        _check_labels(dataset, model)
    monitor = config.monitor or (metrics[0] if metrics else "loss")
    return Task(loss, tuple(metrics), monitor, not model.probabilities, model.input_names)


def ends_in_probabilities(model: keras.Model) -> bool:
    """Whether the model's last layer is a softmax or a sigmoid."""
    last = model.layers[-1]
    if isinstance(last, keras.layers.Softmax):
        return True
    if isinstance(last, keras.Model):
        return ends_in_probabilities(last)
    activation = getattr(last, "activation", None)
    return getattr(activation, "__name__", "") in _PROBABILITIES


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
            f"the {role} {model.name!r} takes {len(model.inputs)} inputs "
            f"({', '.join(model.input_names)}), the examples have {len(given)}",
            subject="data",
            hint=f"set data.inputs: [{', '.join(model.input_names)}]",
        )
    for wanted, shape in zip(model.inputs, given, strict=True):
        if not _fits(wanted, shape):
            raise DataError(
                f"the {role} {model.name!r} takes inputs of shape {wanted}, the examples have "
                f"{shape}",
                subject="data",
                hint="set data.image_size and data.channels for pictures, name the model that "
                "fits, or put data.inputs into the model's order",
            )


def _fits(wanted: tuple[int | None, ...], given: tuple[int | None, ...]) -> bool:
    return len(wanted) == len(given) and all(
        w is None or g is None or w == g for w, g in zip(wanted, given, strict=True)
    )


def _check_outputs(dataset: Dataset, model: Interface) -> None:
    targets = len(tf.nest.flatten(dataset.train.target_spec))
    if targets != len(model.outputs):
        raise DataError(
            f"the model {model.name!r} gives {len(model.outputs)} outputs, the examples have "
            f"{targets} targets",
            subject="data",
            hint="name one array for each output in data.targets, in the model's order",
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
