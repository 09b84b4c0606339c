"""One place that runs a training step, and survives running out of memory in it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ResourceError
from shrink.base.types import Tensors
from shrink.contract.events import OutOfMemoryEvent
from shrink.engine.randomness import RandomSeeds
from shrink.tflite.serving import traced

_CUDA_OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
_OUT_OF_MEMORY = (
    "OOM when allocating tensor",
    "Out of memory while trying to allocate",
    "Dst tensor is not initialized",
    _CUDA_OUT_OF_MEMORY,
    "CUDNN_STATUS_ALLOC_FAILED",
    "could not allocate pinned host memory",
)
"""What allocators say, within errors of other types too (tensorflow issues 60401, 64764)."""
_BEYOND_RECOVERY = (
    "CUDA_ERROR_",
    "illegal memory access",
    "unspecified launch failure",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "Collective ops is aborted",
)
"""What a device says that works no more in this process, or a process whose peer is gone."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of a training step means that memory ran out, and nothing worse."""
    # Collectives are aborted by what happened to a peer, which the message goes on to quote.
    if _is_beyond_recovery(error):
        return False
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return True
    return any(words in str(error) for words in _OUT_OF_MEMORY)


def needs_fresh_process(error: BaseException) -> bool:
    """Whether an error means that this process can train no more, but another one could."""
    if isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError):
        return True
    return _is_beyond_recovery(error)


def _is_beyond_recovery(error: BaseException) -> bool:
    text = str(error).replace(_CUDA_OUT_OF_MEMORY, "")
    return any(words in text for words in _BEYOND_RECOVERY)


def evidence_of(error: BaseException) -> str:
    """Return the line of an error that speaks of memory, else its type's name."""
    words = ("oom", "memory", "resource_exhausted", "allocat")
    for line in map(str.strip, str(error).splitlines()):
        # The user's own stack is part of the message.
        if any(word in line.lower() for word in words) and not line.startswith("File "):
            return line[:300]
    return type(error).__name__


Replay = Callable[[int], Iterator[Tensors]]
"""From the index of an update to an iterator over the global batches from that one on."""


class Watcher(Protocol):
    """Told what happens to the steps of a training run, by the process that makes them."""

    def begins(self, step: int, micro_batch_size: int) -> None:
        """Learn that this update begins; called in every step."""

    def out_of_memory(self, event: OutOfMemoryEvent) -> None:
        """Learn that a step ran out of memory."""

    def lost(self, evidence: str, *, memory: bool) -> None:
        """Learn that this process can train no more, and whether for want of memory."""


@dataclass(frozen=True)
class Retries:
    """How a step that ran out of memory is made again.

    Attributes:
        replay: gives the batches again, distributed like those of `fit`; without it such a step is
            an error.
        watcher: told of every step, if there is one.
        in_process: whether a step may be made again in this process; see
            `shrink.engine.devices.Devices`.
    """

    replay: Replay | None = None
    watcher: Watcher | None = None
    in_process: bool = True


NO_RETRIES = Retries()


class Stepping(Protocol):
    """What a step takes of a `shrink.engine.microbatch.MicroBatchTrainer`."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    distribute_strategy: tf.distribute.Strategy
    seeds: RandomSeeds | None

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The means of the loss and the metrics."""

    @property
    def micro_batch_size(self) -> int:
        """Examples per forward pass and replica."""

    @property
    def updates_begun(self) -> int:
        """Updates that had all their gradients."""

    def set_micro_batch_size(self, size: int) -> None:
        """Change the examples per forward pass."""

    def make_update(self, data: Tensors) -> dict[str, tf.Tensor]:
        """Make one update on a distributed global batch."""


