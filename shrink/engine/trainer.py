"""Optimizers, their learning rate schedules, and a trainer that is ready for its first step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras as keras

from shrink.engine.config import OptimizerConfig
from shrink.engine.microbatch import MicroBatchTrainer, TrainingSetup
from shrink.engine.operation_order import one_by_one
from shrink.engine.planner import BatchPlan
from shrink.engine.recovery import Retries

DECAYS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "constant": tf.ones_like,
    "cosine": lambda progress: 0.5 * (1.0 + tf.cos(math.pi * progress)),
    "exponential": lambda progress: 0.01**progress,
    "step": lambda progress: tf.where(progress < 0.5, 1.0, tf.where(progress < 0.75, 0.1, 0.01)),
}
"""Factor on the learning rate by name, from the progress in [0, 1] after the warm-up."""


class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise to the learning rate, then a decay over the updates that are left.

    Cosine: Loshchilov & Hutter (2017), SGDR, eq. 5 without restarts. The first of `w` warm-up
    updates has 1 / (w + 1) of the learning rate, so that no update is spent on a rate of 0.

    Args:
        learning_rate: at the start of the decay.
        decay: a key of `DECAYS`.
        warmup_updates: updates before the learning rate is reached.
        total_updates: all updates of the stage, with those of the warm-up.
    """

    def __init__(
        self, learning_rate: float, decay: str, warmup_updates: int, total_updates: int
    ) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.decay = decay
        self.warmup_updates = warmup_updates
        self.total_updates = total_updates

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the learning rate, float32 (), of the update with this index, from 0."""
        step = tf.cast(step, tf.float32)
        warmup = float(self.warmup_updates)
        rising = (step + 1.0) / (warmup + 1.0)
        left = max(1.0, self.total_updates - warmup)
        falling = DECAYS[self.decay](tf.clip_by_value((step - warmup) / left, 0.0, 1.0))
        return self.learning_rate * tf.where(step < warmup, rising, falling)

    def get_config(self) -> dict[str, object]:
        """Return the constructor's arguments."""
        return {
            "learning_rate": self.learning_rate,
            "decay": self.decay,
            "warmup_updates": self.warmup_updates,
            "total_updates": self.total_updates,
        }


OPTIMIZERS: Mapping[str, type[keras.optimizers.Optimizer]] = {
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "sgd": keras.optimizers.SGD,
    "rmsprop": keras.optimizers.RMSprop,
    "adagrad": keras.optimizers.Adagrad,
    "nadam": keras.optimizers.Nadam,
    "adamax": keras.optimizers.Adamax,
    "lion": keras.optimizers.Lion,
}
_SCHEDULING = {"name", "learning_rate", "schedule", "warmup"}


def build_optimizer(config: OptimizerConfig, total_updates: int) -> keras.optimizers.Optimizer:
    """Return a tf-keras optimizer; call it inside the scope of the devices.

    Under the global policy `mixed_float16` it comes wrapped in a `LossScaleOptimizer` with a
    dynamic scale (Micikevicius et al. 2018, section 3.2).

    Args:
        config: what the recipe says; arguments left out keep tf-keras' defaults.
        total_updates: updates of the whole stage, over which the schedule runs.
    """
    optimizer_class = OPTIMIZERS[config.name]
    settings = {name: value for name, value in vars(config).items() if value is not None}
    arguments = {name: value for name, value in settings.items() if name not in _SCHEDULING}
    rate: float | WarmupDecay = config.learning_rate
    warmup_updates = round(config.warmup * total_updates)
    if config.schedule != "constant" or warmup_updates:
        rate = WarmupDecay(rate, config.schedule, warmup_updates, total_updates)
    # Else every weight's update is compiled where there is a GPU, again with every new graph.
    optimizer = optimizer_class(learning_rate=rate, jit_compile=False, **arguments)
    apply = optimizer.apply_gradients
    # Here, for a scaled loss has the update in a branch, which is a graph of its own.
    optimizer.apply_gradients = lambda *pairs, **options: one_by_one(
        lambda: apply(*pairs, **options)
    )
    if keras.mixed_precision.global_policy().name == "mixed_float16":
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def build_trainer(
    setup: TrainingSetup,
    plan: BatchPlan,
    *,
    total_updates: int,
    retries: Retries | None = None,
) -> MicroBatchTrainer:
    """Return a compiled trainer whose optimizer has its slots.

    Args:
        setup: what is trained.
        plan: how the global batch is split.
        total_updates: updates of the whole stage, over which the schedule runs.
        retries: how a step that runs out of memory is repeated; by default it is an error.
    """
    with setup.devices.scope():
        trainer = MicroBatchTrainer(setup, plan, retries)
        optimizer = build_optimizer(setup.config.optimizer, total_updates=total_updates)
        trainer.compile(optimizer=optimizer, jit_compile=False)
        # Slots exist before the first step, which would else be the one with the highest peak.
        optimizer.build(setup.model.trainable_variables)
    return trainer
