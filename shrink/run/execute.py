"""Runs the job of a worker: the stage, the artifact, the measurements."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import threading
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shrink.base import files
from shrink.base.errors import DataError, InternalError, ShrinkError, StageError
from shrink.base.host import host_peak_bytes, machine
from shrink.base.measurement import Measured, Note, reasons
from shrink.base.types import JsonObject
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.details import Details
from shrink.contract.events import Send
from shrink.contract.job import CheckModelsJob, Planning, StepJob
from shrink.contract.report import Figures, MeasuredAt, Skipped
from shrink.contract.result import (
    Counts,
    HeldOut,
    Measurement,
    StepDone,
    StepResult,
    Timing,
    scores_to_plain,
)
from shrink.contract.trained_range import ModelMetadata
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES
from shrink.measure.layers import layer_table
from shrink.measure.memory import AllocatorPeak, nvml_note
from shrink.measure.size import gzip_bytes, operator_table
from shrink.model.metadata import write_metadata
from shrink.recipe.plan import BASELINE
from shrink.run.evaluation import Evaluated, guess
from shrink.run.measurement import ArtifactFigures, figure_values, measure
from shrink.stages import find_stage, run_module, stage_code
from shrink.stages.base import StageConfig
from shrink.stages.context import Planned, PlanningContext, StageContext, StageResult
from shrink.tflite.lazy import tf
from shrink.tflite.model import read

if TYPE_CHECKING:
    from shrink.stages.preservation import Preserved

ARTIFACT, SCORES, SPLITS = "artifact", "scores", "splits"


def execute(job: StepJob, send: Send) -> StepDone:
    """Run one step and return its result.

    The worker's folder then holds `model.keras` or `model.tflite`, and `scores.json`.
    """
    started = time.perf_counter()
    context = StageContext(job, send)
    context.start()
    preserved = _preserved(context) if context.preserves else None
    outcome = run_stage(job, context)
    host_peak = host_peak_bytes()
    gpu_note = nvml_note() if outcome.training and context.devices.on_gpu else None
    # Warn where the stage's process held more than it was to.
    peak = host_peak
    limit = context.training.host_memory_limit
    if limit is not None and peak > limit:
        context.warn(
            "host-memory",
            f"the process peaked at {peak / 1e6:.0f} MB of resident memory, and was to stay below "
            f"{limit / 1e6:.0f} MB",
            "set a smaller training.memory_limit, or data.cache: none",
        )
    if preserved is not None:
        preserved.check(outcome, context)
    stage_s = time.perf_counter() - started
    context.phase("measuring")
    artifact = save_artifact(outcome, context)
    of_stage = len(context.warnings)
    measured, shown = measured_artifact(context, outcome, artifact, job)
    planning = job.planning
    record, plan = outcome.training, planning.plan
    none = Measured[int](None)
    predicted = None if plan is None else plan.predicted_bytes
    found = {
        "training_peak_predicted_bytes": Measured(
            predicted, "" if predicted is not None else _why_not(planning)
        ),
        **(record.peaks if record else dict.fromkeys(_PEAKS, none)),
        "training_host_peak_bytes": Measured(host_peak),
    }
    training = found if record else dict.fromkeys(found, none)
    own = [*measured.notes, *(f"data: {note}" for note in context.dataset.notes)]
    said = [*outcome.notes, *own, *filter(None, context.import_notes.values()), *reasons(training)]
    said += (*outcome.training.notes, *outcome.training.lost) if outcome.training else ()
    said += [gpu_note] if gpu_note else []
    dataset = context.dataset
    counts = {split: len(getattr(dataset, split)) for split in SPLIT_NAMES}
    result = StepResult(
        **measured_fields(
            job,
            context,
            outcome,
            measured,
            {**figure_values(training), "stage_host_peak_bytes": host_peak_bytes()},
        ),
        training=outcome.training.described() if outcome.training else None,
        skipped=from_plain(tuple[Skipped, ...], to_plain(outcome.skipped)),
        notes=as_notes(said),
        warnings=tuple(context.warnings),
        measurement=Measurement(notes=as_notes(own), warnings=tuple(context.warnings[of_stage:])),
        details=shown.filled_by(outcome.details).filled_by(outcome.later and outcome.later()),
        splits=_splits(context),
        timing=Timing(stage_s=stage_s, measure_s=time.perf_counter() - started - stage_s),
        devices=context.device_names,
        data=Counts(examples=counts, classes=tuple(dataset.class_names) or None),
    )
    produced = {ARTIFACT: artifact.name, SCORES: "scores.json", **_membership(context)}
    return StepDone(result=result, files=produced)


def check_models(job: CheckModelsJob, send: Send) -> JsonObject:
    """Load every model of the job as its stage will, and forget it again."""
    from shrink.model.load import load_source
    from shrink.model.savable import check_savable

    for sources, as_graph in ((job.models, False), (job.teachers, True)):
        for source in sources:
            model = load_source(source, as_graph)
            if source.function is not None and not as_graph:
                check_savable(model, source.path)
    return {}


def measured_fields(
    job: StepJob,
    context: StageContext,
    outcome: StageResult,
    measured: ArtifactFigures,
    memory: Figures,
) -> dict[str, Any]:
    """Return the fields of a result that measuring gives; `memory` holds what training took."""
    own = measured.evaluated
    on_test = job.measured_on == "test"
    return {
        "size": measured.size,
        "memory": {**measured.memory, **memory},
        "metrics": own.metrics,
        "slices": own.slices,
        "examples": own.examples,
        "latency": measured.latency,
        "guess": guess(job.kind, context, outcome, own) if on_test else None,
        "measured": MeasuredAt(
            at=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine()
        ),
    }


def follow(job: StepJob, send: Send) -> dict[str, object]:
    """Run one step beside the chief of a cluster, up to its end; then wait to be ended.

    What the stage made here is what it made there, and is thrown away. The process stays: the
    chief's TensorFlow takes the end of a peer for a failure.
    """
    context = StageContext(job, send)
    context.start()
    _preserved(context)
    run_stage(job, context)
    threading.Event().wait()
    return {}


def probe(job: StepJob, send: Send) -> Planning:
    """Run one step up to its training, and return what to train it with."""
    context = PlanningContext(job, send)
    context.start()
    if why := AllocatorPeak(context.device_names).note:
        return Planning(unplanned=why)
    context.phase("planning")
    try:
        run_stage(job, context)
    except Planned as planned:
        return Planning(planned.plan)
    return Planning(unplanned="the stage did not train")


def _preserved(context: StageContext) -> Preserved:
    from shrink.stages.preservation import Preserved

    return Preserved.of(context)


def run_stage(job: StepJob, context: StageContext) -> StageResult:
    """Return what a stage makes.

    Raises:
        StageError: the code of another package's stage raised what is no error of shrink's.
    """
    config = _config(job)
    if config is not None and context.imported.traits:
        from shrink.stages.preservation import Preserved

        Preserved.refuse_broken(config.breaks, context)
    try:
        return importlib.import_module(run_module(job.kind)).run(config, context)
    except (ShrinkError, Planned, MemoryError):
        raise
    except Exception as error:
        code = stage_code(job.kind)
        if not code or isinstance(error, tf.errors.OpError):
            raise
        traceback.print_exc()  # into the worker's log
        raise StageError(
            f"{code['package']} adds the stage {job.kind}, and it raised "
            f"{type(error).__name__}: {error}",
            subject=context.name,
        ) from error


def _config(job: StepJob) -> StageConfig | None:
    if job.config is None:
        return None
    config = find_stage(job.kind)
    if config is None:
        raise InternalError(f"no stage is called {job.kind}")
    return config.model_validate(job.config)


def save_artifact(outcome: StageResult, context: StageContext) -> Path:
    """Write what a stage made into its folder, and return the file."""
    work = context.work
    if outcome.tflite is not None:
        artifact = work / "model.tflite"
        files.write_bytes(artifact, outcome.tflite)
        return artifact
    if outcome.model is None:
        raise InternalError("the stage gave neither a model nor an artifact")
    artifact = work / "model.keras"
    with files.replacing(artifact) as temporary:
        outcome.model.save(temporary)
        traits = dict.fromkeys((*context.imported.traits, *outcome.imported.traits))
        if (imported := replace(outcome.imported, traits=tuple(traits))) != ModelMetadata():
            write_metadata(temporary, imported)
    return artifact


def measured_artifact(
    context: StageContext, outcome: StageResult, artifact: Path, job: StepJob
) -> tuple[ArtifactFigures, Details]:
    """Return an artifact's figures and what its file shows: layers or operators, the task.

    Args:
        context: of the stage.
        outcome: what the stage made.
        artifact: its file.
        job: says which examples it is measured on.

    Raises:
        ShrinkError: it cannot be converted, or run on the examples.
    """
    if job.measured_on == "nothing":
        files.write_text(context.work / "scores.json", "{}")
        return ArtifactFigures({}, {}, {}, Evaluated(), []), Details()
    tflite, notes = artifact, list[str]()
    with ThreadPoolExecutor(1) as beside:  # zlib lets others run, and takes long for large files
        compressed = beside.submit(gzip_bytes, artifact)
        if outcome.model is not None:
            from shrink.tflite.convert import convert

            tflite = job.work / "float32.tflite"
            conversion = convert(outcome.model, "float32")
            files.write_bytes(tflite, conversion.content)
            notes = list(conversion.notes)
        measured = measure(context, outcome, artifact, tflite, job, compressed)
    scores = scores_to_plain(measured.evaluated.scores)
    files.write_text(context.work / "scores.json", json.dumps(scores))
    measured = replace(measured, notes=[*notes, *measured.notes])
    return measured, _shown(context, outcome, tflite, measured.evaluated)


def as_notes(sentences: Iterable[str]) -> tuple[Note, ...]:
    """Return sentences as notes, each once."""
    once = dict.fromkeys(sentences)
    return tuple(note if isinstance(note, Note) else Note(note) for note in once)


def _shown(
    context: StageContext, outcome: StageResult, tflite: Path, evaluated: Evaluated
) -> Details:
    """Return what an artifact's file and its evaluation show."""
    content = tflite.read_bytes()
    # A compiled file keeps the inputs and outputs of the file that it was made from.
    usage = context.usage(context.input_path().read_bytes() if outcome.not_run else content)
    context.warn_of_data(usage)
    model = outcome.model
    return Details(
        task=evaluated.task,
        confusion=evaluated.confusion,
        by_output=evaluated.by_output,
        interface=usage,
        layers=() if model is None else tuple(layer_table(model, content)),
        operators=tuple(operator_table(read(content))) if model is None else (),
    )


