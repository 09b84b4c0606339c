"""Runs the job of a worker: the stage, the artifact, the measurements."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import shutil
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shrink.base import files
from shrink.base.errors import DataError, InternalError, ShrinkError, StageError
from shrink.base.host import host_peak_bytes
from shrink.base.measurement import Measured, figure_values, reasons
from shrink.base.types import JsonObject
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.details import Details
from shrink.contract.events import Send
from shrink.contract.job import CheckModelsJob, Planning, StepJob
from shrink.contract.model_source import ModelSource
from shrink.contract.report import Skipped
from shrink.contract.result import (
    Counts,
    HeldOut,
    Measurement,
    StepDone,
    StepResult,
)
from shrink.contract.trained_range import ModelMetadata
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES
from shrink.data.fingerprint import fingerprint
from shrink.measure.memory import AllocatorPeak, nvml_note
from shrink.model.metadata import write_metadata
from shrink.recipe.plan import BASELINE
from shrink.run.measurement import SCORES_NAME, as_notes, measure
from shrink.stages import find_stage, run_module, stage_code
from shrink.stages.base import StageConfig
from shrink.stages.context import Planned, StageContext, StageResult
from shrink.tflite.lazy import tf

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
    limit = context.training.host_memory_limit
    if limit is not None and host_peak > limit:
        context.warn(
            "host-memory",
            f"the process peaked at {host_peak / 1e6:.0f} MB of resident memory, above its limit "
            f"of {limit / 1e6:.0f} MB",
            "set a smaller training.memory_limit, or data.cache: none",
        )
    if preserved is not None:
        preserved.check(outcome, context)
    stage_s = time.perf_counter() - started
    context.phase("measuring")
    artifact = save_artifact(outcome, context)
    of_stage = len(context.warnings)
    measured = measure(context, outcome, artifact, job)
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
    memory = {**figure_values(training), "stage_host_peak_bytes": host_peak_bytes()}
    notes = [*outcome.notes, *measured.notes, *filter(None, context.import_notes.values())]
    notes += [*reasons(training), *((*record.notes, *record.lost) if record else ())]
    notes += [gpu_note] if gpu_note else []
    dataset, details = context.dataset, measured.details or Details()
    result = replace(
        measured,
        memory={**measured.memory, **memory},
        training=record.described() if record else None,
        skipped=from_plain(tuple[Skipped, ...], to_plain(outcome.skipped)),
        notes=as_notes(notes),
        warnings=tuple(context.warnings),
        measurement=Measurement(notes=measured.notes, warnings=tuple(context.warnings[of_stage:])),
        details=details.filled_by(outcome.details).filled_by(outcome.later and outcome.later()),
        splits=_splits(context),
        stage_s=stage_s,
        devices=context.device_names,
        data=Counts(
            examples={split: len(getattr(dataset, split)) for split in SPLIT_NAMES},
            classes=tuple(dataset.class_names) or None,
        ),
    )
    produced = {ARTIFACT: artifact.name, SCORES: SCORES_NAME, **_membership(context)}
    return StepDone(result=result, files=produced)


def measure_again(job: StepJob, send: Send) -> StepDone:
    """Return the result that the artifact's step would have given, measured as this job says.

    How the artifact was made, and what its training took, is what its own worker said.
    """
    if job.made is None:
        raise InternalError("there is no artifact to measure", subject=job.name)
    context = StageContext(job, send)
    context.start()
    context.phase("measuring")
    before, source = from_plain(StepResult, job.made.result), job.made.artifact
    artifact = job.work / f"model{source.suffix}"
    shutil.copyfile(source, artifact)
    if artifact.suffix == ".tflite":
        why = (str(n) for n in before.notes if n.startswith(_NOT_RUN) and not before.metrics)
        operators = before.latency.get("cpu_operators")
        outcome = StageResult(
            tflite=artifact.read_bytes(),
            cpu_operators=None if operators is None else int(operators),
            not_run=next(why, "").removeprefix(_NOT_RUN),
        )
    else:
        from shrink.model.load import load_source

        with context.devices.scope():
            made = ModelSource("keras", source, trust=job.inputs["model"].trust)
            outcome = StageResult(model=load_source(made))
    measured = measure(context, outcome, artifact, job)
    earlier, warnings = before.measurement or Measurement(), tuple(context.warnings)
    # The same words come from training, too: what the earlier measuring said is replaced.
    notes = [note for note in before.notes if note not in earlier.notes]
    own = replace(before.details or Details(), task=None, confusion=(), by_output=())
    training = {k: v for k, v in before.memory.items() if k.startswith(("training_", "stage_"))}
    result = replace(
        measured,
        memory={**measured.memory, **training},
        training=before.training,
        skipped=before.skipped,
        notes=as_notes([*notes, *measured.notes]),
        warnings=(*(one for one in before.warnings if one not in earlier.warnings), *warnings),
        measurement=Measurement(notes=measured.notes, warnings=warnings),
        details=own.filled_by(measured.details),
        splits=before.splits,
        stage_s=before.stage_s,
        devices=before.devices,
        data=before.data,
    )
    return StepDone(result=result, files={ARTIFACT: artifact.name, SCORES: SCORES_NAME})


_NOT_RUN = "metrics: "


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
    context = StageContext(job, send, planning=True)
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
            test_examples=_test_examples(dataset, context.data_config),
            shared=tuple(dataset.shared()),
            shared_left_out=left,
        )
    if (out := dataset.left_out) is None:
        return held_out
    left_out = {split: out.count(split) for split in SPLIT_NAMES}
    return replace(
        held_out, left_out=left_out, comparable=out.comparable, trained_on=out.trained_on
    )


def _test_examples(dataset: Dataset, config: DataConfig) -> str | None:
    """Return a hash of the test examples with their targets, whatever their order.

    Targets that are no labels are those of the source's content.
    """
    if dataset.membership is None:
        return None
    hashes = np.asarray(dataset.membership().splits["test"], "<u8")
    labels = np.zeros(len(hashes)) if dataset.test.labels is None else dataset.test.labels
    labels = np.asarray(labels, "<i8")
    order = np.lexsort((labels, hashes))
    content = hashes[order].tobytes() + labels[order].tobytes()
    if dataset.test.labels is None and config.source != "python":
        content += fingerprint(config).encode()
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
