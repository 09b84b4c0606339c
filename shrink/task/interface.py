"""Inputs and outputs of a model or an artifact, and whether a data set suits them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.base.foreign import Json
from shrink.base.keras_internals import calls_of, parts_of
from shrink.base.losses import ignored_class, kind_of_loss, loss_of
from shrink.base.types import Array, Tensors, leaves
from shrink.contract.details import TensorType, Usage
from shrink.data.config import NO_DATA, DataConfig, usage_section
from shrink.data.dataset import Dataset
from shrink.model.output_kind import OutputKind, output_kinds, output_kinds_of_file
from shrink.task.config import TaskConfig
from shrink.tflite.interpreter import Runner, TensorDetail, load
from shrink.tflite.lazy import keras, tf
from shrink.tflite.names import named, signature_names

Ask = Callable[[Tensors], list[Array]]
"""Inputs (n, ...) as the data set stores them to one array (n, ...) for each output."""


@dataclass(frozen=True)
class Interface:
    """What a model takes and gives; shapes without the batch, None for an unknown dimension.

    Attributes:
        name: for messages; empty where nobody gave it one.
        inputs: shape of each input.
        outputs: shape of each output.
        endings: what each output is by the graph; None where the graph does not tell.
        scales: step of each output that is stored as integers, 0 for floats.
        input_names: of the inputs, as a converted model has them.
        output_names: of the outputs, as a recipe calls them.
        ask: runs the model.
        look_up: name and rows of the smallest `Embedding` that looks an input up; None where the
            model has none, or is no Keras model.
    """

    name: str
    inputs: tuple[tuple[int | None, ...], ...]
    outputs: tuple[tuple[int | None, ...], ...]
    endings: tuple[OutputKind | None, ...]
    scales: tuple[float, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    ask: Ask
    look_up: tuple[str, int] | None = None


def keras_interface(model: keras.Model) -> Interface:
    """Return what a functional Keras model takes and gives."""

    def ask(x: Tensors) -> list[Array]:
        from shrink.engine.microbatch import cast_inputs

        outputs = model(cast_inputs(model, x), training=False)
        return [np.asarray(tf.cast(each, tf.float32)) for each in leaves(outputs)]

    embeddings = (one for one in _looking_up(model) if isinstance(one, keras.layers.Embedding))
    rows = ((layer.name, int(layer.input_dim)) for layer in embeddings)
    return Interface(
        model.name,
        tuple(tuple(t.shape[1:]) for t in model.inputs),
        tuple(tuple(t.shape[1:]) for t in model.outputs),
        tuple(output_kinds(model)),
        (0.0,) * len(model.outputs),
        tuple(signature_names(model.input_names)),
        tuple(model.output_names),
        ask,
        min(rows, key=itemgetter(1), default=None),
    )


def artifact_interface(
    tflite: Path, input_names: Sequence[str] = (), runner: Runner | None = None
) -> Interface:
    """Return what a TFLite artifact takes and gives.

    Args:
        tflite: the artifact.
        input_names: of the examples' inputs, in their order; by default in the artifact's own.
        runner: of the artifact, where there is one already.
    """
    runner = runner or load(tflite)
    kinds = output_kinds_of_file(tflite.read_bytes())
    own = runner.input_names
    fed = tuple(input_names) if sorted(own) == sorted(input_names) else own

    def ask(x: Tensors) -> list[Array]:
        parts = [np.asarray(part, np.float32) for part in leaves(x)]
        return runner.predict(named(parts, fed))

    return Interface(
        "",  # a file of our own, whose name nobody gave
        tuple(tuple(detail.shape[1:]) for detail in runner.input_details),
        tuple(tuple(detail.shape[1:]) for detail in runner.output_details),
        tuple(kinds[detail.index] for detail in runner.output_details),
        tuple(detail.scale for detail in runner.output_details),
        own,
        tuple(detail.name for detail in runner.output_details),
        ask,
    )


def describe_usage(
    content: bytes,
    dataset: Dataset,
    data: DataConfig,
    task: TaskConfig,
    before: Usage | None = None,
) -> Usage:
    """Return how an artifact is used.

    Args:
        content: the .tflite file, of a Keras model its float32 form.
        dataset: what it was measured on; its class names are the labels.
        data: its `normalize` is done to examples before the model sees them.
        task: the recipe's section; how a detector's outputs become boxes.
        before: of the model that the run began with, which counts where there is no data.
    """
    runner = load(content)
    inputs = tuple(map(_tensor, runner.input_details))
    outputs = tuple(map(_tensor, runner.output_details))
    if data.source == NO_DATA:
        return replace(before or Usage(), inputs=inputs, outputs=outputs, task=None)
    return Usage(
        inputs=inputs,
        outputs=outputs,
        labels=_labels(dataset, outputs, task) or None,
        normalize=data.normalize.model_dump() if data.normalize is not None else None,
        front_end=front_end_of(dataset, data),
        decode=None if task.decode is None else task.decode.model_dump(mode="json"),
        data=usage_section(
            data.model_copy(update={"inputs": tuple(dataset.columns) or data.inputs})
        ),
    )


def _tensor(detail: TensorDetail) -> TensorType:
    is_quantized = detail.scale != 0
    return TensorType(
        name=detail.name,
        shape=tuple(detail.shape),
        dtype=detail.dtype.name,
        scale=detail.scale if is_quantized else None,
        zero_point=detail.zero_point if is_quantized else None,
    )


def _labels(dataset: Dataset, outputs: Sequence[TensorType], task: TaskConfig) -> tuple[str, ...]:
    """Return a name for each output of a classifier; those that no class has are numbers."""
    names = tuple(dataset.class_names)
    if not names or len(outputs) != 1 or task.decode is not None or not outputs[0].shape:
        return names
    return (*names, *map(str, range(len(names), outputs[0].shape[-1])))


def front_end_of(dataset: Dataset, data: DataConfig) -> Mapping[str, Json] | None:
    """Return every setting of the front end of audio or texts, defaults and what follows too."""
    if dataset.front_end is not None:
        return dataset.front_end
    audio = data.clips
    if audio is None:
        return None
    counted: dict[str, Json] = {
        "fft_size": audio.transform_samples,
        "high_hz": audio.highest_hz,
        "clip_samples": audio.clip_samples,
        "window_samples": audio.window_samples,
        "stride_samples": audio.stride_samples,
        "frames": audio.frames,
        "window": "hann",
        "mel_scale": "htk",
        "spectrum": "power",
    }
    return {**audio.model_dump(exclude={"resample", "channel"}), **counted}


def check_shapes(dataset: Dataset, model: Interface, role: str = "model") -> None:
    """Raise `DataError` where the examples' shapes are not those of the model's inputs.

    Args:
        dataset: the examples.
        model: what they are fed to.
        role: what it is called in the message, such as teacher.
    """
    shapes = tuple(tuple(spec.shape) for spec in leaves(dataset.reference.input_spec))
    if len(shapes) != len(model.inputs):
        raise DataError(
            f"the {called(model, role)} takes {len(model.inputs)} inputs "
            f"({', '.join(model.input_names)}), the examples have {len(shapes)}",
            subject="data",
            hint=f"set data.inputs: [{', '.join(model.input_names)}]",
        )
    tokens = (dataset.front_end or {}).get("vocabulary")
    if model.look_up is not None and tokens is not None and len(tokens) > model.look_up[1]:
        name, rows = model.look_up
        raise DataError(
            f"the vocabulary has {len(tokens):,} tokens, and the layer {name} of the "
            f"{called(model, role)} looks up {rows:,}",
            subject="data.tokens",
            hint=f"set data.tokens.size: {rows}, or build the model for more",
        )
    for index, (wanted, shape) in enumerate(zip(model.inputs, shapes, strict=True)):
        if not alike(wanted, shape):
            raise DataError(
                f"the {called(model, role)} takes inputs of shape {wanted}, the examples have "
                f"{shape}{_meeting(dataset, model, index)}",
                subject="data",
                hint=_shape_hint(dataset, model, wanted, shape),
            )


def called(model: Interface, role: str) -> str:
    """Return what a message calls a model: its role, and its name where it has one."""
    return f"{role} {model.name!r}" if model.name else role


def _meeting(dataset: Dataset, model: Interface, index: int) -> str:
    """Return which array went to which of several inputs."""
    arrays = dataset.input_arrays or dataset.input_names
    if len(model.inputs) == 1 or len(arrays) != len(model.inputs):
        return ""
    return f": the array {arrays[index]} goes to the input {model.input_names[index]}"


def _shape_hint(
    dataset: Dataset, model: Interface, wanted: tuple[int | None, ...], shape: tuple[int, ...]
) -> str:
    if len(model.inputs) == 1:
        if dataset.columns and len(wanted) == len(shape) == 1:
            return (
                f"the model takes {wanted[0]} columns, the table has {shape[0]}: name those of the "
                "input in data.inputs"
            )
        if dataset.input_names:
            return (
                "transpose or reshape the array, name another in data.inputs, or name the model "
                "that fits"
            )
        return "set data.image_size and data.channels for images, or name the model that fits"
    every = zip(model.input_names, model.inputs, strict=True)
    shown = ", ".join(f"{name} {shape}" for name, shape in every)
    return (
        f"call the arrays of data.inputs as the model's inputs, or put them into its order: {shown}"
    )


def alike(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    """Whether two shapes are the same in the dimensions that both of them know."""
    return len(one) == len(other) and all(
        a is None or b is None or a == b for a, b in zip(one, other, strict=True)
    )


def check_outputs(dataset: Dataset, model: Interface) -> None:
    """Raise `DataError` where there is not one target for each output."""
    targets = len(leaves(dataset.reference.target_spec))
    if targets != len(model.outputs):
        raise DataError(
            f"the {called(model, 'model')} gives {len(model.outputs)} outputs "
            f"({', '.join(model.output_names)}), the examples have {targets} targets",
            subject="data",
            hint="name one array for each output in data.targets; or, to measure no metric and "
            "calibrate alone, set data.target: none (--data-target none)",
        )


_LOOK_UPS = ("Embedding", "CategoryEncoding", "IntegerLookup", "Hashing")


def check_mixup(dataset: Dataset, losses: Sequence[str], model: keras.Model) -> None:
    """Raise `DataError` where mixtures of examples mean nothing.

    Args:
        dataset: the examples, which mixup mixes.
        losses: on the targets of each output.
        model: the Keras model that is trained.
    """
    if any(loss_of(one).info.of_signs for one in losses):
        _refuse_mixup("hinge losses take labels for signs", "leave data.augment.mixup out")
    if any(ignored_class(one) is not None for one in losses):
        _refuse_mixup("ignore_class leaves labels out", "leave data.augment.mixup out")
    shapes = [tuple(spec.shape) for spec in leaves(dataset.reference.target_spec)]
    numbers = any(
        kind_of_loss(one) == "classes" and not alike(shape, tuple(output.shape[1:]))
        for one, shape, output in zip(losses, shapes, model.outputs, strict=False)
    )
    if dataset.num_classes is None and numbers:
        _refuse_mixup(
            "the class numbers of sequences, or of several targets, would be averaged",
            "store the labels one-hot, or leave data.augment.mixup out",
        )
    for layer in _looking_up(model):
        _refuse_mixup(
            f"the layer {layer.name} looks whole numbers up, which would be averaged",
            "leave data.augment.mixup out",
        )


def _looking_up(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yield the layers that look a model's inputs up, as they come in."""
    inputs = set(map(id, getattr(model, "inputs", None) or ()))
    kinds = tuple(getattr(keras.layers, name) for name in _LOOK_UPS)
    for layer in parts_of(model):
        fed = leaves([node.keras_inputs for node in calls_of(layer)])
        if isinstance(layer, kinds) and any(id(tensor) in inputs for tensor in fed):
            yield layer


def _refuse_mixup(why: str, hint: str) -> None:
    raise DataError(f"mixup cannot be: {why}", subject="data.augment.mixup", hint=hint)