def _splits(context: StageContext) -> HeldOut:
    """Return what the parent tells of the splits, once for all stages."""
    if not context.has_targets:
        return HeldOut()
    dataset = context.dataset
    held_out = HeldOut(test_given="test" in dataset.given, test=len(dataset.test))
    with contextlib.suppress(DataError):  # an example that cannot be read ends the stage elsewhere
        left = context.data_config.overlap == "leave_out"
        held_out = replace(
            held_out,
            test_examples=_test_examples(dataset),
            shared=tuple(dataset.shared()),
            shared_left_out=left,
        )
    if (out := dataset.left_out) is None:
        return held_out
    left_out = {split: out.count(split) for split in SPLIT_NAMES}
    return replace(
        held_out, left_out=left_out, comparable=out.comparable, trained_on=out.trained_on
    )


def _test_examples(dataset: Dataset) -> str | None:
    """Return a hash of the test examples with their labels, whatever their order."""
    if dataset.membership is None:
        return None
    hashes = np.asarray(dataset.membership().splits["test"], "<u8")
    labels = np.zeros(len(hashes)) if dataset.test.labels is None else dataset.test.labels
    labels = np.asarray(labels, "<i8")
    order = np.lexsort((labels, hashes))
    content = hashes[order].tobytes() + labels[order].tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def _membership(context: StageContext) -> dict[str, str]:
    """Write which examples are in which split, for runs that go on from here; a baseline has none.

    An example that cannot be read ends the stage where it is used, not here.
    """
    if context.kind == BASELINE or context.dataset.membership is None:
        return {}
    try:
        content = context.dataset.membership().content()
    except DataError:
        return {}
    files.write_bytes(context.work / "splits.bin", content)
    return {SPLITS: "splits.bin"}


_PEAKS = (
    "training_peak_bytes",
    "training_peak_allocator_bytes",
    "training_peak_small_bytes",
)


def _why_not(planning: Planning) -> str:
    if planning.plan is None:
        return f"not planned: {planning.unplanned or 'nothing to plan for'}"
    return "no smaller micro-batch was measured that it could be predicted from"
