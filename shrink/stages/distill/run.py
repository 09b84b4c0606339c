"""The `distill` stage, and its control without a teacher."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import tf_keras as keras

from shrink.base import files
from shrink.base.errors import ModelError, StageError
from shrink.base.figures import metric_figure
from shrink.base.losses import ignored_class, kind_of_loss, takes_logits
from shrink.base.metrics import without_slices
from shrink.contract.details import Control, Details, MetricDelta
from shrink.data.matching import fed_like
from shrink.engine.record import TrainingRecord
from shrink.graph.network import with_losses
from shrink.report.deltas import control_sentence, proven, score_interval
from shrink.stages.context import StageContext, StageResult
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.objective import (
    DistillationLoss,
    DistillationObjective,
    hard_loss,
    logarithm_note,
    open_outputs,
    opened_task,
    soft_loss,
    temperature_choice,
    temperature_of,
    together_of,
)
from shrink.stages.distill.teacher_cache import Shape, shapes_of
from shrink.stages.distill.teacher_usage import adapter_of
from shrink.stages.distill.teaching import (
    check_outputs,
    features_of,
    forget_teacher,
    open_teaching,
    scores_of,
)
from shrink.task.artifact import evaluate_artifact, masks_of
from shrink.task.evaluation import Evaluation
from shrink.task.task import Task
from shrink.tflite.convert import convert


def compare_with_control(
    student: keras.Model,
    initial: Sequence[np.ndarray],
    record: TrainingRecord,
    context: StageContext,
) -> tuple[str, Control]:
    """Train the student again without its teacher, and compare both on the test split.

    Nothing is chosen by the comparison: the distilled weights are back in the student afterwards.

    Args:
        student: the distilled student.
        initial: its weights before.
        record: of its training; the control makes as many updates.
        context: of the stage.

    Returns:
        A sentence for the report, and its figures.
    """
    context.phase("training without the teacher")
    task, distilled = context.task(student), student.get_weights()
    task = replace(task, metrics=without_slices(task.metrics))

    def evaluate(model: keras.Model, task: Task) -> Evaluation:
        path = context.work / "control.tflite"
        files.write_bytes(path, convert(model, "float32").content)
        return evaluate_artifact(path, context.dataset.test, task, masks_of(model))

    own = evaluate(student, task)
    training = context.training
    keras.utils.set_random_seed(training.seed)
    student.set_weights(initial)
    # To the end, as the record's epochs are, with the best weights where the student has them.
    best = training.restore_best or training.patience is not None
    to_the_end = training.model_copy(update={"patience": None, "restore_best": best})
    context.train(student, task.objective(), record.epochs, training=to_the_end)
    alone = evaluate(student, task)
    student.set_weights(distilled)
    teacher = fed_like(context.load("teacher"), context.dataset)
    adapter = adapter_of(teacher, context.teacher_usage("teacher"), context)
    its_own = evaluate(adapter.model(teacher), replace(context.task(teacher), metrics=task.metrics))
    intervals = {
        name: score_interval(alone.evidence.get(name), scores, bounds=metric_figure(name).bounds)
        for name, scores in own.evidence.items()
    }
    gains = {name: gain for name, gain in intervals.items() if gain is not None}
    figures = Control(
        alone={name: alone.defined(name) for name in gains},
        taught={name: own.defined(name) for name in gains},
        teacher={name: its_own.defined(name) for name in gains},
        gain={name: MetricDelta(**asdict(gain)) for name, gain in gains.items()},
        verdict={name: proven(name, gain) for name, gain in gains.items()},
    )
    name = task.monitor.removeprefix("val_")
    values = (alone.defined(name), own.defined(name), its_own.defined(name))
    return control_sentence(name, *values, gains[name], record.updates), figures


def _with_features(student: keras.Model, config: DistillConfig, wanted: Sequence[Shape]) -> Any:
    """Return the model that is trained: the student, with the compared features after its outputs.

    A feature of another width is projected, by a 1x1 convolution or a dense layer without bias
    that is trained beside the student and dropped afterwards (Romero et al. 2015, "FitNets",
    section 2.2).

    Args:
        student: with logits for outputs.
        config: of the stage.
        wanted: shape of each feature of the teacher, without the batch.

    Raises:
        ModelError: a feature has other positions than the teacher's.
    """
    if not config.feature_layers:
        return student
    kind, names = config.feature_loss, tuple(config.feature_layers.values())
    follow = scores_of if kind == "attention_scores" else features_of
    features = follow(student, names, "student")
    for own, shape in zip(shapes_of(features), wanted, strict=True):
        if kind in ("hint", "attention") and own[:-1] != shape[:-1]:
            raise ModelError(
                f"the student's feature has shape {own}, the teacher's {shape}; they may differ in "
                "their last axis alone",
                subject="distill.feature_layers",
                hint="name a pair of layers at the same resolution",
            )
        if kind == "attention_scores" and own != shape:
            raise ModelError(
                f"the student attends from {own[0]} positions to {own[1]}, the teacher from "
                f"{shape[0]} to {shape[1]}",
                subject="distill.feature_layers",
                hint="name a pair of attention layers over the same positions",
            )
    if kind == "hint":
        # A dense layer works on the last axis, as a 1x1 convolution does.
        features = [
            feature
            if feature.shape[-1] == shape[-1]
            else keras.layers.Dense(shape[-1], use_bias=False, dtype="float32")(feature)
            for feature, shape in zip(features, wanted, strict=True)
        ]
    return with_losses(student, keras.Model(student.inputs, [*student.outputs, *features]))


def run(config: DistillConfig, context: StageContext) -> StageResult:
    """Train the student on its teacher's outputs."""
    with contextlib.ExitStack() as held:
        teaching = open_teaching(config, context, held)
        losses = teaching.losses
        forget_teacher()
        student = context.load("model")
        check_outputs(teaching.rows.outputs, student, "student")
        task = context.task(student)
        distillation_loss = distillation_loss_of(config, losses, context.name, task.loss_weights)
        held.enter_context(context.devices.scope())
        opened = held.enter_context(open_outputs(student, losses, task.from_logits))
        logarithm = logarithm_note(opened, "student", config.loss)
        learning = _with_features(opened, config, teaching.rows.features)
        objective = DistillationObjective(
            teaching.teach,
            hard_loss(replace(task, losses=losses)),
            distillation_loss,
            teaching.decode,
            outputs=len(student.outputs),
            together=together_of(task, config.loss),
        )
        initial = student.get_weights()
        record = context.train(
            learning, objective, config.epochs, dataset=teaching.dataset, task=opened_task(task)
        )
    parts = record.replicas * record.accumulation_steps
    if distillation_loss.feature_loss == "relational" and parts > 1:
        why = f"feature_loss relational compares the examples of each of {parts} parts of a batch"
        reasons = (*record.inexact_because, why)
        record = replace(record, exact=False, inexact_because=reasons)
    choices = temperature_choice(config.temperature, losses)
    notes = [*teaching.notes, *logarithm, *(choice.sentence for choice in choices)]
    details = Details(teacher_cache=teaching.cached, choices=choices)
    if config.control:
        note, figures = compare_with_control(student, initial, record, context)
        notes.append(note)
        details = replace(details, control=figures)
    return StageResult(model=student, training=record, notes=notes, details=details)


