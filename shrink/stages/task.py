"""What a model is trained and measured on, once both the model and the data are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tf_keras as keras

from shrink.data.dataset import Dataset
from shrink.errors import DataError, ModelError
from shrink.recipe.task import TaskConfig

_PROBABILITIES = {"softmax", "sigmoid"}


@dataclass(frozen=True)
class Task:
    """Loss, metrics and the form of the model's output."""

    loss: str
    metrics: tuple[str, ...]
    monitor: str
    from_logits: bool


def resolve_task(config: TaskConfig, dataset: Dataset, model: keras.Model) -> Task:
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
    return Task(loss, tuple(metrics), monitor, not ends_in_probabilities(model))


def ends_in_probabilities(model: keras.Model) -> bool:
    """Whether the model's last layer is a softmax or a sigmoid."""
    last = model.layers[-1]
    if isinstance(last, keras.layers.Softmax):
        return True
    if isinstance(last, keras.Model):
        return ends_in_probabilities(last)
    activation = getattr(last, "activation", None)
    return getattr(activation, "__name__", "") in _PROBABILITIES


def check_shapes(dataset: Dataset, model: keras.Model) -> None:
    """Raise `DataError` where the examples' shape is not that of the model's input."""
    if len(model.inputs) != 1 or not hasattr(dataset.train.input_spec, "shape"):
        return
    wanted, given = tuple(model.inputs[0].shape[1:]), tuple(dataset.train.input_spec.shape)
    fits = len(wanted) == len(given) and all(
        w is None or g is None or w == g for w, g in zip(wanted, given, strict=True)
    )
    if not fits:
        raise DataError(
            f"the model {model.name!r} takes inputs of shape {wanted}, the examples have {given}",
            subject="data",
            hint="set data.image_size and data.channels for pictures, or name the model that fits",
        )


def _check_labels(dataset: Dataset, model: keras.Model) -> None:
    labels = dataset.train.labels
    if len(model.outputs) != 1 or model.outputs[0].shape[-1] is None:
        raise ModelError("integer labels need a model with one output of known size")
    if labels is None:
        raise DataError(
            "sparse_categorical_crossentropy needs integer labels, and the targets are real",
            subject="data",
            hint="set task.loss to mean_squared_error, or store integer labels",
        )
    classes = int(model.outputs[0].shape[-1])
    for name in ("train", "validation", "test"):
        found = getattr(dataset, name).labels
        if found is not None and len(found) and int(np.max(found)) >= classes:
            raise DataError(
                f"a label of the {name} split is {int(np.max(found))}, and the model has "
                f"{classes} outputs (labels 0 to {classes - 1})",
                subject="data",
            )
