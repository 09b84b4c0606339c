"""Measurements of an artifact: sizes, memory, latency and metrics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from shrink.base import files
from shrink.base.errors import StageError
from shrink.base.figures import LOSS, figures_of
from shrink.base.host import machine
from shrink.base.losses import ignored_class
from shrink.base.measurement import Measured, Note, figure_values, reasons
from shrink.contract.details import Details, OutputMetrics
from shrink.contract.job import StepJob
from shrink.contract.report import Figures, Guess, MeasuredAt
from shrink.contract.result import StepResult, scores_to_plain
from shrink.data.config import WHY_NO_METRICS, WHY_NO_TARGETS
from shrink.data.examples import Examples
from shrink.data.slices import Slicing, slicings_of
from shrink.measure.inference import EXAMPLES, measure_inference
from shrink.measure.layers import layer_table
from shrink.measure.size import (
    file_sizes,
    measure_sizes,
    operator_table,
    zeros_note,
)
from shrink.stages.context import StageContext, StageResult
from shrink.task.artifact import (
    GUESSED,
    clipped_inputs,
    describe_guess,
    evaluate_artifact,
    masks_of,
    sample_inputs,
    ties_note,
    unmasked_notes,
)
from shrink.task.interface import artifact_interface
from shrink.task.resolve import check_values
from shrink.tflite.arena import arena_of
from shrink.tflite.interpreter import Runner, load
from shrink.tflite.lazy import keras
from shrink.tflite.model import Subgraph, read, read_file
from shrink.tflite.suitability import state_findings

SCORES_NAME = "scores.json"


_CHECKED_EXAMPLES = 250


def measure(
    context: StageContext, outcome: StageResult, artifact: Path, job: StepJob
) -> StepResult:
    """Return an artifact's figures, with notes and details; write the scores of its examples.

    On validation examples a choice needs metrics, sizes and arena, and latency if the job asks for
    it; on none nothing is measured.

    Args:
        context: of the stage.
        outcome: what the stage made.
        artifact: its file.
        job: says which examples it is measured on.

    Raises:
        ShrinkError: it cannot be converted, or run on the examples, or a metric is not finite.
    """
    at = MeasuredAt(at=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine())
    before, notes = list[str](), [f"data: {note}" for note in context.dataset.notes]
    files.write_text(context.work / SCORES_NAME, "{}")
    if job.measured_on == "nothing":
        return StepResult(notes=as_notes(notes), details=Details(), measured=at)
    tflite = artifact
    if outcome.model is not None:
        from shrink.tflite.convert import convert

        tflite = job.work / "float32.tflite"
        conversion = convert(outcome.model, "float32")
        files.write_bytes(tflite, conversion.content)
        before = list(conversion.notes)
    found = (
        _not_measured(outcome, artifact)
        if outcome.not_run
        else _figures(context, outcome, artifact, tflite, job)
    )
    if outcome.cpu_operators is not None:
        found = replace(found, latency={**found.latency, "cpu_operators": outcome.cpu_operators})
    content = tflite.read_bytes()
    # A compiled file keeps the inputs and outputs of the file that it was made from.
    usage = context.usage(context.input_path().read_bytes() if outcome.not_run else content)
    context.warn_of_data(usage)
    model = outcome.model
    details = replace(
        found.details or Details(),
        interface=usage,
        layers=() if model is None else tuple(layer_table(model, content)),
        operators=tuple(operator_table(read(content))) if model is None else (),
    )
    notes = [*before, *found.notes, *notes]
    return replace(found, notes=as_notes(notes), details=details, measured=at)


def _figures(
    context: StageContext,
    outcome: StageResult,
    artifact: Path,
    tflite: Path,
    job: StepJob,
) -> StepResult:
    """Return the figures of an artifact that LiteRT runs; `tflite` is it, or its conversion."""
    on_test = job.measured_on == "test"
    inputs: Sequence[np.ndarray] = ()
    if context.has_targets:
        result, inputs = _evaluated(context, outcome, tflite, job)
    else:
        why = WHY_NO_METRICS if not context.has_data else WHY_NO_TARGETS
        if context.has_data and outcome.model is None and job.kind == "baseline":  # a given file
            examples, names = context.dataset.reference, context.dataset.input_names
            if len(names) == len((runner := load(tflite)).input_names):
                _warn_of_clipping(context, read_file(tflite)[0], runner, examples, names)
        result = StepResult(
            notes=as_notes([f"metrics: not measured, as {why}", f"task: none, as {why}"])
        )
    size = measure_sizes(artifact, tflite, outcome.model)
    memory: dict[str, Measured[int]] = {**arena_of(tflite).figures}
    times: dict[str, Measured[float]] = {}
    about: Figures = {}
    if on_test or job.timed:
        run = measure_inference(tflite, inputs=inputs)
        times = {"p50_ms": run.p50_ms, "p90_ms": run.p90_ms}
        about = {"threads": run.threads, "examples": run.examples} if on_test else {}
    if on_test:
        memory = {"inference_peak_bytes": run.peak_bytes, **memory}
    notes = [*result.notes, *reasons({**times, **memory, **size})]
    tried = bool((job.config or {}).get("sparse"))
    return replace(
        result,
        size=figure_values(size),
        memory=figure_values(memory),
        latency={**figure_values(times), **about},
        guess=_guess(job.kind, context, outcome, result) if on_test else None,
        notes=as_notes([*notes, *(zeros_note(size, tflite, tried=tried) if on_test else ())]),
    )


def _warn_of_clipping(
    context: StageContext, graph: Subgraph, runner: Runner, examples: Examples, fed: Sequence[str]
) -> None:
    sample = sample_inputs(runner.input_names, examples, fed, _CHECKED_EXAMPLES)
    for message, hint in clipped_inputs(graph, runner.input_details, sample):
        context.warn("clipped-inputs", message, hint)


def _evaluated(
    context: StageContext, outcome: StageResult, tflite: Path, job: StepJob
) -> tuple[StepResult, Sequence[np.ndarray]]:
    """Return what examples tell of an artifact that LiteRT runs, and inputs to time it with."""
    model = _keras_model(context, outcome)
    task = context.task(tflite if model is None else model)
    for warning in task.warnings:
        if warning.code.startswith("compiled") and not context.has_recipes_model():
            continue  # about the recipe's model file: the first step has said it
        context.warn(warning.code, warning.message, warning.hint)
    runner = load(tflite)
    takes = artifact_interface(tflite, task.input_names, runner)
    check_values(task, context.dataset, takes.ask, takes.scales)
    slicings: tuple[Slicing, ...] | None
    if job.measured_on == "test":
        examples, slicings = context.dataset.test, context.test_slicings
    else:  # slices only where a metric may need them
        examples, config = context.dataset.validation, context.data_config
        slicings = slicings_of(context.dataset, "validation", config) if config.slices else None
    graph = read_file(tflite)[0]
    states: list[str] = []
    if model is None and job.kind == "baseline":  # a given file
        _warn_of_clipping(context, graph, runner, examples, task.input_names)
        states = state_findings(graph)
    evaluation = evaluate_artifact(runner, examples, task, masks_of(model), slicings)
    for name, value in evaluation.metrics.items():
        if value is not None and not np.isfinite(value):
            message = f"{name} of the artifact on the {job.measured_on} split is {value}"
            raise StageError(message, subject=context.name)
    scores = json.dumps(scores_to_plain(evaluation.evidence))
    files.write_text(context.work / SCORES_NAME, scores)
    undefined = (
        Note.about([name], f"not defined on these examples: {why}")
        for name, why in evaluation.undefined.items()
    )
    unmasked = unmasked_notes(model, graph)
    result = StepResult(
        metrics=evaluation.metrics,
        slices=tuple(evaluation.sliced.slicings),
        examples=evaluation.examples,
        notes=as_notes([task.note, *undefined, *ties_note(evaluation), *unmasked, *states]),
        details=Details(
            task=task.described(),
            confusion=evaluation.confusion,
            by_output=tuple(
                OutputMetrics(output=task.outputs[i].name, metrics=metrics)
                for i, metrics in evaluation.by_output.items()
            ),
        ),
    )
    return result, sample_inputs(
        takes.input_names, context.dataset.reference, task.input_names, EXAMPLES
    )


def _guess(
    kind: str, context: StageContext, outcome: StageResult, measured: StepResult
) -> Guess | None:
    """Return the chance level, of every stage that others may be compared with."""
    if not context.has_targets or (outcome.model is None and kind != "baseline"):
        return None
    metrics = measured.metrics
    known = (name for name in metrics if name in GUESSED)
    metric = next(known, next((name for name in metrics if name != LOSS), LOSS))
    found = describe_guess(context.dataset, metric, outcome.model)
    task = measured.details and measured.details.task
    # The commonest label may be the one that counts for nothing.
    losses = [one.loss for one in (task.outputs if task else ()) if one.loss]
    return (
        replace(found, value=None) if any(ignored_class(n) is not None for n in losses) else found
    )


def _keras_model(context: StageContext, outcome: StageResult) -> keras.Model | None:
    """Return the Keras model that the figures are of, or that the artifact was made from.

    None where a .tflite file or a SavedModel without layers is all there is.
    """
    if outcome.model is not None:
        return outcome.model
    bare = context.input_path().suffix == ".tflite" or context.input_graph_only()
    return None if bare else context.load()


def _not_measured(outcome: StageResult, artifact: Path) -> StepResult:
    """Return the sizes of an artifact that nothing here runs, and why there is no more."""
    none = Measured[int](None, outcome.not_run)
    size = {**dict.fromkeys(figures_of("size"), none), **file_sizes(artifact)}
    names = [one for one in figures_of("memory") if one.startswith(("inference_", "arena_"))]
    memory = dict.fromkeys(names, none)
    times = dict.fromkeys(("p50_ms", "p90_ms"), none)
    notes = [f"metrics: {outcome.not_run}", f"task: {outcome.not_run}"]
    return StepResult(
        size=figure_values(size),
        memory=figure_values(memory),
        latency={**figure_values(times), "threads": None, "examples": None},
        notes=as_notes([*notes, *reasons({**times, **memory, **size})]),
    )


def as_notes(sentences: Iterable[str]) -> tuple[Note, ...]:
    """Return sentences as notes, each once."""
    once = dict.fromkeys(sentences)
    return tuple(note if isinstance(note, Note) else Note(note) for note in once)