def distillation_loss_of(
    config: DistillConfig, losses: Sequence[str], stage: str, loss_weights: Sequence[float] = ()
) -> DistillationLoss:
    """Return the teacher's loss, with a loss function and a weight for each output.

    A loss for classes applies to the outputs of classes; other outputs are compared by value.

    Args:
        config: of the stage.
        losses: of the labels, for each output.
        stage: its name, for errors.
        loss_weights: of the labels' losses, and of the teacher's.

    Raises:
        StageError: a loss for classes, and the task has none.
    """
    problem, classes = None, [loss for loss in losses if takes_logits(loss)]
    if config.loss not in ("auto", "output_mse") and not classes:
        problem = f"distill.loss {config.loss} is for classes"
    elif config.loss == "decoupled" and any(kind_of_loss(key) != "classes" for key in classes):
        problem = "distill.loss decoupled needs one target class among several"
    elif config.loss == "decoupled" and any(ignored_class(key) is not None for key in classes):
        problem = (
            "distill.loss decoupled needs a target class everywhere, and ignore_class has none"
        )
    if problem is not None:
        raise StageError(
            f"{problem}, and the task's loss is {', '.join(dict.fromkeys(losses))}",
            subject=stage,
            hint="leave out distill.loss",
        )
    return DistillationLoss(
        loss=tuple(soft_loss(config.loss, loss) for loss in losses),
        temperature=temperature_of(config.temperature, losses),
        alpha=config.alpha,
        beta=config.beta,
        output_weights=tuple(loss_weights),
        feature_loss=config.feature_loss if config.feature_layers else None,
        feature_weight=config.feature_weight,
    )
