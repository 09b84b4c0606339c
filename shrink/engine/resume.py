"""Training that continues where an earlier process left it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tf_keras as keras

from shrink.contract.codec import from_plain, to_plain
from shrink.contract.events import OutOfMemoryEvent
from shrink.engine.checkpoint import Checkpoint, CheckpointFolder, TrainingState
from shrink.engine.devices import Devices, broadcast_from_chief
from shrink.engine.microbatch import MicroBatchTrainer
from shrink.engine.progress import BestEpoch, Logs, Throughput
from shrink.engine.recovery import Watcher
from shrink.measure.training_peak import Parts, TrainingPeak

_STEPS_BETWEEN_QUESTIONS = 10


@dataclass
class Cadence:
    """When a checkpoint is due: after so much time, and never for more than a share of it.

    Args:
        interval_s: seconds between two checkpoints within an epoch.
        share: at most this fraction of the time is spent on checkpoints.
        clock: seconds from some moment on.
        cost_s: duration of the last one; the first value keeps runs of a second or two from saving.
    """

    interval_s: float = 30.0
    share: float = 0.02
    clock: Callable[[], float] = time.monotonic
    cost_s: float = 0.05
    _saved_at: float | None = None

    def due(self, *, epoch_ends: bool) -> bool:
        """Whether a checkpoint is due after this step; the first step starts the clock."""
        now = self.clock()
        if self._saved_at is None:
            self._saved_at = now
        least = self.cost_s / self.share
        return now - self._saved_at >= (least if epoch_ends else max(least, self.interval_s))

    def saving(self, save: Callable[[], None]) -> None:
        """Save, and remember how long it took."""
        began = self.clock()
        save()
        self._saved_at = self.clock()
        self.cost_s = self._saved_at - began


@dataclass(frozen=True)
class Recovery:
    """Checkpoints of a training run, and what its earlier attempts found.

    Attributes:
        folder: of the checkpoints; None for none.
        micro_batch_size: the largest that may be tried, if a larger one ran out of memory.
        events: when it did.
        watcher: reports steps and fatal errors.
        cadence: when a checkpoint is due.
    """

    folder: Path | None = None
    micro_batch_size: int | None = None
    events: tuple[OutOfMemoryEvent, ...] = ()
    watcher: Watcher = field(default_factory=Watcher)
    cadence: Cadence = field(default_factory=Cadence)


@dataclass(frozen=True)
class Saved:
    """Numbers of a checkpoint beside its arrays.

    Attributes:
        update: index of the next update.
        micro_batch_size: examples per forward pass and replica.
        oom_events: steps that ran out of memory.
        history: metrics by name, one number per epoch.
        peak: the most that any one device held.
        throughput: examples and seconds; see `Throughput`.
    """

    update: int
    micro_batch_size: int
    oom_events: tuple[OutOfMemoryEvent, ...]
    history: Mapping[str, list[float]]
    peak: Parts
    throughput: tuple[float, ...]


class Checkpointing(keras.callbacks.Callback):
    """Saves the state of a training run now and then; the last callback of all.

    Args:
        trainer: compiled, with a built optimizer.
        recovery: where checkpoints are and when one is due, and what happened before.
        steps: updates per epoch.
        throughput: is continued.
        memory: its peak is continued.
        devices: where it runs; of several workers the chief alone saves, and says when.

    Attributes:
        best: its weights are part of the state; None without it.
        history: metrics by name, one number per epoch, of earlier processes too.
        first_update: index of the first update that this process makes.
        notes: sentences for the report.
    """

    _supports_tf_logs = True

    def __init__(
        self,
        trainer: MicroBatchTrainer,
        recovery: Recovery,
        *,
        steps: int,
        throughput: Throughput,
        memory: TrainingPeak,
        devices: Devices,
    ) -> None:
        super().__init__()
        self.history: dict[str, list[float]] = {}
        self.first_update = 0
        self.notes: list[str] = []
        self._trainer = trainer
        self._folder = CheckpointFolder(recovery.folder) if recovery.folder else None
        self._earlier_events = list(recovery.events)
        self._earlier_peak = Parts()
        self._steps = steps
        self._throughput = throughput
        self.best: BestEpoch | None = None
        self._memory = memory
        self._cadence = recovery.cadence
        self._devices = devices
        self._state = TrainingState(trainer, together=devices.workers > 1)
        self._resumed: Checkpoint | None = None
        self._lower_micro_batch(recovery.micro_batch_size)

    @property
    def events(self) -> tuple[OutOfMemoryEvent, ...]:
        """Every time that memory ran out, in this process and before."""
        step = self._trainer.recovering_step
        return (*self._earlier_events, *(step.events if step else ()))

    @property
    def peak(self) -> Parts:
        """The most that any one device held, in this process and before."""
        found = self._memory.parts().or_more(self._earlier_peak)
        # The allocator counts no small tensors: without them a figure of 0 would be none.
        return Parts() if not found.total and found.is_lower_bound else found

    def resume(self) -> None:
        """Bring the trainer to the state of the last checkpoint, if there is one that fits."""
        if self._folder is None:
            return
        checkpoint = self._folder.read()
        if checkpoint is None:
            self.notes += [self._folder.note] if self._folder.note else []
            return
        if problem := self._state.mismatch(checkpoint.arrays.shapes):
            self.notes.append(f"a checkpoint that does not fit was ignored ({problem})")
            return
        saved = from_plain(Saved, checkpoint.content)
        self._state.restore(checkpoint.arrays)
        self._resumed = checkpoint
        self.first_update = saved.update
        self.history.update(saved.history)
        later = [event for event in self._earlier_events if event not in saved.oom_events]
        self._earlier_events = [*saved.oom_events, *later]
        self._earlier_peak = saved.peak
        examples, self._throughput.seconds = saved.throughput
        self._throughput.examples = int(examples)
        self._lower_micro_batch(saved.micro_batch_size)
        if self.best is not None:
            count = sum(name.startswith("best/") for name in checkpoint.arrays)
            weights = [checkpoint.arrays[f"best/{index}"] for index in range(count)]
            self.best.weights = weights or None
        plural = "" if saved.update == 1 else "s"
        self.notes.append(
            f"training was continued from a checkpoint after {saved.update} update{plural}"
        )

    def _lower_micro_batch(self, size: int | None) -> None:
        if size is not None and size < self._trainer.micro_batch_size:
            self._trainer.set_micro_batch_size(size)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Restore the metrics of an epoch in progress, which Keras has just reset."""
        if self._resumed is not None:
            if self.first_update % self._steps:
                self._state.restore(self._resumed.arrays, metrics=True)
            self._resumed = None

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Save if it is time; an epoch's last step is left to its end, after the validation."""
        step, due = batch + 1, self._folder is not None and self._cadence.due(epoch_ends=False)
        # Workers agree in some steps only, as that takes time.
        may_ask = self._devices.workers == 1 or step % _STEPS_BETWEEN_QUESTIONS == 0
        if step < self._steps and may_ask and broadcast_from_chief(self._devices, due):
            self._cadence.saving(self._save)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Keep the epoch's metrics, and save if that is cheap."""
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        due = self._folder is not None and self._cadence.due(epoch_ends=True)
        if broadcast_from_chief(self._devices, due):
            self._cadence.saving(self._save)

    def _save(self) -> None:
        if self._devices.worker != 0:
            self._state.take_part()
        if self._devices.worker != 0 or self._folder is None:
            return
        weights = (self.best.weights if self.best is not None else None) or ()
        best = ((f"best/{index}", array) for index, array in enumerate(weights))
        saved = Saved(
            update=int(self._trainer.optimizer.iterations.numpy()),
            micro_batch_size=self._trainer.micro_batch_size,
            oom_events=self.events,
            history=self.history,
            peak=self.peak,
            throughput=(self._throughput.examples, self._throughput.seconds),
        )
        self._folder.write(itertools.chain(self._state.arrays(), best), to_plain(saved))
