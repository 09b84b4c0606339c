"""Measures an existing artifact again: on other examples, or with more metrics."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

from shrink.base.errors import InternalError
from shrink.contract.codec import from_plain
from shrink.contract.events import Send
from shrink.contract.job import StepJob
from shrink.contract.model_source import ModelSource
from shrink.contract.result import Measurement, StepDone, StepResult
from shrink.model.load import load_source
from shrink.run.execute import (
    ARTIFACT,
    SCORES,
    as_notes,
    measured_artifact,
    measured_fields,
)
from shrink.stages.context import StageContext, StageResult


def measure_again(job: StepJob, send: Send) -> StepDone:
    """Return the result that the artifact's step would have given, measured as this job says.

    How the artifact was made, and what its training took, is what its own worker said.
    """
    if job.made is None:
        raise InternalError("there is no artifact to measure", subject=job.name)
    started = time.perf_counter()
    context = StageContext(job, send)
    context.start()
    context.phase("measuring")
    before, source = from_plain(StepResult, job.made.result), job.made.artifact
    artifact = job.work / f"model{source.suffix}"
    shutil.copyfile(source, artifact)
    outcome = _outcome(job, context, before)
    measured, shown = measured_artifact(context, outcome, artifact, job)
    own = [*measured.notes, *(f"data: {note}" for note in context.dataset.notes)]
    earlier = before.measurement or Measurement()
    # The same words come from training, too: what the earlier measuring said is replaced.
    kept = [note for note in before.notes if note not in earlier.notes]
    said = [one for one in before.warnings if one not in earlier.warnings]
    details = shown.filled_by(before.details)
    evaluated = measured.evaluated
    training = {k: v for k, v in before.memory.items() if k.startswith(("training_", "stage_"))}
    result = replace(
        before,
        **measured_fields(job, context, outcome, measured, training),
        notes=as_notes([*kept, *own]),
        warnings=(*said, *context.warnings),
        measurement=Measurement(notes=as_notes(own), warnings=tuple(context.warnings)),
        details=replace(
            details,
            task=evaluated.task,
            confusion=evaluated.confusion,
            by_output=evaluated.by_output,
        ),
        timing=replace(before.timing, measure_s=time.perf_counter() - started),
    )
    return StepDone(result=result, files={ARTIFACT: artifact.name, SCORES: "scores.json"})


_NOT_RUN = "metrics: "


def _outcome(job: StepJob, context: StageContext, before: StepResult) -> StageResult:
    """Return the artifact as its stage handed it back."""
    assert job.made is not None, "the caller has looked"
    path = job.made.artifact
    if path.suffix == ".tflite":
        why = (str(n) for n in before.notes if n.startswith(_NOT_RUN) and not before.metrics)
        operators = before.latency.get("cpu_operators")
        return StageResult(
            tflite=path.read_bytes(),
            cpu_operators=None if operators is None else int(operators),
            not_run=next(why, "").removeprefix(_NOT_RUN),
        )
    trust = job.inputs["model"].trust
    with context.devices.scope():
        return StageResult(model=load_source(ModelSource("keras", path, trust=trust)))
