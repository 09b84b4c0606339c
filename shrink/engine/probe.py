"""Peak memory of a stage's own training step, from a few steps on batches of zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from shrink.data.dataset import Examples
from shrink.data.pipeline import batches_waiting, evaluation_batches, training_batches
from shrink.engine.accumulate import Batch
from shrink.engine.batch_plan import BatchPlan, plan_batches
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices
from shrink.engine.microbatch import AfterUpdate, MicroBatchTrainer
from shrink.engine.objective import Objective
from shrink.engine.planner import DOUBT, MARGIN, Floor
from shrink.engine.sharding import distribute_batches
from shrink.engine.trainer import build_trainer
from shrink.errors import ResourceError
from shrink.measure.memory import AllocatorPeak

_STEPS = 3
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
    """The real training step of a stage, on its own examples.

    Args:
        model: a Keras model that was built inside `devices.scope()`.
        examples: what shall be trained on: where they are read to decides what is counted.
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
        self._waiting: list[Any] = []

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self._devices.replicas

    @property
    def on_gpu(self) -> bool:
        """Whether the devices are GPUs."""
        return self._devices.on_gpu

    @property
    def margin(self) -> float:
        """Part of a limit that has to stay free, because another step may have another peak."""
        return 0.0 if self._devices.in_order else MARGIN

    @property
    def doubt(self) -> float:
        """How far above a limit, in parts of it, an expected peak is measured all the same.

        On a GPU the limit is one of its allocator, which takes 10 s to give up.
        """
        return 0.0 if self.on_gpu else DOUBT

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one gradient of each weight, as the allocator counts."""
        return counted_bytes(self.trainer.model.trainable_variables, on_gpu=self.on_gpu)

    def batches(self, rows: int) -> Iterator[Any]:
        """Return an endless iterator over one global batch of `rows` examples per replica.

        As many others are held as wait in training, where reading them is as fast as it has to be.
        """
        size = min(rows * self._devices.replicas, len(self._examples))
        batches = training_batches(
            self._examples, global_batch_size=size, seed=0, first_step=0, last_step=_ENDLESS
        )
        self._waiting.clear()
        self._waiting += batches.take(batches_waiting(self._examples, size))
        one = batches.take(1).cache().repeat()
        return iter(distribute_batches(one, self._devices))

    def validation_batches(self, examples: Examples, rows: int) -> Iterator[Any]:
        """Return an iterator over `examples`, in batches of `rows` per replica."""
        batches = evaluation_batches(examples, rows * self._devices.replicas)
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

    def make_update(self, batches: Iterator[Any]) -> None:
        """Make one update on the next batch."""
        self._function(batches)

    def measure(self, batches: Iterator[Any]) -> int:
        """Return the peak, in bytes, of a few steps after one that may trace.

        Raises:
            ResourceError: out of memory.
        """
        self.make_update(batches)
        return self.peak_of(lambda: self.make_update(batches))

    def peak_of(self, step: Callable[[], Any]) -> int:
        """Return the peak, in bytes, of calling `step` a few times."""
        self._memory.reset()
        for _ in range(_STEPS):
            step()
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
