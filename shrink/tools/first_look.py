"""What a first recipe is written from: the model's size and kind, and the data beside it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from shrink.base import files
from shrink.base.activity import Phase
from shrink.base.errors import ModelError, StageError
from shrink.base.figures import LOSS
from shrink.contract.events import Send
from shrink.contract.job import FirstLookJob
from shrink.contract.model_source import ModelSource
from shrink.contract.result import FirstLook
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.matching import (
    ModelNames,
    artifact_names,
    in_model_order,
    keras_names,
    needs_names,
)
from shrink.data.opening import open_dataset_for
from shrink.graph.groups import find_groups
from shrink.model.compiled import read_compiled
from shrink.model.load import image_input, load_source
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.task.config import TaskConfig
from shrink.task.interface import artifact_interface, keras_interface
from shrink.task.resolve import resolve_task
from shrink.task.task import Task
from shrink.tflite.arena import arena_bytes
from shrink.tflite.flatbuffer import parameters, quantized_operators

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
    found = _looked_at(job.model, stored, TaskConfig.model_validate(job.task))
    send(Phase("quantizing"))
    scheme, content = _quantized(found.source, found.dataset)
    artifact = job.work / "quantized.tflite"
    files.write_bytes(artifact, content)
    task, dataset = found.task, found.dataset
    return FirstLook(
        parameters=found.parameters,
        groups=found.groups,
        float_bytes=len(found.source.float32.content),
        scheme=scheme,
        quantized_bytes=len(content),
        quantized_arena_bytes=arena_bytes(artifact).value,
        metric=task.metrics[0] if task.metrics else LOSS,
        loss=", ".join(dict.fromkeys(task.losses)),
        classes=dataset.num_classes or 0,
        train=len(dataset.train),
        validation=len(dataset.validation),
        test=len(dataset.test),
    )


@dataclass(frozen=True)
class _Look:
    """A model, the data in its order, its task, and its numbers of parameters and groups."""

    source: FloatModel
    dataset: Dataset
    task: Task
    parameters: int
    groups: int


def _looked_at(source: ModelSource, stored: Dataset, config: TaskConfig) -> _Look:
    path = source.path
    compiled = None if source.function else read_compiled(path)
    if source.kind == "tflite":
        content = _float_artifact(path)
        dataset = _in_order(stored, artifact_names(path))
        task = resolve_task(config, dataset, artifact_interface(path), compiled)
        return _Look(FloatModel(None, content), dataset, task, parameters(content), 0)
    model = load_source(source)
    dataset = _in_order(stored, keras_names(model))
    task = resolve_task(config, dataset, keras_interface(model), compiled)
    groups = len(find_groups(model).groups)
    return _Look(FloatModel(model), dataset, task, model.count_params(), groups)


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


def _float_artifact(path: Path) -> bytes:
    content = path.read_bytes()
    if quantized_operators(content):
        raise ModelError(
            "this .tflite file is quantized already, and nothing is left to do for a recipe",
            subject=path,
            hint="measure it: shrink evaluate MODEL --data D",
        )
    return content
