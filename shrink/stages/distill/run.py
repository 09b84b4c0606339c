"""Distillation of a teacher into a student."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tf_keras as keras

from shrink.base.errors import ModelError, StageError
from shrink.engine.record import TrainingRecord
from shrink.graph.network import with_losses
from shrink.stages.context import StageContext, StageResult
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.control import compare_with_control
from shrink.stages.distill.distillation_examples import Shape, shapes_of
from shrink.stages.distill.objective import DistillationLoss, DistillationObjective
from shrink.stages.distill.teachers import (
    FINAL_ACTIVATIONS,
    hard_loss,
    logarithm_note,
    open_outputs,
    soft_loss,
)
from shrink.stages.distill.teaching import (
    Teaching,
    check_outputs,
    features_of,
    forget_teacher,
    open_teaching,
)

L = keras.layers


def with_features(model: keras.Model, features: Sequence[Any], wanted: Sequence[Shape]) -> Any:
    """Return the model with features after its outputs, each projected to the wanted width.

    A projection is a 1x1 convolution or a dense layer without bias, trained beside the student
    and thrown away afterwards (Romero et al. 2015, "FitNets", section 2.2).

    Args:
        model: the student.
        features: tensors of it.
        wanted: shape of each feature of the teacher, without the batch.

    Raises:
        ModelError: a feature has other positions than the teacher's.
    """
    pairs = zip(features, wanted, strict=True)
    fitted = [_fit(f, shape) for f, shape in pairs]
    return with_losses(model, keras.Model(model.inputs, [*model.outputs, *fitted]))


def check_positions(feature: Any, wanted: Shape) -> None:
    """Raise `ModelError` unless two features differ in their channels alone."""
    (own,) = shapes_of([feature])
    if own[:-1] != wanted[:-1]:
        raise ModelError(
            f"the student's feature has shape {own}, the teacher's {wanted}; they may differ in "
            "their last axis alone",
            subject="distill.feature_layers",
            hint="name a pair of layers at the same resolution",
        )


def _fit(feature: Any, wanted: Shape) -> Any:
    check_positions(feature, wanted)
    if feature.shape[-1] == wanted[-1]:
        return feature
    # A dense layer works on the last axis, as a 1x1 convolution does.
    return L.Dense(wanted[-1], use_bias=False, dtype="float32")(feature)


_ONE_CLASS = frozenset({"sparse_categorical_crossentropy", "categorical_crossentropy"})


def run(config: DistillConfig, context: StageContext) -> StageResult:
    """Train the student on what its teacher gives."""
    with contextlib.ExitStack() as held:
        teaching = open_teaching(config, context, held)
        losses = teaching.losses
        distillation_loss = distillation_loss_of(config, losses, context.name)
        forget_teacher()
        student = context.load("model")
        check_outputs(teaching.rows.outputs, student, "student")
        task = context.task(student)
        held.enter_context(context.devices.scope())
        opened = held.enter_context(open_outputs(student, losses, task.from_logits))
        said = logarithm_note(opened, "student", config.loss)
        learning = _with_features(opened, config, teaching)
        objective = DistillationObjective(
            teaching.teach,
            hard_loss(replace(task, losses=losses)),
            distillation_loss,
            teaching.decode,
            outputs=len(student.outputs),
        )
        initial = student.get_weights()
        record = context.train(
            learning, objective, config.epochs, dataset=teaching.dataset, task=task
        )
    record = _honest(record, distillation_loss)
    notes, details = [*teaching.notes, *said], dict(teaching.details)
    if config.control:
        control = compare_with_control(student, initial, record, context)
        notes.append(control.note)
        details |= control.details
    return StageResult(model=student, training=record, notes=notes, details=details or None)


def distillation_loss_of(
    config: DistillConfig, losses: Sequence[str], stage: str
) -> DistillationLoss:
    """Return how a student is guided, with a loss for each output.

    A loss of classes is for the outputs of classes; all others follow their teacher's values.

    Raises:
        StageError: a loss for classes, and the task has none.
    """
    weights = config.output_weights
    if weights and len(weights) != len(losses):
        raise StageError(
            f"distill.output_weights has {len(weights)} numbers for {len(losses)} outputs",
            subject=stage,
            hint="give one for each output, in the model's order",
        )
    problem = _problem(config, losses)
    if problem is not None:
        raise StageError(
            f"{problem}, and the task's loss is {', '.join(dict.fromkeys(losses))}",
            subject=stage,
            hint="leave out distill.loss and distill.cache_dtype",
        )
    return DistillationLoss(
        loss=tuple(soft_loss(config.loss, loss) for loss in losses),
        temperature=config.temperature,
        alpha=config.alpha,
        beta=config.beta,
        output_weights=tuple(weights),
        feature_loss=config.feature_loss if config.feature_layers else None,
        feature_weight=config.feature_weight,
    )


def _honest(record: TrainingRecord, distillation_loss: DistillationLoss) -> TrainingRecord:
    """Say so where the student depends on how its batches were split."""
    parts = record.replicas * record.accumulation_steps
    if distillation_loss.feature_loss != "relational" or parts == 1:
        return record
    why = f"feature_loss relational compares the examples of each of {parts} parts of a batch"
    return replace(record, exact=False, inexact_because=(*record.inexact_because, why))


def _problem(config: DistillConfig, losses: Sequence[str]) -> str | None:
    """Return why this loss or cache cannot be had, None where it can."""
    classes = [loss for loss in losses if loss in FINAL_ACTIVATIONS]
    if config.loss not in ("auto", "output_mse") and not classes:
        return f"distill.loss {config.loss} is for classes"
    if config.loss == "decoupled" and "binary_crossentropy" in classes:
        return "distill.loss decoupled needs one target class among several"
    if config.cache_dtype == "topk" and not _ONE_CLASS.issuperset(losses):
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
    return with_losses(student, keras.Model(student.inputs, [*student.outputs, *own]))
