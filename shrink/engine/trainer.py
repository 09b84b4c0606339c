"""A model under training: the trainer with its optimizer, ready for its first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import tf_keras as keras

from shrink.contract.training import Training
from shrink.engine.devices import Devices
from shrink.engine.microbatch import AfterUpdate, MicroBatchTrainer
from shrink.engine.objective import Objective
from shrink.engine.optimizer import build_optimizer
from shrink.engine.planner import BatchPlan
from shrink.engine.randomness import RandomSeeds, stateful_generators

Trainer = TypeVar("Trainer", bound=MicroBatchTrainer)


def build_trainer(
    model: keras.Model,
    objective: Objective,
    config: Training,
    devices: Devices,
    plan: BatchPlan,
    *,
    trainer_class: type[Trainer],
    total_updates: int,
    metrics: Sequence[str] = (),
    after_update: Sequence[AfterUpdate] = (),
) -> Trainer:
    """Return a compiled trainer whose optimizer has its slots.

    Args:
        model: a Keras model that was built inside `devices.scope()`.
        objective: what is minimised.
        config: the optimizer.
        devices: where it runs.
        plan: how the global batch is split.
        trainer_class: what to build.
        total_updates: updates of the whole stage, over which the schedule runs.
        metrics: names of metrics to follow beside the loss.
        after_update: called after every update, in graph.
    """
    with devices.scope():
        trainer = trainer_class(
            model,
            objective,
            metrics,
            micro_batch_size=plan.micro_batch_size,
            most_rows=plan.most_rows,
            never_empty=plan.never_empty,
            after_update=after_update,
        )
        optimizer = build_optimizer(config.optimizer, total_updates=total_updates)
        trainer.compile(optimizer=optimizer)
        trainer.in_order = devices.in_order
        # Slots exist before the first step, which would else be the one with the highest peak.
        optimizer.build(model.trainable_variables)
        objective.begin(optimizer.iterations, total_updates)
        if stateful_generators(model):
            trainer.seeds = RandomSeeds(config.seed)
    return trainer
