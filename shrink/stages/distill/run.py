"""The `distill` stage: a student follows its teacher's outputs and the hard labels."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import tf_keras as keras

from shrink.engine.objective import SupervisedObjective
from shrink.engine.record import TrainingRecord
from shrink.errors import StageError
from shrink.stages.context import StageContext, StageResult
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.control import compare_with_control
from shrink.stages.distill.features import check_positions, with_features
from shrink.stages.distill.objective import DistillationObjective, Guidance
from shrink.stages.distill.teachers import CLOSING, open_outputs
from shrink.stages.distill.teaching import (
    Teaching,
    check_outputs,
    features_of,
    forget_teacher,
    open_teaching,
)


def run(config: DistillConfig, context: StageContext) -> StageResult:
    """Train the student on what its teacher gives."""
    with contextlib.ExitStack() as held:
        teaching = open_teaching(config, context, held)
        loss = teaching.loss
        guidance = guidance_of(config, loss, context.name)
        forget_teacher()
        student = context.load("model")
        check_outputs(teaching.rows.outputs, student, "student")
        task = context.task(student)
        held.enter_context(context.devices.scope())
        opened = held.enter_context(open_outputs(student, loss))
        learning = _with_features(opened, config, teaching)
        objective = DistillationObjective(
            teaching.teach,
            SupervisedObjective(loss, from_logits=True, weights=task.loss_weights),
            guidance,
            teaching.decode,
            outputs=len(student.outputs),
        )
        initial = student.get_weights()
        record = context.train(
            learning, objective, config.epochs, dataset=teaching.dataset, task=task
        )
    record = _honest(record, guidance)
    notes, details = list(teaching.notes), dict(teaching.details)
    if config.control:
        control = compare_with_control(student, initial, record, context)
        notes.append(control.note)
        details |= control.details
    return StageResult(model=student, training=record, notes=notes, details=details or None)


def guidance_of(config: DistillConfig, loss: str, stage: str) -> Guidance:
    """Return how a student is guided, with `auto` resolved for the task's loss.

    Raises:
        StageError: a loss for classes, and the task is another.
    """
    chosen = config.loss
    if chosen == "auto":
        chosen = "kl" if loss in CLOSING else "output_mse"
    problem = _problem(chosen, loss, config)
    if problem is not None:
        raise StageError(
            f"{problem}, and the task's loss is {loss}",
            subject=stage,
            hint="leave out distill.loss and distill.cache_dtype",
        )
    return Guidance(
        loss="bernoulli_kl" if (chosen, loss) == ("kl", "binary_crossentropy") else chosen,
        temperature=config.temperature,
        alpha=config.alpha,
        beta=config.beta,
        output_weights=tuple(config.output_weights),
        feature_loss=config.feature_loss if config.feature_layers else None,
        feature_weight=config.feature_weight,
    )


def _honest(record: TrainingRecord, guidance: Guidance) -> TrainingRecord:
    """Say so where the student depends on how its batches were split."""
    parts = record.replicas * record.accumulation_steps
    if guidance.feature_loss != "relational" or parts == 1:
        return record
    why = f"feature_loss relational compares the examples of each of {parts} parts of a batch"
    return replace(record, exact=False, inexact_because=(*record.inexact_because, why))


def _problem(chosen: str, loss: str, config: DistillConfig) -> str | None:
    """Return why this loss or cache cannot be had, None where it can."""
    if chosen != "output_mse" and loss not in CLOSING:
        return f"distill.loss {chosen} is for classes"
    if loss not in CLOSING or loss == "binary_crossentropy":
        if chosen == "decoupled":
            return "distill.loss decoupled needs one target class among several"
        if config.cache_dtype == "topk":
            return "distill.cache_dtype topk is for one class among several"
    return None


def _with_features(student: keras.Model, config: DistillConfig, teaching: Teaching) -> keras.Model:
    """Return the model that is trained: the student, with features where they are followed."""
    if not config.feature_layers:
        return student
    own = features_of(student, tuple(config.feature_layers.values()), "student")
    wanted = teaching.rows.features
    if config.feature_loss == "hint":
        return with_features(student, own, wanted)
    if config.feature_loss == "attention":
        for feature, shape in zip(own, wanted, strict=True):
            check_positions(feature, shape)
    return keras.Model(student.inputs, [*student.outputs, *own])
