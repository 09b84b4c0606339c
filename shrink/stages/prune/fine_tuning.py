"""How a pruned model is fine-tuned: on labels, or under the unpruned model's softened outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.engine.objective import Objective
from shrink.graph.groups import ChannelGraph
from shrink.graph.rebuild import rebuild, weights_of
from shrink.stages.context import StageContext
from shrink.stages.distill.objective import DistillationObjective, Guidance
from shrink.stages.distill.teachers import hard_loss, open_outputs, soft_loss, taught_by
from shrink.stages.prune.config import PruneConfig


@contextlib.contextmanager
def fine_tuning(
    model: keras.Model, unpruned: ChannelGraph, config: PruneConfig, context: StageContext
) -> Iterator[tuple[keras.Model, Objective]]:
    """Yield the model to train and what to minimise; both are of use inside the context only.

    Args:
        model: the pruned model; what is yielded trains its weights.
        unpruned: the teacher, where the recipe wants one.

    Raises:
        StageError: a teacher for a task that has no softened outputs.
    """
    task = context.task(model)
    if config.teacher is None:
        yield model, task.objective()
        return
    if "crossentropy" not in task.loss:
        raise StageError(
            f"softened outputs are for classification, and the task's loss is {task.loss}",
            subject=context.name,
            hint="leave out prune.teacher",
        )
    with context.devices.scope():
        teacher = rebuild(unpruned, unpruned.keep(np.array([])), weights_of(unpruned))
        with (
            open_outputs(teacher, task.losses, task.from_logits) as taught,
            open_outputs(model, task.losses, task.from_logits) as learning,
        ):
            guidance = Guidance(
                loss=soft_loss("auto", task.loss),
                temperature=config.temperature,
                alpha=config.alpha,
            )
            yield learning, DistillationObjective(taught_by(taught), hard_loss(task), guidance)
