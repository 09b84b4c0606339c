"""How long fine-tuning lasts with `epochs: auto`: doubled while the validation loss falls.

The first training makes about 600 updates, under the teacher if there is one. Each further training
makes as many updates as all before it, with a new learning rate schedule and on labels alone,
because a teacher holds back a model that trains for long. The length depends on updates, never on
time, so a slow machine gets the same model. docs/prune.md says what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tf_keras as keras

from shrink.contract.choices import Choice, Option
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import broadcast_from_chief
from shrink.engine.microbatch import AfterUpdate
from shrink.engine.record import TrainingRecord, joined
from shrink.pruning.masks import Masks
from shrink.stages.context import StageContext
from shrink.stages.prune.choice import validation_losses
from shrink.stages.prune.config import PruneConfig

FIRST_UPDATES, FEWEST_EPOCHS, MOST_EPOCHS = 600, 5, 20
"""Updates of the first training, and the bounds of its epochs."""
MOST_UPDATES = 16 * FIRST_UPDATES
"""A training that would end above this total number of updates is not started."""


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
    standard error of the paired differences. If it raises the loss, the earlier weights are kept.

    Args:
        record: of the first training.
        epochs: of the first training, unless `patience` ended it early.
        masks: applied after every update; they no longer change.
        training: settings that replace the recipe's.
    """
    for mask in masks:
        if isinstance(mask, Masks):
            mask.settles_after = 0
    training, objective = training or context.training, context.task(model).objective()
    records = [record]
    if len(context.dataset.validation) < 2:
        why = "there are no validation examples to measure whether more helps"
        return record, (Choice(key="epochs", value=str(epochs), why=why),)
    per_epoch, losses = updates_per_epoch(context), validation_losses(model, objective, context)
    options = [_option(records, per_epoch, losses)]
    while True:
        total = sum(record.epochs for record in records)
        if records[-1].epochs < epochs:
            why = "training.patience ended it"
            break
        if 2 * total * per_epoch > MOST_UPDATES:
            why = f"twice as many would exceed {MOST_UPDATES:,} updates"
            break
        before, epochs = model.get_weights(), total
        further = training.model_copy(update={"seed": training.seed + len(records)})
        records.append(context.train(model, objective, epochs, masks, training=further))
        after = validation_losses(model, objective, context)
        options.append(_option(records, per_epoch, after))
        falls = losses - after
        fall, error = float(falls.mean()), float(falls.std(ddof=1)) / math.sqrt(len(falls))
        # All workers follow the chief: their own figures may differ in the last digit.
        if better := broadcast_from_chief(context.devices, fall > 0):
            losses = after
        else:
            model.set_weights(before)
        if not broadcast_from_chief(context.devices, fall > error):
            kept = "" if better else ", so the weights before them were kept"
            why = (
                f"the last {epochs * per_epoch:,} changed the loss on validation examples by "
                f"{-fall:+.2g} (standard error {error:.2g}){kept}"
            )
            break
    record = joined(records)
    value = f"{record.epochs} ({record.epochs * per_epoch:,} updates)"
    return record, (Choice(key="epochs", value=value, why=why, options=tuple(options)),)


def _option(records: Sequence[TrainingRecord], per_epoch: int, losses: np.ndarray) -> Option:
    made = per_epoch * sum(record.epochs for record in records)
    return Option(value=f"{made:,} updates", figures={"validation_loss": float(losses.mean())})
