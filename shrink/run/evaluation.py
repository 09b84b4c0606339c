"""Evaluates an artifact on the test split, or on the validation split in a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from shrink.base.errors import StageError
from shrink.base.figures import LOSS
from shrink.base.losses import ignored_class
from shrink.base.measurement import Note
from shrink.contract.details import Confusion, OutputMetrics
from shrink.contract.details import Task as TaskDetails
from shrink.contract.job import MeasuredOn
from shrink.contract.report import Figures, Guess
from shrink.contract.result import Scores
from shrink.contract.slices import MeasuredSlicing
from shrink.data.config import WHY_NO_METRICS, WHY_NO_TARGETS
from shrink.data.slices import Slicing, slicings_of
from shrink.measure.inference import EXAMPLES
from shrink.stages.context import StageContext, StageResult
from shrink.task.artifact import (
    GUESSED,
    describe_guess,
    evaluate_artifact,
    masks_of,
    sample_inputs,
    ties_note,
    unmasked_notes,
)
from shrink.task.interface import artifact_interface
from shrink.task.resolve import check_values
from shrink.tflite.interpreter import load
from shrink.tflite.lazy import keras
from shrink.tflite.model import read_file


@dataclass(frozen=True)
class Evaluated:
    """What examples tell of an artifact.

    Attributes:
        metrics: by name; none without examples.
        scores: what their intervals are computed from.
        examples: how many; None where there is no data.
        inputs: of a few, to time the artifact with.
        task: None where there is none without data.
        notes: for the report.
        slices: what slices of the examples score.
        confusion: of each output of classes.
        by_output: metrics of each of several outputs.
    """

    metrics: Figures = field(default_factory=dict)
    scores: Scores = field(default_factory=dict)
    examples: int | None = None
    inputs: Sequence[np.ndarray] = ()
    task: TaskDetails | None = None
    notes: Sequence[str] = ()
    slices: tuple[MeasuredSlicing, ...] = ()
    confusion: tuple[Confusion, ...] = ()
    by_output: tuple[OutputMetrics, ...] = ()


def evaluate(
    context: StageContext, outcome: StageResult, tflite: Path, on: MeasuredOn = "test"
) -> Evaluated:
    """Return what the test split, or that of validation, tells of an artifact, run by LiteRT.

    Slices are those of the test split.

    Raises:
        StageError: a metric is not finite.
    """
    model = _keras_model(context, outcome)
    task = context.task(tflite if model is None else model)
    for warning in task.warnings:
        if warning.code.startswith("compiled") and not context.has_recipes_model():
            continue  # about the recipe's model file: the first step has said it
        context.warn(warning.code, warning.message, warning.hint)
    runner = load(tflite)
    artifact_takes = artifact_interface(tflite, task.input_names, runner)
    check_values(task, context.dataset, artifact_takes.ask, artifact_takes.scales)
    evaluation = evaluate_artifact(
        runner,
        context.dataset.test if on == "test" else context.dataset.validation,
        task,
        masks_of(model),
        context.test_slicings if on == "test" else _validation_slicings(context),
    )
    _check_finite(evaluation.metrics, context.name, on)
    return Evaluated(
        evaluation.metrics,
        evaluation.evidence,
        evaluation.examples,
        sample_inputs(artifact_takes.input_names, context.dataset.train, task, EXAMPLES),
        task.described(),
        [
            task.note,
            *(
                Note.about([name], f"not defined on these examples: {why}")
                for name, why in evaluation.undefined.items()
            ),
            *ties_note(evaluation),
            *unmasked_notes(model, read_file(tflite)[0]),
        ],
        tuple(evaluation.sliced.slicings),
        evaluation.confusion,
        tuple(
            OutputMetrics(output=task.outputs[i].name, metrics=metrics)
            for i, metrics in evaluation.by_output.items()
        ),
    )


def _validation_slicings(context: StageContext) -> tuple[Slicing, ...] | None:
    """Return slices where a metric may need them; a choice looks at no others."""
    config = context.data_config
    return slicings_of(context.dataset, "validation", config) if config.slices else None


def not_evaluated(context: StageContext) -> Evaluated:
    """Return why no metric is measured, without data or without targets."""
    why = WHY_NO_METRICS if not context.has_data else WHY_NO_TARGETS
    notes = [f"{what}, as {why}" for what in ("metrics: not measured", "task: none")]
    return Evaluated(notes=notes)


def guess(
    kind: str, context: StageContext, outcome: StageResult, evaluated: Evaluated
) -> Guess | None:
    """Return what guessing would score, of every stage that others may be compared with."""
    if not context.has_targets or (outcome.model is None and kind != "baseline"):
        return None
    known = (name for name in evaluated.metrics if name in GUESSED)
    metric = next(known, next((name for name in evaluated.metrics if name != LOSS), LOSS))
    found = describe_guess(context.dataset, metric, outcome.model)
    outputs = () if evaluated.task is None else evaluated.task.outputs
    # The commonest label may be the one that counts for nothing.
    some_ignored = any(ignored_class(one.loss) is not None for one in outputs if one.loss)
    return replace(found, value=None) if some_ignored else found


def _keras_model(context: StageContext, outcome: StageResult) -> keras.Model | None:
    """Return the Keras model that the figures are of, or that the artifact was made from.

    None where a .tflite file or a SavedModel without layers is all there is.
    """
    if outcome.model is not None:
        return outcome.model
    bare = context.input_path().suffix == ".tflite" or context.input_graph_only()
    return None if bare else context.load()


def _check_finite(metrics: Figures, stage: str, on: MeasuredOn) -> None:
    for name, value in metrics.items():
        if value is not None and not np.isfinite(value):
            raise StageError(f"{name} of the artifact on the {on} split is {value}", subject=stage)
