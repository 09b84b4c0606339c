"""What a model is, and what it and its data would become."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base import files
from shrink.base.errors import ModelError, StageError
from shrink.base.figures import LOSS
from shrink.base.progress import Phase
from shrink.contract.events import Send
from shrink.contract.findings import (
    ArtifactInspection,
    ArtifactTensor,
    GroupRow,
    KerasInspection,
    KerasTensor,
    LayerShapes,
    MemoryPlan,
    OperatorTensors,
    PlannedTensor,
    Suitability,
)
from shrink.contract.job import FirstLookJob, InspectJob
from shrink.contract.model_source import ModelSource
from shrink.contract.result import FirstLook
from shrink.data.audio_config import AudioConfig
from shrink.data.config import HEARD, DataConfig
from shrink.data.dataset import Dataset
from shrink.data.matching import (
    ModelNames,
    artifact_names,
    in_model_order,
    keras_names,
    needs_names,
)
from shrink.data.opening import open_dataset_for
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.graph.macs import macs_figure
from shrink.measure.size import operator_table
from shrink.model.compiled import read_compiled
from shrink.model.load import image_input, load_source
from shrink.quantization.audit import (
    check_runs,
    findings,
    float_islands,
    microcontroller_findings,
)
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel, read_float_tflite
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.task.config import TaskConfig
from shrink.task.decode_config import DecodeConfig
from shrink.task.interface import artifact_interface, keras_interface
from shrink.task.kinds import kind_of_task, proposed_metrics
from shrink.task.proposed_decode import proposed_decode
from shrink.task.resolve import resolve_task
from shrink.task.task import Task
from shrink.tflite.arena import ArenaFigure, arena_bytes
from shrink.tflite.model import Subgraph, Tensor, read
from shrink.tflite.offline_plan import ONLINE, read_plan
from shrink.tflite.planner import tensor_bytes
from shrink.tflite.weights import (
    float_operators,
    nonzero_parameters,
    parameters,
    quantized_operators,
)


def inspect(job: InspectJob, send: Send) -> KerasInspection | ArtifactInspection:
    """Return a description of the job's model."""
    source = job.model
    if source.kind == "tflite":
        if job.groups:
            raise ModelError(
                "channel groups are those of a Keras model, and this is an artifact",
                subject=source.path,
                hint="inspect the Keras model that it was made from",
            )
        return describe_artifact(source.path)
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


def describe_artifact(path: Path) -> ArtifactInspection:
    """Return the operators of a TFLite artifact, with dtypes, shapes and quantization."""
    content = path.read_bytes()
    graph, macs = read(content)[0], macs_figure(content)
    arena = arena_bytes(path)
    return ArtifactInspection(
        path=str(path),
        file_bytes=len(content),
        inputs=tuple(_tensor(graph.tensors[i]) for i in graph.inputs),
        outputs=tuple(_tensor(graph.tensors[i]) for i in graph.outputs),
        parameters=parameters(content),
        nonzero_parameters=nonzero_parameters(content),
        macs=macs.value,
        macs_note=macs.reason,
        arena_bytes=arena.value,
        arena_estimate_bytes=arena.estimate,
        arena_32_bytes=arena.estimate_32.value,
        arena_32_reference_bytes=arena.estimate_32_reference.value,
        arena_note=arena.reason,
        memory_plan=_memory_plan(content, graph),
        quantized_operators=quantized_operators(content),
        float_operators=tuple(float_operators(content)),
        operators=_operators(graph),
        audit=_audit(content, graph, path, arena),
    )


def _memory_plan(content: bytes, graph: Subgraph) -> MemoryPlan | None:
    """Return where a file's own plan lays activations in the arena, None where it has none."""
    plan = read_plan(content)
    if plan is None:
        return None
    used: dict[int, list[int]] = {i: [0] for i in graph.inputs}
    for number, operator in enumerate(graph.operators):
        for index in (*operator.inputs, *operator.outputs):
            used.setdefault(index, []).append(number)
    tensors = (
        PlannedTensor(
            name=graph.tensors[index].name,
            offset=offset,
            bytes=tensor_bytes(graph.tensors[index]),
            operators=(min(used.get(index, [0])), max(used.get(index, [0]))),
        )
        for index, offset in enumerate(plan.offsets)
        if offset != ONLINE
    )
    return MemoryPlan(size_bytes=plan.size_bytes, tensors=tuple(tensors))


