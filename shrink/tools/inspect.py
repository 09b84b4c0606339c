"""`shrink inspect` and `shrink init` of Keras models."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base import files
from shrink.base.errors import StageError
from shrink.base.figures import LOSS
from shrink.base.progress import Phase
from shrink.contract.events import Send
from shrink.contract.findings import (
    GroupRow,
    KerasInspection,
    KerasTensor,
    LayerShapes,
)
from shrink.contract.job import FirstLookJob, InspectJob
from shrink.contract.result import FirstLook
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.matching import (
    artifact_names,
    in_model_order,
    keras_names,
    needs_names,
)
from shrink.data.opening import open_dataset_for
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.model.compilation import read_compiled
from shrink.model.image_input import image_input
from shrink.model.load import load_source
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel, read_float_tflite
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.task.config import TaskConfig
from shrink.task.interface import artifact_interface, keras_interface
from shrink.task.kinds import kind_of_task, proposed_metrics
from shrink.task.proposed_decode import proposed_decode
from shrink.task.resolve import resolve_task
from shrink.tflite.arena import arena_of
from shrink.tflite.weights import (
    parameters,
)


def inspect_keras(job: InspectJob) -> KerasInspection:
    """Return a description of the job's Keras model."""
    source = job.model
    model = load_source(source)
    description = describe_model(model, str(source.path))
    if job.groups:
        graph = find_groups(model)
        return replace(description, groups=groups_of(graph), protected=graph.protected)
    return description


def describe_model(model: keras.Model, path: str) -> KerasInspection:
    """Return the layers of a Keras model, with shapes, parameters and sparsity."""
    return KerasInspection(
        path=path,
        inputs=tuple(map(_keras_tensor, model.inputs)),
        outputs=tuple(map(_keras_tensor, model.outputs)),
        parameters=model.count_params(),
        layers=tuple(map(_layer, model.layers)),
    )


def groups_of(graph: ChannelGraph) -> tuple[GroupRow, ...]:
    """Return which channels of a Keras model can be removed."""
    return tuple(
        GroupRow(
            layers=tuple(group.layers),
            channels=len(group),
            members=tuple(dict.fromkeys(member.layer for member in group.members)),
        )
        for group in graph.groups
    )


def _keras_tensor(tensor: tf.Tensor) -> KerasTensor:
    return KerasTensor(name=tensor.name, shape=tuple(tensor.shape), dtype=tensor.dtype.name)


def _layer(layer: keras.layers.Layer) -> LayerShapes:
    weights = [np.asarray(w) for w in layer.get_weights()]
    size = sum(w.size for w in weights)
    zeros = sum(int(np.sum(w == 0)) for w in weights if w.ndim > 1)
    kernels = sum(w.size for w in weights if w.ndim > 1)
    return LayerShapes(
        name=layer.name,
        type=type(layer).__name__,
        output_shapes=tuple(tuple(t.shape) for t in tf.nest.flatten(layer.output)),
        dtype=layer.compute_dtype,
        parameters=size,
        sparsity=zeros / kernels if kernels else None,
    )


_CALIBRATED_ON = 100


def first_look(job: FirstLookJob, send: Send) -> FirstLook:
    """Return what the job's model and data are.

    Raises:
        ShrinkError: the model or the data cannot be read, or they do not belong together.
    """
    send(Phase("reading the data"))
    image = functools.partial(image_input, job.model)
    stored = open_dataset_for(DataConfig.model_validate(job.data), job.seed, image)
    send(Phase("reading the model"))
    source, path, decode = job.model, job.model.path, None
    if source.kind == "tflite":
        given, names, interface = (
            read_float_tflite(path),
            artifact_names(path),
            artifact_interface(path),
        )
        count, groups = parameters(given.float32.content), 0
    else:
        model = load_source(source)
        given, names, interface = FloatModel(model), keras_names(model), keras_interface(model)
        count, groups = model.count_params(), len(find_groups(model).groups)
    dataset = in_model_order(stored, names) if needs_names(stored) else stored
    config = TaskConfig.model_validate(job.task)
    if dataset.has_boxes and config.decode is None:
        decode = proposed_decode(dataset, interface)
        config = config.model_copy(update={"decode": decode})
    compiled = None if source.function else read_compiled(path)
    task = resolve_task(config, dataset, interface, compiled)
    send(Phase("quantizing"))
    scheme, content = _quantized(given, dataset)
    artifact = job.work / "quantized.tflite"
    files.write_bytes(artifact, content)
    data = DataConfig.model_validate(job.data)
    kind = kind_of_task(data, task.outputs)
    proposed = () if task.metrics_by == "recipe" else proposed_metrics(kind, data, dataset)
    return FirstLook(
        parameters=count,
        groups=groups,
        float_bytes=len(given.float32.content),
        scheme=scheme,
        quantized_bytes=len(content),
        quantized_arena_bytes=arena_of(artifact).value,
        metric=next(iter((*proposed, *task.metrics)), LOSS),
        loss=", ".join(dict.fromkeys(task.losses)),
        classes=dataset.num_classes or 0,
        train=len(dataset.train),
        validation=len(dataset.validation),
        test=len(dataset.test),
        kind=kind,
        metrics=proposed,
        class_names=tuple(dataset.class_names),
        decode=None if decode is None else decode.model_dump(mode="json", exclude_defaults=True),
        clip_seconds=data.clips.seconds if data.clips else 0.0,
    )


def _quantized(source: FloatModel, dataset: Dataset) -> tuple[str, bytes]:
    """Return what the model becomes: gates are set by what was measured, not by a rule of thumb."""
    config = QuantizeConfig()
    examples = CalibrationExamples(dataset.train, _CALIBRATED_ON, 0, dataset.input_names)
    try:
        return config.scheme, SCHEMES[config.scheme](source, examples, config).content
    except StageError:
        scheme = "dynamic_wi8_afp32"
        return scheme, SCHEMES[scheme](source, examples, config).content
