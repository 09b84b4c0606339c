"""A training step that is repeated with a smaller micro-batch when it runs out of memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ResourceError
from shrink.base.types import Tensors
from shrink.contract.events import Heartbeat, Lost, OutOfMemoryEvent, Send
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
"""Messages of allocators, within errors of other types too (tensorflow issues 60401, 64764)."""
_BEYOND_RECOVERY = (
    "CUDA_ERROR_",
    "illegal memory access",
    "unspecified launch failure",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "Collective ops is aborted",
)
"""Messages of a device that this process can no longer use, or of a process that lost a peer."""


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
    """Return the line of an error that mentions memory, else its type's name."""
    words = ("oom", "memory", "resource_exhausted", "allocat")
    for line in map(str.strip, str(error).splitlines()):
        # The user's own stack is part of the message.
        if any(word in line.lower() for word in words) and not line.startswith("File "):
            return line[:300]
    return type(error).__name__


class Watcher:
    """Reports what happens to training steps to the parent process, whatever ends this one.

    Args:
        heartbeat: memory that is shared with the parent; None without one.
        send: sends an event to the parent.
    """

    def __init__(self, heartbeat: Heartbeat | None = None, send: Send = lambda event: None) -> None:
        self._heartbeat = heartbeat
        self.send = send

    def begin_step(self, step: int, micro_batch_size: int) -> None:
        """Note which update begins, in shared memory; called in every step."""
        if self._heartbeat is not None:
            self._heartbeat.beat(step, micro_batch_size)

    def report_fatal(self, error: str, *, memory: bool) -> None:
        """Report that this process cannot train on, but another one could.

        Args:
            error: the line of the error that says why.
            memory: whether memory ran out.
        """
        beat = self._heartbeat.read() if self._heartbeat is not None else None
        if beat is not None:
            self.send(Lost(beat.step, beat.micro_batch_size, error, memory))

    def end(self) -> None:
        """Note that training is over."""
        if self._heartbeat is not None:
            self._heartbeat.rest()


@dataclass(frozen=True)
class Retries:
    """How a step that ran out of memory is repeated.

    Attributes:
        replay: from the index of an update to the global batches from that one on, distributed
            like those of `fit`; without it such a step is an error.
        watcher: reports every step.
        in_process: whether this process may repeat it; see `Devices.retries_in_process`.
    """

    replay: Callable[[int], Iterator[Tensors]] | None = None
    watcher: Watcher = field(default_factory=Watcher)
    in_process: bool = True


class RecoveringStep:
    """Makes one update per call; after running out of memory, again with half the micro-batch.

    Weights and optimizer are untouched by a failed step, because every gradient is computed before
    the first of them changes. Batch-norm statistics, metrics and the count of forward passes, from
    which dropout draws, are put back to what they were.

    Args:
        trainer: a compiled `shrink.engine.microbatch.MicroBatchTrainer`.
        retries: how.
    """

    def __init__(self, trainer: keras.Model, retries: Retries) -> None:
        self.events: list[OutOfMemoryEvent] = []
        self._trainer, self._retries = trainer, retries
        self._first_update = int(trainer.optimizer.iterations.numpy())
        self._first_begun = trainer.updates_begun
        self._updates = 0
        # In place of Keras' iterator, whose batch is gone once a step has failed.
        self._replayed: Iterator[Tensors] | None = None
        self._state: list[tf.Variable] = []
        self._before: Sequence[tf.Tensor] | None = None
        if retries.replay is not None and retries.in_process:
            # What was made to be trained is only frozen: no forward pass writes to it.
            state = [v for v in trainer.model.non_trainable_variables if not v.trainable]
            state += [v for metric in trainer.metrics for v in metric.variables]
            state += [trainer.seeds.variable] if trainer.seeds is not None else []
            local = trainer.distribute_strategy.experimental_local_results
            self._state = [copy for variable in state for copy in local(variable)]
        self.retrace()

    def retrace(self) -> None:
        """Build the step's graph again at its next run."""
        trainer = self._trainer

        def values() -> list[tf.Tensor]:
            """Return what a failed step may change; the values share the variables' memory."""
            return [variable.read_value() for variable in self._state]

        def step(iterator: Iterator[Tensors]) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
            # Metrics are summed over the replicas already: each has the same value.
            local = trainer.distribute_strategy.experimental_local_results
            logs = trainer.make_update(next(iterator))
            return {name: local(value)[0] for name, value in logs.items()}, values()

        # Unconverted: AutoGraph would turn our own errors into others.
        self._step, self._read = traced(step, reduce_retracing=True), traced(values)

    def state_changed(self) -> None:
        """Read the state before the next step, for something else has changed it."""
        self._before = None

    def __call__(self, iterator: Iterator[Tensors]) -> dict[str, tf.Tensor]:
        """Make one update on the iterator's next global batch and return the metrics.

        Raises:
            ResourceError: out of memory at a micro-batch of one example, or in the update.
            tf.errors.OutOfRangeError: the iterator is at its end.
        """
        while True:
            update = self._first_update + self._updates
            if self._before is None:
                self._before = self._read()
            self._retries.watcher.begin_step(update, self._trainer.micro_batch_size)
            try:
                batches = iterator if self._replayed is None else self._replayed
                logs: dict[str, tf.Tensor]
                logs, self._before = self._step(batches)
            except (tf.errors.OpError, MemoryError) as error:
                if not (is_out_of_memory(error) and self._retries.in_process):
                    raise
                evidence = evidence_of(error)
            else:
                self._updates += 1
                return logs
            # Outside of the handler, whose traceback holds the tensors of the failed step.
            for variable, value in zip(self._state, self._before, strict=True):
                variable.assign(value)
            self._halve_micro_batch(update, evidence)
            if self._retries.replay is not None:
                self._replayed = self._retries.replay(update)

    def _halve_micro_batch(self, update: int, evidence: str) -> None:
        size, watcher = self._trainer.micro_batch_size, self._retries.watcher
        # Dropped graphs and tensors of the failed step are in reference cycles.
        gc.collect()
        if self._trainer.updates_begun - self._first_begun > self._updates:
            watcher.report_fatal(evidence, memory=True)
            raise ResourceError(
                f"out of memory while the optimizer changed the weights (update {update}): "
                f"{evidence}",
                subject="training",
                hint="use an optimizer with less state, such as sgd, or more memory",
            )
        if size == 1 or self._retries.replay is None:
            raise ResourceError(
                f"out of memory at a micro-batch of {size}: {evidence}",
                subject="training.micro_batch_size",
                hint="use smaller inputs, precision: mixed_bfloat16, or a device with more memory",
            )
        event = OutOfMemoryEvent(update, size, evidence)
        self.events.append(event)
        watcher.send(event)
        self._trainer.set_micro_batch_size(size // 2)
