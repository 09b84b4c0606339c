"""Fine-tuning of a pruned model, with or without the unpruned model as its teacher."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.base.losses import takes_logits
from shrink.contract.choices import Choice
from shrink.engine.objective import Objective
from shrink.graph.groups import ChannelGraph
from shrink.graph.rebuild import rebuild, weights_of
from shrink.stages.context import StageContext
from shrink.stages.distill.objective import (
    DistillationLoss,
    DistillationObjective,
    hard_loss,
    open_outputs,
    soft_loss,
    teacher_outputs_of,
    temperature_of,
    together_of,
)
from shrink.stages.prune.config import AUTO, PruneConfig
from shrink.task.task import Task


def with_teacher(config: PruneConfig, task: Task) -> tuple[PruneConfig, tuple[Choice, ...]]:
    """Replace `teacher: auto`: by the unpruned model where the task has softened outputs."""
    if config.teacher != AUTO:
        return config, ()
    if config.epochs == 0:
        return config.model_copy(update={"teacher": None}), ()
    losses = list(dict.fromkeys(task.losses))
    if task.detector is not None or (len(losses) == 1 and takes_logits(losses[0])):
        choice = Choice(key="teacher", value="self", why="the task has softened outputs")
        return config.model_copy(update={"teacher": "self"}), (choice,)
    why = f"only classes of one kind have softened outputs, and the loss is {', '.join(losses)}"
    choice = Choice(key="teacher", value="none", why=why)
    return config.model_copy(update={"teacher": None}), (choice,)


@contextlib.contextmanager
def fine_tuning(
    model: keras.Model, unpruned: ChannelGraph, config: PruneConfig, context: StageContext
) -> Iterator[tuple[keras.Model, Objective]]:
    """Yield the model to train and the objective; both are valid inside the context only.

    Args:
        model: the pruned model; the model that is yielded shares its weights.
        unpruned: the teacher, if `config.teacher` is `self`.

    Raises:
        StageError: a teacher for a task without softened outputs.
    """
    task = context.task(model)
    if config.teacher != "self":
        yield model, task.objective()
        return
    if task.detector is None and not takes_logits(task.loss):
        raise StageError(
            f"softened outputs are for classification, and the task's loss is {task.loss}",
            subject=context.name,
            hint="leave out prune.teacher",
        )
    with context.devices.scope():
        teacher = rebuild(unpruned, unpruned.keep(np.array([])), weights_of(unpruned))
        with (
            open_outputs(teacher, task.losses, task.from_logits) as open_teacher,
            open_outputs(model, task.losses, task.from_logits) as learning,
        ):
            distillation_loss = DistillationLoss(
                loss=soft_loss("auto", task.loss),
                temperature=temperature_of(config.temperature, task.losses),
                alpha=config.alpha,
                output_weights=task.loss_weights,
            )
            yield (
                learning,
                DistillationObjective(
                    teacher_outputs_of(open_teacher),
                    hard_loss(task),
                    distillation_loss,
                    outputs=len(model.outputs),
                    together=together_of(task, "auto"),
                ),
            )
