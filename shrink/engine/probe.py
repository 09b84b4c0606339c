"""Peak memory of a stage's own training step, from a few steps on batches of zeros."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from shrink.data.dataset import Dataset, Examples
from shrink.data.pipeline import training_batches
from shrink.engine.accumulate import Batch
from shrink.engine.batch_norm import batch_norm_mode
from shrink.engine.batch_plan import BatchPlan, plan_batches
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices
from shrink.engine.microbatch import AfterUpdate, MicroBatchTrainer
from shrink.engine.objective import Objective
from shrink.engine.planner import (
    Floor,
    Plan,
    cannot_fit,
    choose,
    predict,
    search,
    usable,
)
from shrink.engine.recompute import recomputed
from shrink.engine.sharding import distribute_batches
from shrink.engine.synthetic import ZeroExamples
from shrink.engine.trainer import build_trainer
from shrink.errors import ResourceError
from shrink.measure.memory import AllocatorPeak

_STEPS = 3
_REFILL_S = 0.1
"""Time for the batches that wait to be there again."""
_ENDLESS = 1 << 40
_COUNTED_BYTES = 1 << 18
"""The allocator of a CPU does not count tensors smaller than this."""


class _ProbedTrainer(MicroBatchTrainer):
    """Goes through two micro-batches of each batch: those after them hold as much."""

    def stop_looping(self) -> Any:
        """Return the function of an iterator that takes each batch whole."""
        self._looped = False
        return self.make_train_function(force=True)

    def rows_of(self, batch: Batch, micro_batch_size: Any) -> Any:
        return tf.minimum(batch.rows, 2 * micro_batch_size)


class MicroBatchProbe:
    """Steps in micro-batches, beside a whole resident global batch; traced once.

    Args:
        step: the training step.
    """

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        self._batches = step.batches(step.plan.most_rows)
        self._held = 0

    @property
    def floor(self) -> Floor:
        """Resident bytes and accumulated gradients; the update may hold two more of these."""
        gradients = self._step.gradient_bytes
        return Floor(low=self._held + gradients, slack=2 * gradients)

    def peak(self, size: int) -> int:
        """Return the peak, in bytes, of steps in micro-batches of `size`."""
        self._step.use_loop(size)
        peak = self._step.measure(self._batches)
        time.sleep(_REFILL_S)
        self._held = max(self._held, self._step.held())
        return peak


class WholeBatchProbe:
    """Steps whose batch is one micro-batch, which need neither loop nor accumulators."""

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        self.floor = Floor(low=step.static_bytes)

    def peak(self, size: int) -> int:
        """Return the peak, in bytes, of steps on `size` examples per replica."""
        self._step.use_no_loop()
        return self._step.measure(self._step.batches(size))


class TrainingStep:
    """The real training step of a stage, on zeros.

    Args:
        model: a Keras model that was built inside `devices.scope()`.
        examples: what shall be trained on; only their number and specification matter.
        objective: what is minimised.
        config: batch, precision and optimizer.
        devices: where it runs.
        metrics: names of metrics to follow beside the loss.
        after_update: called after every update, in graph.
        never_empty: whether every replica has an example in every batch.

    Raises:
        ResourceError: the allocator keeps no statistics.
    """

    def __init__(
        self,
        model: Any,
        examples: Examples,
        objective: Objective,
        config: TrainingConfig,
        devices: Devices,
        *,
        metrics: Sequence[str] = (),
        after_update: Sequence[AfterUpdate] = (),
        never_empty: bool = True,
    ) -> None:
        self.plan = plan_batches(config, devices.replicas, len(examples), 0)
        self.never_empty = never_empty
        self._examples, self._devices = examples, devices
        self._memory = AllocatorPeak(devices.device_names)
        if self._memory.note:
            raise ResourceError(self._memory.note, subject="training.memory_limit")
        rows = BatchPlan(1, self.plan.most_rows, 1, never_empty)
        self.trainer = build_trainer(
            model,
            objective,
            config,
            devices,
            rows,
            trainer_class=_ProbedTrainer,
            total_updates=_ENDLESS,
            metrics=metrics,
            after_update=after_update,
        )
        # As in a real run, each step keeps what it takes to be made again; but it is not.
        self.trainer.replay = _give_up
        self._function: Any = self.trainer.make_train_function()
        self._loops = True
        self.static_bytes = self.held()

    @property
    def on_gpu(self) -> bool:
        """Whether the devices are GPUs."""
        return self._devices.on_gpu

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one gradient of each weight, as the allocator counts."""
        return counted_bytes(self.trainer.model.trainable_variables, on_gpu=self.on_gpu)

    def batches(self, rows: int) -> Iterator[Any]:
        """Return an endless iterator over global batches of `rows` examples per replica."""
        size = min(rows * self._devices.replicas, len(self._examples))
        zeros = ZeroExamples.like(self._examples, size)
        batches = training_batches(
            zeros, global_batch_size=size, seed=0, first_step=0, last_step=_ENDLESS
        )
        return iter(distribute_batches(batches, self._devices))

    def use_loop(self, micro_batch_size: int) -> None:
        """Take micro-batches of this size from now on."""
        self._loops = True
        self.trainer.set_micro_batch_size(micro_batch_size)

    def use_no_loop(self) -> None:
        """Take each batch whole from now on."""
        if self._loops:
            self._loops = False
            self._function = self.trainer.stop_looping()

    def measure(self, batches: Iterator[Any]) -> int:
        """Return the peak, in bytes, of a few steps after one that may trace.

        Raises:
            ResourceError: out of memory.
        """
        self._function(batches)
        self._memory.reset()
        for _ in range(_STEPS):
            self._function(batches)
        return self._memory.peak() or 0

    def held(self) -> int:
        """Return what the allocator holds between steps, in bytes."""
        return self._memory.held() or 0


