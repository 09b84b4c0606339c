"""The control of a distillation: the same student, trained as long, without its teacher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import tf_keras as keras

from shrink.base import files
from shrink.base.figures import metric_figure
from shrink.base.intervals import paired_interval
from shrink.contract.training import Training
from shrink.engine.record import TrainingRecord
from shrink.report.control import control_sentence, verdict
from shrink.stages.context import StageContext
from shrink.stages.model_names import fed_like
from shrink.task.artifact import Evaluation, evaluate_artifact, masks_of
from shrink.task.task import Task
from shrink.tflite.convert import convert


@dataclass(frozen=True)
class Control:
    """What the teacher brought.

    Attributes:
        note: a sentence for the report.
        details: metrics of student alone, taught student and teacher, the difference, and what
            it proves.
    """

    note: str
    details: dict[str, Any]


def compare_with_control(
    student: keras.Model,
    initial: Sequence[np.ndarray],
    record: TrainingRecord,
    context: StageContext,
) -> Control:
    """Train the student again without its teacher, and compare both on the test split.

    Nothing is chosen by the comparison: the taught weights are back in the student afterwards.

    Args:
        student: the taught student.
        initial: its weights before it was taught.
        record: how it was taught; the control makes as many updates.
        context: of the stage.
    """
    context.phase("training without the teacher")
    task, taught = context.task(student), student.get_weights()
    own = _evaluate(student, task, context)
    keras.utils.set_random_seed(context.training.seed)
    student.set_weights(initial)
    objective = task.objective()
    context.train(student, objective, record.epochs, training=_as_long(context.training))
    alone = _evaluate(student, task, context)
    student.set_weights(taught)
    teacher = fed_like(context.load("teacher"), context.dataset)
    its_own = _evaluate(teacher, context.task(teacher), context)
    gains = {
        name: paired_interval(
            alone.scores[name].tolist(),
            own.scores[name].tolist(),
            bounds=metric_figure(name).bounds,
        )
        for name in own.scores
    }
    details = {
        "alone": alone.metrics,
        "taught": own.metrics,
        "teacher": its_own.metrics,
        "gain": {name: asdict(gain) for name, gain in gains.items()},
        "verdict": {name: verdict(name, gain) for name, gain in gains.items()},
    }
    name = task.monitor.removeprefix("val_")
    values = (alone.metrics[name], own.metrics[name], its_own.metrics[name])
    note = control_sentence(name, *values, gains[name], record.updates)
    return Control(note, {"control": details})


def _as_long(training: Training) -> Training:
    """Return how the control is trained: to the end, with the best weights where it had those."""
    best = training.restore_best or training.patience is not None
    return replace(training, patience=None, restore_best=best)


def _evaluate(model: keras.Model, task: Task, context: StageContext) -> Evaluation:
    path = context.work / "control.tflite"
    files.write_bytes(path, convert(model, "float32").content)
    return evaluate_artifact(path, context.dataset.test, task, masks_of(model))
