"""Whether a model and a data set belong together, by number and shape of inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError
from shrink.data.dataset import Dataset
from shrink.task.interface import Interface
from shrink.task.targets import Target

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


def check_mixup(dataset: Dataset, losses: Sequence[str], model: Any) -> None:
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