def _give_up(step: int) -> Any:
    raise ResourceError("out of memory in a probe", subject="training.micro_batch_size")


def counted_bytes(tensors: Sequence[Any], *, on_gpu: bool) -> int:
    """Return the bytes of tensors or variables that the allocator's statistics count."""
    sizes = [tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors]
    return sum(size for size in sizes if on_gpu or size >= _COUNTED_BYTES)


def plan_training(
    model: Any,
    dataset: Dataset,
    *,
    objective: Objective,
    config: TrainingConfig,
    devices: Devices,
    metrics: Sequence[str] = (),
    after_update: Sequence[AfterUpdate] = (),
) -> Plan:
    """Return the largest micro-batch that fits `config.memory_limit`, with the peak to expect.

    Args:
        model: a Keras model that was built inside `devices.scope()`; its weights change.
        dataset: only its sizes and specifications matter.
        objective: what is minimised.
        config: batch, precision, optimizer and limit.
        devices: where it runs.
        metrics: names of metrics to follow beside the loss.
        after_update: called after every update, in graph.

    Raises:
        ResourceError: not even a micro-batch of one example fits.
    """
    examples, checks = len(dataset.train), len(dataset.validation)
    wanted = plan_batches(config, devices.replicas, examples, checks)
    with batch_norm_mode(model, config.batch_norm):
        step = TrainingStep(
            model,
            dataset.train,
            objective,
            config,
            devices,
            metrics=metrics,
            after_update=after_update,
            never_empty=wanted.never_empty,
        )
        with recomputed(model, config.recompute, step.trainer.seeds):
            return plan_step(step, config.memory_limit)


def plan_step(step: TrainingStep, limit: int | None) -> Plan:
    """Return the plan of a training step; see `plan_training`."""
    least = step.static_bytes + step.gradient_bytes
    if limit is not None and least > usable(limit):
        raise cannot_fit(limit, least, levers(step))
    probe, rows = MicroBatchProbe(step), step.plan.most_rows
    # A batch that is taken whole needs no loop: its peak is another curve, below this one.
    largest = _power_below(rows) if step.never_empty and rows > 1 else rows
    probed = search(probe, largest, limit)
    plan = choose(probed, probe.floor, limit)
    if step.never_empty and (plan is None or plan.micro_batch_size == largest):
        plan = _plan_whole(step, limit, predict(probed, rows, probe.floor)) or plan
    if plan is None:
        least = min(probed.values(), default=least)
        raise cannot_fit(limit or 0, least, levers(step, least, probe.floor))
    return plan


def _power_below(rows: int) -> int:
    """Return the largest power of two below a number of rows, at least 1."""
    return 1 << max(0, (rows - 1).bit_length() - 1)


def _plan_whole(step: TrainingStep, limit: int | None, in_loop: int | None) -> Plan | None:
    """Return the plan of one micro-batch per step, if it fits.

    Args:
        step: the training step.
        limit: bytes; None for none.
        in_loop: what one micro-batch per step would take in a loop, at most.
    """
    probe, rows = WholeBatchProbe(step), step.plan.most_rows
    half = _power_below(rows // 2 + 1)
    probed = {size: probe.peak(size) for size in sorted({half // 2, half}) if 0 < 2 * size <= rows}
    expected = predict(probed, rows, probe.floor) or in_loop
    if limit is not None and expected is not None and expected > limit:
        return None
    try:
        probed[rows] = probe.peak(rows)
    except ResourceError:
        return None
    plan = choose(probed, probe.floor, limit)
    return plan if plan is not None and plan.micro_batch_size == rows else None


def levers(step: TrainingStep, least: int = 0, floor: Floor | None = None) -> dict[str, int]:
    """Return what would save memory, with the bytes that it would save, about.

    Args:
        step: the training step.
        least: its peak at a micro-batch of one example, in bytes; 0 if unknown.
        floor: what it holds beside activations, if known.
    """
    held = floor.low - step.gradient_bytes if floor else step.static_bytes
    slots = counted_bytes(step.trainer.optimizer.variables, on_gpu=step.on_gpu)
    return {
        "training.optimizer.name: sgd": slots,
        "training.precision: mixed_bfloat16": round(least - held - 2 * step.gradient_bytes) // 2,
        "half of training.global_batch_size": round(held - step.static_bytes) // 2,
        "a model with half the weights": (step.static_bytes + step.gradient_bytes) // 2,
    }
