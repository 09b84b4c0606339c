"""What a chain of stages makes of a model without training: its sizes, MACs and arena.

One process answers many questions: TensorFlow is imported once. Widths, ratios and schemes decide
what a file takes; what training would change are values alone. Shares between layers that are
measured on a trained model are not: a chain that begins at a trained artifact is nearer.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.base import files
from shrink.base.errors import InternalError, ShrinkError, StageError, first_line
from shrink.base.foreign import JsonObject
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.events import Send
from shrink.contract.job import ANSWER, BEGUN, OF_STEP, QUESTION, Outline, OutlineJob, StepJob
from shrink.contract.model_source import ModelSource
from shrink.data.dataset import Dataset
from shrink.engine.devices import Devices
from shrink.graph.rebuild import parted
from shrink.measure.size import measure_sizes
from shrink.recipe.plan import BASELINE
from shrink.run.execute import run_stage, save_artifact
from shrink.run.measured import figure_values
from shrink.stages import find_stage
from shrink.stages.context import StageContext, StageResult
from shrink.tflite.arena import arena_bytes
from shrink.tflite.convert import convert

END = "end"
_POLL_S = 0.1
_NICE = 10
"""A tenth of the share that training has of a processor that both want."""
_CALIBRATED_ON = 32
_ONLY_TRAIN = ("train", "distill")
_UNIFORM = "uniform"


def outline(job: OutlineJob, send: Send) -> JsonObject:
    """Answer the questions in the job's folder, until there is the file `end`.

    One at a time, the first by name of those that there are by then. A question that is being
    worked out has another name, so that nobody moves it up any more.
    """
    if job.behind:
        os.nice(_NICE)
    shared: dict[str, tuple[Dataset, Devices]] = {}
    while not (job.folder / END).exists():
        asked = sorted(job.folder.glob(f"*{QUESTION}"))
        if not asked:
            time.sleep(_POLL_S)
            continue
        name = asked[0].name.removesuffix(QUESTION)
        begun = asked[0].with_name(name + BEGUN)
        with contextlib.suppress(FileNotFoundError):  # it was moved up just now
            asked[0].rename(begun)
            found = _answer(begun, job.work, send, shared)
            files.write_json(begun.with_name(name + ANSWER), to_plain(found))
            keras.backend.clear_session()
            gc.collect()
    return {}


def _answer(
    path: Path, work: Path, send: Send, shared: dict[str, tuple[Dataset, Devices]]
) -> Outline:
    started, plain = time.perf_counter(), json.loads(path.read_text(encoding="utf-8"))
    folder = work / path.name.partition(".")[0]
    folder.mkdir(exist_ok=True)
    error, fails, exact, figures = None, False, True, dict[str, float | None]()
    try:
        steps = from_plain(tuple[StepJob, ...], plain["steps"])
        exact = not any(map(_shares_are_measured, steps))
        figures = _figures(steps, folder, send, shared)
    except ShrinkError as failed:
        error, fails = failed.message, isinstance(failed, StageError)
    except Exception as failed:
        error = f"{type(failed).__name__}: {first_line(failed)}"
    finally:
        for path in folder.glob("*/*"):  # the data of the first answer serve the others, too
            if path.suffix in (".keras", ".tflite"):
                path.unlink()
    return Outline(
        figures=figures,
        error=error,
        stage_failed=fails,
        exact=exact,
        duration_s=time.perf_counter() - started,
    )


class _Context(StageContext):
    """A stage's context without data and devices of its own: those of the first one serve all."""

    untrained = True
    dataset: Dataset
    devices: Devices


def _figures(
    steps: Sequence[StepJob],
    folder: Path,
    send: Send,
    shared: dict[str, tuple[Dataset, Devices]],
) -> dict[str, float | None]:
    made: dict[str, Path] = {}
    for number, step in enumerate(steps):
        work = folder / str(number)
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
            _part_biases(outcome.model)
        made[step.name] = save_artifact(outcome, context)
    if outcome.not_run:
        return {}
    artifact = tflite = made[steps[-1].name]
    if outcome.model is not None:
        tflite = artifact.with_name("float32.tflite")
        files.write_bytes(tflite, convert(outcome.model, "float32").content)
    arena = arena_bytes(tflite)
    memory = {"arena_bytes": arena.value, "arena_estimate_bytes": arena.estimate}
    return {**figure_values(measure_sizes(artifact, tflite, outcome.model)), **memory}


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


def _part_biases(model: keras.Model) -> None:
    """Give biases, and what else a layer has one of for each channel, values as after training.

    Kernels stay: those of layers are unlike from the beginning, and zeros in them are meant.
    """
    weights = model.get_weights()
    values = parted(weights, np.random.default_rng(0))
    pairs = zip(weights, values, strict=True)
    model.set_weights([value if old.ndim == 1 else old for old, value in pairs])


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
        raise InternalError("the budget of scheme mixed is met by what a trained model gives")
    changes: JsonObject = {}
    if hasattr(config, "epochs"):
        changes["epochs"] = 0
    if job.kind == "quantize":
        changes |= {"aware": False, "calibration_samples": _CALIBRATED_ON}
        if getattr(config, "aware", False) and getattr(config, "dense_scales", "") == "auto":
            changes["dense_scales"] = "channel"  # those that it is trained with
    if getattr(config, "method", None) == "channels":
        changes |= {"importance": "l2", "allocation": _UNIFORM, "teacher": None, "steps": 1}
        changes["sensitivity_metric"] = None
    if getattr(config, "method", None) == "layers":
        changes["teacher"] = None
    cheap = config.model_copy(update=changes)
    return replace(job, config=cheap.model_dump(mode="json", by_alias=True), epochs=0)
