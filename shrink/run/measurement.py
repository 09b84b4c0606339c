"""What is measured of an artifact: sizes, memory, latency, and what examples tell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from shrink.base import files
from shrink.base.measurement import Measured, reasons
from shrink.contract.job import StepJob
from shrink.contract.report import Figures
from shrink.contract.result import scores_to_plain
from shrink.measure.inference import measure_inference
from shrink.measure.size import file_sizes, measure_sizes, zeros_note
from shrink.run.evaluation import Evaluated, evaluate, not_evaluated
from shrink.stages.context import StageContext, StageResult
from shrink.tflite.arena import arena_bytes


@dataclass(frozen=True)
class ArtifactFigures:
    """The figures of an artifact by the report's groups, with notes for it."""

    size: Figures
    memory: Figures
    latency: Figures
    evaluated: Evaluated
    notes: Sequence[str]


def measure(
    context: StageContext,
    outcome: StageResult,
    artifact: Path,
    tflite: Path,
    job: StepJob,
    compressed: Future[int],
) -> ArtifactFigures:
    """Return the figures of an artifact, and leave the scores of its examples in `scores.json`.

    Args:
        context: of the stage.
        outcome: what the stage made.
        artifact: its file.
        tflite: the file, or its float32 conversion.
        job: says which examples it is measured on; on those of validation, what a choice needs.
        compressed: what gzip makes of the artifact, in a thread that ends before times are taken.

    Raises:
        ShrinkError: it cannot be run on the examples, or a metric is not finite.
    """
    if outcome.not_run:
        return _not_measured(context, outcome, artifact, compressed)
    if job.measured_on == "validation":
        return _for_a_choice(context, outcome, artifact, tflite, job.timed, compressed)
    evaluated = (
        evaluate(context, outcome, tflite) if context.has_targets else not_evaluated(context)
    )
    files.write_text(context.work / "scores.json", json.dumps(scores_to_plain(evaluated.scores)))
    size = measure_sizes(artifact, tflite, outcome.model, compressed)
    arena, run = arena_bytes(tflite), measure_inference(tflite, inputs=evaluated.inputs)
    times = {"p50_ms": run.p50_ms, "p90_ms": run.p90_ms}
    notes = reasons(
        {
            **times,
            "arena_bytes": arena,
            "arena_32_bytes": arena.estimate_32,
            "arena_32_reference_bytes": arena.estimate_32_reference,
            "inference_peak_bytes": run.peak_bytes,
            **size,
        }
    )
    memory = {
        "inference_peak_bytes": run.peak_bytes.value,
        "arena_bytes": arena.value,
        "arena_estimate_bytes": arena.estimate,
        "arena_32_bytes": arena.estimate_32.value,
        "arena_32_reference_bytes": arena.estimate_32_reference.value,
    }
    return ArtifactFigures(
        figure_values(size),
        memory,
        {
            **figure_values(times),
            "threads": run.threads,
            "examples": run.examples,
            **_placed(outcome),
        },
        evaluated,
        [*evaluated.notes, *notes, *zeros_note(size, tflite)],
    )


def _for_a_choice(
    context: StageContext,
    outcome: StageResult,
    artifact: Path,
    tflite: Path,
    timed: bool,
    compressed: Future[int],
) -> ArtifactFigures:
    """Return what an artifact is chosen by: validation metrics, sizes, arena; latency if asked."""
    evaluated = evaluate(context, outcome, tflite, "validation")
    files.write_text(context.work / "scores.json", json.dumps(scores_to_plain(evaluated.scores)))
    size = measure_sizes(artifact, tflite, outcome.model, compressed)
    arena = arena_bytes(tflite)
    memory = {"arena_bytes": arena.value, "arena_estimate_bytes": arena.estimate}
    times: Figures = {}
    if timed:
        run = measure_inference(tflite, inputs=evaluated.inputs)
        times = {"p50_ms": run.p50_ms.value, "p90_ms": run.p90_ms.value}
    notes = [*evaluated.notes, *reasons({"arena_bytes": arena, **size})]
    return ArtifactFigures(figure_values(size), memory, times, evaluated, notes)


def unmeasured(context: StageContext) -> ArtifactFigures:
    """Return no figures, of an artifact that later stages go on from."""
    files.write_text(context.work / "scores.json", "{}")
    nothing = Evaluated({}, {}, None, (), None, [])
    return ArtifactFigures({}, {}, {}, nothing, [])


def _not_measured(
    context: StageContext, outcome: StageResult, artifact: Path, compressed: Future[int]
) -> ArtifactFigures:
    """Return the sizes of an artifact that nothing here runs, and why there is no more."""
    files.write_text(context.work / "scores.json", "{}")
    none = Measured[int](None, outcome.not_run)
    size = {
        **file_sizes(artifact, compressed),
        **dict.fromkeys(("parameters", "nonzero_parameters", "macs"), none),
    }
    arenas = ("arena_bytes", "arena_estimate_bytes", "arena_32_bytes", "arena_32_reference_bytes")
    memory = dict.fromkeys(("inference_peak_bytes", *arenas), none)
    times = dict.fromkeys(("p50_ms", "p90_ms"), none)
    notes = reasons({**times, **memory, **size})
    told = [f"metrics: {outcome.not_run}", f"task: {outcome.not_run}"]
    evaluated = Evaluated({}, {}, None, (), None, told)
    latency = {**figure_values(times), "threads": None, "examples": None, **_placed(outcome)}
    return ArtifactFigures(
        figure_values(size), figure_values(memory), latency, evaluated, [*told, *notes]
    )


def _placed(outcome: StageResult) -> Figures:
    count = outcome.cpu_operators
    return {} if count is None else {"cpu_operators": count}


def figure_values(figures: Mapping[str, Measured[float]]) -> Figures:
    """Return the values of figures, without why some are None."""
    return {name: figure.value for name, figure in figures.items()}
