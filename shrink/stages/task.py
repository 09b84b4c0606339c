"""What a model is trained and measured on, once both the model and the data are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.data.dataset import Dataset
from shrink.errors import DataError, ModelError
from shrink.recipe.task import TaskConfig
from shrink.tflite.interpreter import load

_PROBABILITIES = {"softmax", "sigmoid"}
_EXAMPLES = 16


@dataclass(frozen=True)
class Task:
    """Loss, metrics and the form of the model's output."""

    loss: str
    metrics: tuple[str, ...]
    monitor: str
    from_logits: bool


@dataclass(frozen=True)
class Interface:
    """What a model takes and gives; shapes without the batch, None for an unknown side.

    Attributes:
        name: for messages.
        inputs: shape of each input.
        outputs: shape of each output.
        probabilities: whether the output is probabilities, not logits.
    """

    name: str
    inputs: tuple[tuple[int | None, ...], ...]
    outputs: tuple[tuple[int | None, ...], ...]
    probabilities: bool


def keras_interface(model: keras.Model) -> Interface:
    """Return what a Keras model takes and gives."""
    return Interface(
        model.name,
        tuple(tuple(t.shape[1:]) for t in model.inputs),
        tuple(tuple(t.shape[1:]) for t in model.outputs),
        ends_in_probabilities(model),
    )


def artifact_interface(tflite: Path, dataset: Dataset) -> Interface:
    """Return what a TFLite artifact takes and gives.

    Whether it gives probabilities is told from its outputs on a few training examples: all in
    [0, 1] and, but for a single output, adding up to 1 (to the precision of int8).
    """
    runner = load(tflite)
    inputs = tuple(tuple(detail.shape[1:]) for detail in runner.input_details)
    outputs = tuple(tuple(detail.shape[1:]) for detail in runner.output_details)
    shapes = Interface(tflite.name, inputs, outputs, probabilities=False)
    check_shapes(dataset, shapes)
    x, _ = dataset.train.arrays(np.arange(min(_EXAMPLES, len(dataset.train))))
    first = runner.predict(np.asarray(x, np.float32))[0]
    bounded = bool(np.all((first >= 0) & (first <= 1)))
    sums = first.shape[-1] == 1 or bool(np.allclose(first.sum(-1), 1, atol=0.05))
    return Interface(tflite.name, inputs, outputs, probabilities=bounded and sums)


def resolve_task(config: TaskConfig, dataset: Dataset, model: Interface) -> Task:
    """Fill in what the recipe leaves out, and check that model and data belong together.

    Raises:
        DataError: labels beyond the model's outputs, or inputs of another shape.
        ModelError: the model's output cannot be trained on such targets.
    """
    check_shapes(dataset, model)
    integer_labels = dataset.train.labels is not None
    default_loss = "sparse_categorical_crossentropy" if integer_labels else "mean_squared_error"
    default_metric = "accuracy" if integer_labels else "mean_squared_error"
    loss = config.loss or default_loss
    metrics = config.metrics if config.metrics is not None else (default_metric,)
    if loss == "sparse_categorical_crossentropy":
        _check_labels(dataset, model)
    monitor = config.monitor or (metrics[0] if metrics else "loss")
    return Task(loss, tuple(metrics), monitor, from_logits=not model.probabilities)


def ends_in_probabilities(model: keras.Model) -> bool:
    """Whether the model's last layer is a softmax or a sigmoid."""
    last = model.layers[-1]
    if isinstance(last, keras.layers.Softmax):
        return True
    if isinstance(last, keras.Model):
        return ends_in_probabilities(last)
    activation = getattr(last, "activation", None)
    return getattr(activation, "__name__", "") in _PROBABILITIES


def check_shapes(dataset: Dataset, model: Interface) -> None:
    """Raise `DataError` where the examples' shape is not that of the model's input."""
    if len(model.inputs) != 1 or not hasattr(dataset.train.input_spec, "shape"):
        return
    wanted, given = model.inputs[0], tuple(dataset.train.input_spec.shape)
    fits = len(wanted) == len(given) and all(
        w is None or g is None or w == g for w, g in zip(wanted, given, strict=True)
    )
    if not fits:
        raise DataError(
            f"the model {model.name!r} takes inputs of shape {wanted}, the examples have {given}",
            subject="data",
            hint="set data.image_size and data.channels for pictures, or name the model that fits",
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
