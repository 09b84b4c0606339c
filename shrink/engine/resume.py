"""Training that continues where an earlier process left it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tf_keras as keras

from shrink.base.types import Array
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.events import OutOfMemoryEvent
from shrink.engine.checkpoint import Checkpoint, CheckpointFolder, TrainingState
from shrink.engine.devices import Devices, broadcast_from_chief
from shrink.engine.microbatch import MicroBatchTrainer
from shrink.engine.progress import BestWeights, Logs, ProgressCallback
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
        cost_s: what the last one cost; at first a guess, so that a run of a second or two has none.
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
        """Save, and remember what it cost."""
        began = self.clock()
        save()
        self._saved_at = self.clock()
        self.cost_s = self._saved_at - began


@dataclass(frozen=True)
class Recovery:
    """What a training run knows of the attempts before it.

    Attributes:
        folder: where its checkpoints are; without it there are none.
        micro_batch_size: the largest that may be tried, if a larger one was too large.
        events: why.
        watcher: told of every step, and of what goes wrong.
        cadence: when a checkpoint is due.
    """

    folder: Path | None = None
    micro_batch_size: int | None = None
    events: tuple[OutOfMemoryEvent, ...] = ()
    watcher: Watcher | None = None
    cadence: Cadence = field(default_factory=Cadence)


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds beside its arrays.

    Attributes:
        update: index of the next update.
        micro_batch_size: examples per forward pass and replica.
        oom_events: steps that ran out of memory.
        history: metrics by name, one number per epoch.
        best_score: of the best epoch, the higher the better; None where none is looked for.
        peak: the most that any one device held.
        throughput: examples trained on while time counted, and its seconds.
    """

    update: int
    micro_batch_size: int
    oom_events: tuple[OutOfMemoryEvent, ...]
    history: Mapping[str, list[float]]
    best_score: float | None
    peak: Parts
    throughput: tuple[float, ...]


class Checkpointing(keras.callbacks.Callback):
    """Saves the state of a training run now and then; the last callback of all.

    Args:
        trainer: compiled, with a built optimizer.
        recovery: where checkpoints are and when one is due, and what happened before.
        steps: updates per epoch.
        progress: its throughput is continued.
        best: its weights are part of the state.
        memory: its peak is continued.
        devices: where it runs; of several workers the chief alone saves, and says when.

    Attributes:
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
        progress: ProgressCallback,
        best: BestWeights | None,
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
        self._progress = progress
        self._best = best
        self._memory = memory
        self._cadence = recovery.cadence
        self._devices = devices
        self._state = TrainingState(trainer, together=devices.workers > 1)
        self._epoch = 0
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
        problem = self._state.mismatch(checkpoint.shapes)
        if problem:
            self.notes.append(f"a checkpoint that does not fit was ignored ({problem})")
            return
        self._take(checkpoint)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Put the metrics of an epoch that was begun back, which Keras has just reset."""
        self._epoch = epoch
        if self._resumed is not None:
            if self.first_update % self._steps:
                self._state.restore_metrics(self._resumed.arrays)
            self._resumed = None

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Save if it is time; an epoch's last step is left to its end, after the validation."""
        due = self._folder is not None and self._cadence.due(epoch_ends=False)
        if batch + 1 < self._steps and self._agreed(due, batch + 1):
            self._cadence.saving(self._save)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Keep the epoch's metrics, and save if that is cheap."""
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        due = self._folder is not None and self._cadence.due(epoch_ends=True)
        if broadcast_from_chief(self._devices, due):
            self._cadence.saving(self._save)

    def _agreed(self, due: bool, step: int) -> bool:
        """Whether to save now. Workers ask each other in some steps only: that takes time."""
        if self._devices.workers > 1 and step % _STEPS_BETWEEN_QUESTIONS:
            return False
        return broadcast_from_chief(self._devices, due)

    def _save(self) -> None:
        if self._devices.worker != 0:
            self._state.take_part()
        elif self._folder is not None:
            self._folder.write(self._arrays(), to_plain(self._content()))

    def _arrays(self) -> Iterator[tuple[str, Array]]:
        yield from self._state.arrays()
        if self._best is not None and self._best.weights is not None:
            yield from ((f"best/{n}", weights) for n, weights in enumerate(self._best.weights))

    def _content(self) -> Saved:
        throughput = self._progress.throughput
        return Saved(
            update=int(self._trainer.optimizer.iterations.numpy()),
            micro_batch_size=self._trainer.micro_batch_size,
            oom_events=self.events,
            history=self.history,
            best_score=None if self._best is None else self._best.score,
            peak=self.peak,
            throughput=(throughput.examples, throughput.seconds),
        )

    def _take(self, checkpoint: Checkpoint) -> None:
        saved = from_plain(Saved, checkpoint.content)
        self._state.restore(checkpoint.arrays)
        self._resumed = checkpoint
        self.first_update = saved.update
        self.history = {name: list(values) for name, values in saved.history.items()}
        self._earlier_events = _merged(saved.oom_events, self._earlier_events)
        self._earlier_peak = saved.peak
        examples, seconds = saved.throughput
        self._progress.throughput.restore(int(examples), seconds)
        self._lower_micro_batch(saved.micro_batch_size)
        if self._best is not None:
            count = sum(name.startswith("best/") for name in checkpoint.arrays)
            weights = [checkpoint.arrays[f"best/{index}"] for index in range(count)]
            score = -math.inf if saved.best_score is None else saved.best_score
            self._best.restore(score, weights or None)
        self.notes.append(f"training was continued from a checkpoint after {self._made()}")

    def _made(self) -> str:
        return f"{self.first_update} update{'' if self.first_update == 1 else 's'}"

    def _lower_micro_batch(self, size: int | None) -> None:
        if size is not None and size < self._trainer.micro_batch_size:
            self._trainer.set_micro_batch_size(size)


def _merged(
    saved: Sequence[OutOfMemoryEvent], earlier: Sequence[OutOfMemoryEvent]
) -> list[OutOfMemoryEvent]:
    """Return the events of the checkpoint, then those that happened after it."""
    return [*saved, *(event for event in earlier if event not in saved)]
