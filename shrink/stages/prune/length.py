"""How long fine-tuning lasts where `epochs` is `auto`: twice as long, while that helps.

The first training has about 600 updates, under the teacher if there is one. Each further training
makes as many updates as all before it, with a learning rate schedule of its own, on labels alone:
a teacher helps at first, and holds back a model that trains for long. Time decides nothing, so the
result does not depend on the machine. `tests.benchmarks.bench_defaults` compares this rule with
others.
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
"""Of the first training: the updates it should have, and the limits of its epochs."""
MOST_UPDATES = 16 * FIRST_UPDATES
"""No further training begins that would end above this number of updates in all."""


def updates_per_epoch(context: StageContext) -> int:
    """Return how many updates a pass over the training examples makes."""
    return math.ceil(len(context.dataset.train) / context.training.global_batch_size)


def first_epochs(config: PruneConfig, context: StageContext) -> int:
    """Return `epochs`, or where it is `auto` the epochs of the first training."""
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
    """Train a model in place after its first training; return the record of all, and the choice.

    A training is the last if it does not lower the mean loss on validation examples by the standard
    error of that difference. If it raises the loss, the weights before it stay.

    Args:
        record: of the first training.
        epochs: that this should have had.
        masks: applied after every update; they no longer change.
        training: in place of the recipe's.
    """
    for mask in masks:
        if isinstance(mask, Masks):
            mask.settles_after = 0
    training, objective = training or context.training, context.task(model).objective()
    records = [record]
    if len(context.dataset.validation) < 2:
        why = "there are no validation examples to tell whether more helps"
        return record, (Choice(key="epochs", value=str(epochs), why=why),)
    per_epoch, losses = updates_per_epoch(context), validation_losses(model, objective, context)
    options = [_option(records, per_epoch, losses)]
    while True:
        total = sum(record.epochs for record in records)
        if records[-1].epochs < epochs:
            why = "training.patience ended it"
            break
        if 2 * total * per_epoch > MOST_UPDATES:
            why = f"twice as many would be more than {MOST_UPDATES:,}"
            break
        before, epochs = model.get_weights(), total
        further = training.model_copy(update={"seed": training.seed + len(records)})
        records.append(context.train(model, objective, epochs, masks, training=further))
        after = validation_losses(model, objective, context)
        options.append(_option(records, per_epoch, after))
        falls = losses - after
        fall, error = float(falls.mean()), float(falls.std(ddof=1)) / math.sqrt(len(falls))
        # All workers do what the chief's figures say: their own may differ in the last digit.
        if better := broadcast_from_chief(context.devices, fall > 0):
            losses = after
        else:
            model.set_weights(before)
        if not broadcast_from_chief(context.devices, fall > error):
            kept = "" if better else ", so the weights before them stay"
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