class RecoveringStep:
    """Makes one update per call; out of memory, the same batch again in half the micro-batch.

    Weights and optimizer are untouched by a failed step, because every gradient is there before
    the first of them changes. Batch-norm statistics and metrics are put back to what they were.
    So is the count of forward passes, from which dropout draws.

    Args:
        trainer: compiled.
        retries: how.
    """

    def __init__(self, trainer: Stepping, retries: Retries) -> None:
        self.events: list[OutOfMemoryEvent] = []
        self._trainer, self._retries = trainer, retries
        self._strategy = trainer.distribute_strategy
        self._step = self._build()
        self._state: list[tf.Variable] = []
        # What is read shares the variable's memory.
        self._read = traced(lambda: [variable.read_value() for variable in self._state])
        self._first_update = int(trainer.optimizer.iterations.numpy())
        self._first_begun = trainer.updates_begun
        self._updates = 0
        # In place of Keras' iterator, whose batch is gone once a step has failed.
        self._replayed: Iterator[Tensors] | None = None

    def retrace(self) -> None:
        """Build the step's graph anew, at its next run."""
        self._step = self._build()

    def __call__(self, iterator: Iterator[Tensors]) -> dict[str, tf.Tensor]:
        """Make one update on the iterator's next global batch and return the metrics.

        Raises:
            ResourceError: out of memory at a micro-batch of one example, or in the update.
            tf.errors.OutOfRangeError: the iterator is at its end.
        """
        while True:
            logs = self._attempt(iterator if self._replayed is None else self._replayed)
            if logs is not None:
                self._updates += 1
                return logs
            if self._retries.replay is not None:
                self._replayed = self._retries.replay(self._first_update + self._updates)

    def _attempt(self, iterator: Iterator[Tensors]) -> dict[str, tf.Tensor] | None:
        """Return the metrics of a step, or None where it is to be made again."""
        saved, watcher = self._save(), self._retries.watcher
        if watcher is not None:
            update = self._first_update + self._updates
            watcher.begins(update, self._trainer.micro_batch_size)
        try:
            logs: dict[str, tf.Tensor] = self._step(iterator)
        except (tf.errors.OpError, MemoryError) as error:
            if not (is_out_of_memory(error) and self._retries.in_process):
                raise
            evidence = evidence_of(error)
        else:
            return logs
        for variable, value in zip(self._state, saved, strict=True):
            variable.assign(value)
        self._back_off(evidence)
        return None

    def _build(self) -> Callable[[Iterator[Tensors]], dict[str, tf.Tensor]]:
        trainer, strategy = self._trainer, self._strategy

        def step(iterator: Iterator[Tensors]) -> dict[str, tf.Tensor]:
            outputs = trainer.make_update(next(iterator))
            # Metrics are summed over the replicas already: each has the same value.
            return {
                name: strategy.experimental_local_results(value)[0]
                for name, value in outputs.items()
            }

        # Unconverted: AutoGraph would turn our own errors into others.
        return traced(step, reduce_retracing=True)

    def _save(self) -> Sequence[tf.Tensor]:
        """Return the values of what a failed step may have changed, in one call."""
        if self._retries.replay is None or not self._retries.in_process:
            return ()
        if not self._state:
            trainer = self._trainer
            # What was made to be trained is only frozen: no forward pass writes to it.
            state = [v for v in trainer.model.non_trainable_variables if not v.trainable]
            state += [v for metric in trainer.metrics for v in metric.variables]
            state += [trainer.seeds.variable] if trainer.seeds is not None else []
            self._state = [v for s in state for v in self._strategy.experimental_local_results(s)]
        return self._read()

    def _back_off(self, evidence: str) -> None:
        size, update = self._trainer.micro_batch_size, self._first_update + self._updates
        event = OutOfMemoryEvent(update, size, evidence)
        watcher = self._retries.watcher
        # Dropped graphs and tensors of the failed step are in reference cycles.
        gc.collect()
        if self._trainer.updates_begun - self._first_begun > self._updates:
            if watcher is not None:
                watcher.lost(evidence, memory=True)
            raise ResourceError(
                f"out of memory while update {update} changed the weights: {evidence}",
                subject="training",
                hint="use an optimizer with less state, such as sgd, or more memory",
            )
        if size == 1 or self._retries.replay is None:
            raise ResourceError(
                f"out of memory at a micro-batch of {size}: {evidence}",
                subject="training.micro_batch_size",
                hint="use smaller inputs, precision: mixed_bfloat16, or a device with more memory",
            )
        self.events.append(event)
        if watcher is not None:
            watcher.out_of_memory(event)
        self._trainer.set_micro_batch_size(size // 2)
