"""Measurements of an artifact: sizes, memory, latency and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from shrink.base.measurement import Measured, reasons
from shrink.contract.job import StepJob
from shrink.contract.report import Figures
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
    """Return the figures of an artifact.

    Args:
        context: of the stage.
        outcome: what the stage made.
        artifact: its file.
        tflite: the file, or its float32 conversion.
        job: says which examples it is measured on; on those of validation, what a choice needs:
            metrics, sizes, arena, and latency if it is asked for.
        compressed: what gzip makes of the artifact, in a thread that ends before times are taken.

    Raises:
        ShrinkError: it cannot be run on the examples, or a metric is not finite.
    """
    if outcome.not_run:
        return _not_measured(outcome, artifact, compressed)
    whole = job.measured_on == "test"
    evaluated = (
        evaluate(context, outcome, tflite, job.measured_on)
        if context.has_targets
        else not_evaluated(context)
    )
    size, arena = measure_sizes(artifact, tflite, outcome.model, compressed), arena_bytes(tflite)
    memory = {"arena_bytes": arena, "arena_estimate_bytes": Measured(arena.estimate)}
    times: dict[str, Measured[float]] = {}
    about: Figures = {}
    if whole or job.timed:
        run = measure_inference(tflite, inputs=evaluated.inputs)
        times = {"p50_ms": run.p50_ms, "p90_ms": run.p90_ms}
    if whole:
        about = {"threads": run.threads, "examples": run.examples}
        memory = {
            "inference_peak_bytes": run.peak_bytes,
            **memory,
            "arena_32_bytes": arena.estimate_32,
            "arena_32_reference_bytes": arena.estimate_32_reference,
        }
    notes = [*evaluated.notes, *reasons({**times, **memory, **size})]
    return ArtifactFigures(
        figure_values(size),
        figure_values(memory),
        {**figure_values(times), **about, **_placed(outcome)},
        evaluated,
        [*notes, *(zeros_note(size, tflite) if whole else ())],
    )


def _not_measured(outcome: StageResult, artifact: Path, compressed: Future[int]) -> ArtifactFigures:
    """Return the sizes of an artifact that nothing here runs, and why there is no more."""
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
    evaluated = Evaluated(notes=told)
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
