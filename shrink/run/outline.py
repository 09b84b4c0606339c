"""The sizes, MACs and arena of a model before it is trained, made in a worker.

Widths, ratios and schemes decide what a file takes; training changes values alone. How layers share
what is left may follow from a trained model: such an outline is not `exact`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.base import files
from shrink.base.errors import InternalError, ShrinkError, StageError, first_line
from shrink.base.foreign import JsonObject
from shrink.base.measurement import figure_values
from shrink.contract.codec import to_plain
from shrink.contract.events import Send
from shrink.contract.job import OF_STEP, Outline, OutlineJob, StepJob
from shrink.contract.model_source import ModelSource
from shrink.contract.report import Figures
from shrink.data.dataset import Dataset
from shrink.engine.devices import Devices
from shrink.graph.rebuild import parted
from shrink.measure.size import measure_sizes
from shrink.recipe.plan import BASELINE
from shrink.run.execute import run_stage, save_artifact
from shrink.stages import find_stage
from shrink.stages.context import StageContext, StageResult
from shrink.tflite.arena import arena_of
from shrink.tflite.convert import convert

_CALIBRATED_ON = 32
_ONLY_TRAIN = ("train", "distill")
_UNIFORM = "uniform"


def outline(job: OutlineJob, send: Send) -> Outline:
    """Return what is known of the job's chain of steps without training."""
    try:
        figures = _figures(job, send)
        return Outline(figures=figures, exact=not any(map(_shares_are_measured, job.steps)))
    except ShrinkError as error:
        failed = isinstance(error, StageError)
        return Outline(figures={}, error=error.message, stage_failed=failed)
    except Exception as error:
        return Outline(figures={}, error=f"{type(error).__name__}: {first_line(error)}")


class _Context(StageContext):
    """A stage's context without data and devices of its own: those of the first one serve all."""

    untrained = True
    dataset: Dataset
    devices: Devices


def _figures(job: OutlineJob, send: Send) -> Figures:
    made: dict[str, Path] = {}
    shared: dict[str, tuple[Dataset, Devices]] = {}
    for number, step in enumerate(job.steps):
        work = job.work / str(number)
        work.mkdir(exist_ok=True)
        sources = {role: _source(source, made) for role, source in step.inputs.items()}
        context = _Context(_untrained(replace(step, inputs=sources, work=work)), send)
        what = json.dumps([to_plain(step.data), step.split_seed], sort_keys=True)
        if what not in shared:
            shared[what] = (context.dataset, context.devices)
        vars(context)["dataset"], vars(context)["devices"] = shared[what]
        keras.utils.set_random_seed(context.training.seed)
        outcome = _made(context._job, context)
        if outcome.model is not None and step.epochs:
            # Give biases, and what else a layer has one of for each channel, values as after
            # training.
            model = outcome.model
            weights = model.get_weights()
            values = parted(weights, np.random.default_rng(0))
            pairs = zip(weights, values, strict=True)
            model.set_weights([value if old.ndim == 1 else old for old, value in pairs])
        made[step.name] = save_artifact(outcome, context)
    if outcome.not_run:
        return {}
    artifact = tflite = made[job.steps[-1].name]
    if outcome.model is not None:
        tflite = artifact.with_name("float32.tflite")
        files.write_bytes(tflite, convert(outcome.model, "float32").content)
    sizes = measure_sizes(artifact, tflite, outcome.model)
    return figure_values({**sizes, **arena_of(tflite).figures})


def _source(source: ModelSource, made: dict[str, Path]) -> ModelSource:
    """Return an input with the place of what an earlier step made."""
    if source.function != OF_STEP:
        return source
    return replace(source, function=None, path=made[source.path.name])


def _made(job: StepJob, context: StageContext) -> StageResult:
    """Return what a stage would hand back: a model that would be trained, as it is."""
    if job.kind in (BASELINE, *_ONLY_TRAIN):
        return StageResult(model=context.load())
    return run_stage(job, context)


def _shares_are_measured(job: StepJob) -> bool:
    """Whether a trained model decides what is removed, and where."""
    kind = None if job.config is None else find_stage(job.kind)
    config = None if kind is None else kind.model_validate(dict(job.config or {}))
    method = getattr(config, "method", None)
    if method == "channels":
        return getattr(config, "allocation", _UNIFORM) != _UNIFORM
    return method == "layers"


def _untrained(job: StepJob) -> StepJob:
    """Return a step's job without its training, and with what takes long made short."""
    if job.config is None or job.kind in _ONLY_TRAIN:
        return job
    kind = find_stage(job.kind)
    if kind is None:
        raise InternalError(f"no stage is called {job.kind}")
    config = kind.model_validate(dict(job.config))
    if getattr(config, "scheme", None) == "mixed":
        raise InternalError("scheme mixed needs a trained model to meet its budget")
    changes: JsonObject = {}
    if hasattr(config, "epochs"):
        changes["epochs"] = 0
    if job.kind == "quantize":
        changes |= {"aware": False, "calibration_samples": _CALIBRATED_ON}
        if getattr(config, "aware", False) and getattr(config, "dense_scales", "") == "auto":
            changes["dense_scales"] = "channel"  # those that it is trained with
    if getattr(config, "method", None) == "channels":
        changes |= {"importance": "l2", "allocation": _UNIFORM, "teacher": None, "steps": 1}
    if getattr(config, "method", None) == "layers":
        changes["teacher"] = None
    cheap = config.model_copy(update=changes)
    return replace(job, config=cheap.model_dump(mode="json", by_alias=True), epochs=0)
