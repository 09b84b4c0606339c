"""The record of a training run for the report."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tf_keras as keras

from shrink.base.host import host_resident_bytes
from shrink.base.measurement import Measured
from shrink.contract.details import Training
from shrink.contract.events import OutOfMemoryEvent
from shrink.engine.progress import Logs
from shrink.measure.memory import AllocatorPeak
from shrink.measure.training_peak import Parts, figures

_ELSEWHERE = ("peak", "allocator_note", "small_note", "notes")
"""Fields that a report has among the figures and notes of the stage."""


@dataclass(frozen=True)
class TrainingRecord:
    """How a model was trained.

    Attributes:
        replicas: copies of the model.
        workers: processes that trained together.
        global_batch_size: examples per update.
        micro_batch_size: examples per forward pass and replica, in the end.
        accumulation_steps: micro-batches of each replica in a full global batch.
        precision: compute dtype.
        memory_limit_bytes: per device, if there was a limit.
        oom_events: steps that ran out of memory and were repeated.
        exact: whether the weights are those of one replica with one big batch.
        inexact_because: the layers for which they are not, and why.
        epochs: passes over the training examples.
        updates: optimizer updates.
        examples_per_s: without the first step, which builds the graph; None for a single step.
        history: loss, val_loss and metrics, one number per epoch.
        peak: the most that any one device held.
        allocator_note, small_note: why a part of it is unknown, where it is.
        notes: sentences for the report, such as where training was continued.
        memory_timeline: columns `update`, `time_s`, `device_bytes` (peak since the row before) and
            `host_bytes`, of the process that ended the training.
    """

    replicas: int
    workers: int
    global_batch_size: int
    micro_batch_size: int
    accumulation_steps: int
    precision: str
    memory_limit_bytes: int | None
    oom_events: tuple[OutOfMemoryEvent, ...]
    exact: bool
    inexact_because: tuple[str, ...]
    epochs: int
    updates: int
    examples_per_s: float | None
    history: Mapping[str, Sequence[float]]
    peak: Parts
    allocator_note: str = ""
    small_note: str = ""
    notes: tuple[str, ...] = ()
    memory_timeline: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def oom_retries(self) -> int:
        """Number of steps that were repeated with a smaller micro-batch."""
        return len(self.oom_events)

    @property
    def lost(self) -> tuple[str, ...]:
        """A sentence for each metric whose history has numbers that JSON cannot hold."""
        epochs = {
            name: [str(n) for n, value in enumerate(values, start=1) if not math.isfinite(value)]
            for name, values in self.history.items()
        }
        return tuple(
            f"history: {name} was NaN or infinite after epoch {', '.join(found)}"
            for name, found in epochs.items()
            if found
        )

    @property
    def peaks(self) -> dict[str, Measured[int]]:
        """The figures of its peak, by name."""
        return figures(self.peak, self.allocator_note, self.small_note)

    def described(self) -> Training:
        """Return the report's section; the peak belongs to the memory of a stage."""
        rest = {name: value for name, value in vars(self).items() if name not in _ELSEWHERE}
        history = {
            name: tuple(value if math.isfinite(value) else None for value in values)
            for name, values in self.history.items()
        }
        return Training(
            **{**rest, "history": history},
            oom_retries=self.oom_retries,
            training_peak_lower_bound=self.peak.is_lower_bound,
        )


def joined(records: Sequence[TrainingRecord]) -> TrainingRecord:
    """Return the record of trainings that followed each other, at least one, as one training.

    Epochs, updates, histories and timelines are joined, the peak is the largest, and the other
    fields are those of the last one.
    """
    last = records[-1]
    unknown = next((r for r in records if r.peak.total is None), None)
    bound = next((r for r in records if r.peak.is_lower_bound), last)
    highest = unknown or max(records, key=lambda r: r.peak.total or 0)
    timeline: dict[str, list[Any]] = {name: [] for name in last.memory_timeline}
    updates, time_s = 0, 0.0
    for record in records:  # updates and times continue
        for name, values in record.memory_timeline.items():
            start = {"update": updates, "time_s": time_s}.get(name)
            timeline[name] += values if start is None else [start + value for value in values]
        updates += record.updates
        time_s = max([*timeline.get("time_s", []), time_s])
    return replace(
        last,
        oom_events=tuple(event for r in records for event in r.oom_events),
        epochs=sum(r.epochs for r in records),
        updates=sum(r.updates for r in records),
        history={name: [v for r in records for v in r.history[name]] for name in last.history},
        peak=replace(highest.peak, small=None) if bound.peak.is_lower_bound else highest.peak,
        allocator_note=highest.allocator_note,
        small_note=bound.small_note,
        notes=tuple(dict.fromkeys(note for r in records for note in r.notes)),
        memory_timeline=timeline,
    )


MOST_POINTS = 120


@dataclass(frozen=True)
class Sample:
    """One point in time.

    Attributes:
        update: optimizer updates made by then.
        time_s: seconds since this process began to train.
        device_bytes: the most that any one device's allocator held since the sample before.
        host_bytes: resident memory of the process.
    """

    update: int
    time_s: float
    device_bytes: int | None
    host_bytes: int


class MemoryTimeline(keras.callbacks.Callback):
    """Samples memory after updates, ever more rarely, so that there are never many points.

    Args:
        memory: its peak is read in windows, which leaves its own figure whole.
        first_update: updates made by earlier processes.

    Attributes:
        samples: at most `MOST_POINTS`, evenly spread but for the ends of epochs.
    """

    _supports_tf_logs = True

    def __init__(self, memory: AllocatorPeak, first_update: int = 0) -> None:
        super().__init__()
        self.samples: list[Sample] = []
        self._memory = memory
        self._update = first_update
        self._stride = 1
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Take a sample if one is due."""
        self._update += 1
        if self._update % self._stride == 0:
            self._sample()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Take a sample of what the validation held, as part of the epoch's last update."""
        self._sample()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the samples by column."""
        names = ("update", "time_s", "device_bytes", "host_bytes")
        return {name: [getattr(sample, name) for sample in self.samples] for name in names}

    def _sample(self) -> None:
        elapsed = time.perf_counter() - self._began
        sample = Sample(self._update, elapsed, self._memory.window(), host_resident_bytes())
        if self.samples and self.samples[-1].update == self._update:
            sample = merged(self.samples.pop(), sample)
        self.samples.append(sample)
        if len(self.samples) > MOST_POINTS:
            self.samples = thinned(self.samples)
            self._stride *= 2


def merged(first: Sample, second: Sample) -> Sample:
    """Return two samples in a row as one: the later moment, the larger figures."""
    peaks = [s.device_bytes for s in (first, second) if s.device_bytes is not None]
    return Sample(
        second.update,
        second.time_s,
        max(peaks, default=None),
        max(first.host_bytes, second.host_bytes),
    )


def thinned(samples: list[Sample]) -> list[Sample]:
    """Return half as many samples, which hold the same peaks."""
    pairs = zip(samples[::2], samples[1::2], strict=False)
    rest = samples[-1:] if len(samples) % 2 else []
    return [*(merged(a, b) for a, b in pairs), *rest]