def _audit(content: bytes, graph: Subgraph, path: Path, arena: ArenaFigure) -> Suitability:
    """Return what is found in an artifact, and whether each runtime runs it."""
    with tempfile.TemporaryDirectory(prefix="shrink-inspect-") as folder:
        try:
            check_runs(content, Path(folder) / path.name)
            litert = None
        except StageError as error:
            litert = error.message
    return Suitability(
        operators=tuple(operator_table(read(content))),
        float_islands=tuple(float_islands(graph)),
        custom_operators=tuple(sorted({o.name for o in graph.operators if o.custom})),
        findings=(*findings(graph), *microcontroller_findings(graph)),
        litert_fails=litert,
        tflm_fails=None if arena.runs else arena.reason,
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


def _operators(graph: Subgraph) -> tuple[OperatorTensors, ...]:
    return tuple(
        OperatorTensors(
            name=operator.name,
            custom=operator.custom,
            inputs=tuple(_tensor(graph.tensors[i]) for i in operator.inputs if i >= 0),
            outputs=tuple(_tensor(graph.tensors[i]) for i in operator.outputs),
        )
        for operator in graph.operators
    )


def _tensor(tensor: Tensor) -> ArtifactTensor:
    return ArtifactTensor(
        name=tensor.name,
        shape=tuple(tensor.shape),
        dtype=tensor.dtype.lower(),
        constant=bool(tensor.data.size),
        scales=len(tensor.scales),
        scale=tensor.scales[0] if len(tensor.scales) == 1 else None,
        zero_point=tensor.zero_points[0] if len(tensor.zero_points) == 1 else None,
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
    send(Phase("looking at the model"))
    look = _looked_at(job.model, stored, TaskConfig.model_validate(job.task))
    send(Phase("quantizing"))
    scheme, content = _quantized(look.source, look.dataset)
    artifact = job.work / "quantized.tflite"
    files.write_bytes(artifact, content)
    task, dataset = look.task, look.dataset
    data = DataConfig.model_validate(job.data)
    kind = kind_of_task(data, task.outputs)
    proposed = () if task.metrics_by == "recipe" else proposed_metrics(kind, data, dataset)
    return FirstLook(
        parameters=look.parameters,
        groups=look.groups,
        float_bytes=len(look.source.float32.content),
        scheme=scheme,
        quantized_bytes=len(content),
        quantized_arena_bytes=arena_bytes(artifact).value,
        metric=next(iter((*proposed, *task.metrics)), LOSS),
        loss=", ".join(dict.fromkeys(task.losses)),
        classes=dataset.num_classes or 0,
        train=len(dataset.train),
        validation=len(dataset.validation),
        test=len(dataset.test),
        kind=kind,
        metrics=proposed,
        class_names=tuple(dataset.class_names),
        decode=None
        if look.decode is None
        else look.decode.model_dump(mode="json", exclude_defaults=True),
        clip_seconds=(data.audio or AudioConfig()).seconds if data.source in HEARD else 0.0,
    )


@dataclass(frozen=True)
class _Look:
    """A model, the data in its order, its task, its numbers of parameters and groups, its head."""

    source: FloatModel
    dataset: Dataset
    task: Task
    parameters: int
    groups: int
    decode: DecodeConfig | None = None


def _looked_at(source: ModelSource, stored: Dataset, config: TaskConfig) -> _Look:
    path, decode = source.path, None
    compiled = None if source.function else read_compiled(path)
    if source.kind == "tflite":
        given = read_float_tflite(path)
        dataset = _in_order(stored, artifact_names(path))
        interface = artifact_interface(path)
        if dataset.has_boxes and config.decode is None:
            decode = proposed_decode(dataset, interface)
            config = config.model_copy(update={"decode": decode})
        task = resolve_task(config, dataset, interface, compiled)
        count = parameters(given.float32.content)
        return _Look(given, dataset, task, count, 0, decode)
    model = load_source(source)
    dataset = _in_order(stored, keras_names(model))
    interface = keras_interface(model)
    if dataset.has_boxes and config.decode is None:
        decode = proposed_decode(dataset, interface)
        config = config.model_copy(update={"decode": decode})
    task = resolve_task(config, dataset, interface, compiled)
    groups = len(find_groups(model).groups)
    return _Look(FloatModel(model), dataset, task, model.count_params(), groups, decode)


def _in_order(dataset: Dataset, names: ModelNames) -> Dataset:
    return in_model_order(dataset, names) if needs_names(dataset) else dataset


def _quantized(source: FloatModel, dataset: Dataset) -> tuple[str, bytes]:
    """Return what the model becomes: gates are set by what was measured, not by a rule of thumb."""
    config = QuantizeConfig()
    examples = CalibrationExamples(dataset.train, _CALIBRATED_ON, 0, dataset.input_names)
    try:
        return config.scheme, SCHEMES[config.scheme](source, examples, config).content
    except StageError:
        scheme = "dynamic_wi8_afp32"
        return scheme, SCHEMES[scheme](source, examples, config).content
