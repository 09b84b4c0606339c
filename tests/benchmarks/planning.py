"""Training of some steps in a fresh process, how long each takes, and the planner's predictions."""

from __future__ import annotations

import time
from typing import Any

import tf_keras as keras

from shrink.data.pipeline import training_batches
from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.engine.devices import Devices, open_devices
from shrink.engine.microbatch import TrainingSetup
from shrink.engine.objective import SupervisedObjective
from shrink.engine.planner import BatchPlan, predict
from shrink.engine.probe import TrainingStep, ZeroExamples
from shrink.engine.trainer import build_trainer
from shrink.measure.training_peak import TrainingPeak
from tests.benchmarks.architectures import build, loss_of, specs

STEPS = 8


class StepClock(keras.callbacks.Callback):
    """Notes how many seconds each step takes."""

    def __init__(self) -> None:
        super().__init__()
        self.step_s: list[float] = []
        self._began = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.step_s.append(time.perf_counter() - self._began)


def train(
    architecture: str,
    optimizer: str,
    batch_size: int,
    memory_limit: int | None,
    micro_batch_size: int,
) -> int | None:
    """Return the allocator's peak of training in bytes; out of memory is an error."""
    config, devices, model, examples = _setup(architecture, optimizer, batch_size, memory_limit)

    batches = training_batches(
        examples, global_batch_size=batch_size, seed=0, first_step=0, last_step=STEPS
    )
    trainer = build_trainer(
        TrainingSetup(
            model, SupervisedObjective(loss_of(architecture), from_logits=True), config, devices
        ),
        BatchPlan(1, batch_size, micro_batch_size, never_empty=True),
        total_updates=STEPS,
    )
    memory = TrainingPeak(devices.device_names)
    memory.reset()
    trainer.fit(batches, epochs=1, steps_per_epoch=STEPS, verbose=0)
    return memory.parts().allocator


def predicted(architecture: str, optimizer: str) -> list[tuple[int, int, int]]:
    """Return micro-batch size, predicted and measured peak of one process, in batches of 512."""
    config, devices, model, examples = _setup(architecture, optimizer, 512, 4_000_000_000)
    objective = SupervisedObjective(loss_of(architecture), from_logits=True)
    step = TrainingStep(TrainingSetup(model, objective, config, devices), examples)
    probed = {size: step.looped_peak(size) for size in (8, 16, 32, 64, 128, 256)}
    return [(size, predict(probed, size) or 0, probed[size]) for size in (32, 64, 128, 256)]


def _setup(
    architecture: str, optimizer: str, batch_size: int, memory_limit: int | None
) -> tuple[TrainingConfig, Devices, Any, ZeroExamples]:
    config = TrainingConfig(
        global_batch_size=batch_size,
        memory_limit=memory_limit,
        optimizer=OptimizerConfig.model_validate({"name": optimizer}),
    )
    devices = open_devices(config)
    keras.utils.set_random_seed(0)
    with devices.scope():
        model = build(architecture)
    return config, devices, model, ZeroExamples(*specs(architecture, model), batch_size)
