"""How long fine-tuning lasts with `epochs: auto`: doubled while the validation loss falls.

The first training makes about 600 updates, under the teacher if there is one. Each further training
makes as many updates as all before it, with a new learning rate schedule and on labels alone,
because a teacher holds back a model that trains for long. Of a classifier the loss has to fall by
what one wrong answer adds: a model whose answers are all right and certain is finished. The length
depends on updates, never on time, so a slow machine gets the same model. docs/prune.md says what it
costs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
import tf_keras as keras

from shrink.base.losses import loss_of
from shrink.base.types import Spec, Specs
from shrink.contract.choices import Choice, Option
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import broadcast_from_chief
from shrink.engine.microbatch import AfterUpdate
from shrink.engine.record import TrainingRecord, joined
from shrink.pruning.masks import Masks
from shrink.stages.context import StageContext
from shrink.stages.prune.choice import validation_losses
from shrink.stages.prune.config import PruneConfig
from shrink.task.task import Task

FIRST_UPDATES, FEWEST_EPOCHS, MOST_EPOCHS = 600, 5, 20
"""Updates of the first training, and the bounds of its epochs."""
MOST_UPDATES = 16 * FIRST_UPDATES
"""A training that would end above this total number of updates is not started."""


_PROVEN = 2.0
"""Standard errors by which a loss has to rise to be called worse."""


def updates_per_epoch(context: StageContext) -> int:
    """Return the number of updates in an epoch."""
    return context.training.batches_in(len(context.dataset.train))


def first_epochs(config: PruneConfig, context: StageContext) -> int:
    """Return `epochs`, or for `auto` the epochs of the first training."""
    if isinstance(config.epochs, int):
        return config.epochs
    wanted = math.ceil(FIRST_UPDATES / max(1, updates_per_epoch(context)))
    return max(config.steps, min(MOST_EPOCHS, max(FEWEST_EPOCHS, wanted)))


def prolong(
    model: keras.Model,
    record: TrainingRecord,
    epochs: int,
    context: StageContext,
    *,
    masks: Sequence[AfterUpdate] = (),
    training: TrainingConfig | None = None,
) -> tuple[TrainingRecord, tuple[Choice, ...]]:
    """Continue to train a model in place; return the record of all trainings, and the choice.

    The last training is the first that does not lower the mean loss on validation examples by the
    standard error of the paired differences and by `least_fall`; none begins where the loss is
    smaller than that. If the last raises the loss, the earlier weights are kept.

    Args:
        record: of the first training.
        epochs: of the first training, unless `patience` ended it early.
        masks: applied after every update; they no longer change.
        training: settings that replace the recipe's.
    """
    for mask in masks:
        if isinstance(mask, Masks):
            mask.settles_after = 0
    training, task = training or context.training, context.task(model)
    objective, records = task.objective(), [record]
    if len(context.dataset.validation) < 2:
        why = "no validation examples to measure whether more epochs help"
        return record, (Choice(key="epochs", value=str(epochs), why=why),)
    per_epoch, losses = updates_per_epoch(context), validation_losses(model, objective, context)
    options = [_option(records, per_epoch, losses)]
    least = least_fall(task, context.dataset.reference.target_spec, len(losses))
    while True:
        total = sum(record.epochs for record in records)
        if records[-1].epochs < epochs:
            why = "training.patience ended it"
            break
        if 2 * total * per_epoch > MOST_UPDATES:
            why = f"twice as many would exceed {MOST_UPDATES:,} updates"
            break
        # All workers follow the chief: their own figures may differ in the last digit.
        if broadcast_from_chief(context.devices, losses.mean() < least):
            why = (
                f"the loss on validation examples is {losses.mean():.2g}, and one wrong answer "
                f"adds at least {least:.2g}"
            )
            break
        before, epochs = model.get_weights(), total
        further = training.model_copy(update={"seed": training.seed + len(records)})
        records.append(context.train(model, objective, epochs, masks, training=further))
        after = validation_losses(model, objective, context)
        options.append(_option(records, per_epoch, after))
        falls = losses - after
        fall, error = float(falls.mean()), float(falls.std(ddof=1)) / math.sqrt(len(falls))
        if better := broadcast_from_chief(context.devices, fall > 0):
            losses = after
        else:
            model.set_weights(before)
        if not broadcast_from_chief(context.devices, fall > max(error, least)):
            limit = "standard error" if error >= least else "one wrong answer adds at least"
            kept = "" if better else ", so the weights before them were kept"
            why = (
                f"the last {epochs * per_epoch:,} changed the loss on validation examples by "
                f"{-fall:+.2g} ({limit} {max(error, least):.2g}){kept}"
            )
            break
    record = joined(records)
    value = f"{record.epochs} ({record.epochs * per_epoch:,} updates)"
    return record, (Choice(key="epochs", value=value, why=why, options=tuple(options)),)


@contextlib.contextmanager
def watched(model: keras.Model, context: StageContext) -> Iterator[None]:
    """Warn if the fine-tuning in the block raises a model's mean loss on validation examples.

    It has to rise by more than `_PROVEN` standard errors of the paired differences, and by more
    than `least_fall`.
    """
    if context.planning or len(context.dataset.validation) < 2:
        yield
        return
    task = context.task(model)
    objective = task.objective()
    before = validation_losses(model, objective, context)
    yield
    after = validation_losses(model, objective, context)
    rises = after - before
    error = float(rises.std(ddof=1)) / math.sqrt(len(rises))
    least = least_fall(task, context.dataset.reference.target_spec, len(rises))
    if rises.mean() > max(_PROVEN * error, least):
        context.warn(
            "fine-tuning-harmed",
            f"fine-tuning raised the loss on validation examples from {before.mean():.4g} to "
            f"{after.mean():.4g} (standard error of the difference {error:.2g})",
            "train for longer (epochs: auto), lower the learning rate "
            "(training.optimizer.learning_rate), or leave fine-tuning out (epochs: 0)",
        )


def least_fall(task: Task, target: Specs, count: int) -> float:
    """Return what one wrong answer adds at least to the mean loss of `count` examples.

    The class that a wrong answer prefers to the right one has at least its probability, so that
    the right one has 1/2 at most and the example's cross-entropy is ln 2 at least. 0 for other
    losses, and where an example has several answers.
    """
    if len(task.losses) > 1 or not isinstance(target, Spec):
        return 0.0
    answers = {
        "sparse_categorical_crossentropy": target.shape,
        "binary_crossentropy": target.shape,
        "categorical_crossentropy": target.shape[:-1],
    }
    if math.prod(answers.get(loss_of(task.losses[0]).name, (0,))) != 1:
        return 0.0
    return task.loss_weights[0] * math.log(2) / count


def _option(records: Sequence[TrainingRecord], per_epoch: int, losses: np.ndarray) -> Option:
    made = per_epoch * sum(record.epochs for record in records)
    return Option(value=f"{made:,} updates", figures={"validation_loss": float(losses.mean())})
