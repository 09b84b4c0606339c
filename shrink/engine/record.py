"""The record of a training run for the report."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import tf_keras as keras

from shrink.base.host import host_resident_bytes
from shrink.base.measurement import Measured
from shrink.contract.details import Training
from shrink.contract.record import as_base, record
from shrink.engine.progress import Logs
from shrink.measure.memory import AllocatorPeak
from shrink.measure.training_peak import Parts, figures


@record
class TrainingRecord(Training):
    """How a model was trained: the report's section, and what the stage says of its peak.

    Attributes:
        history: as in the report, with numbers that JSON cannot hold.
        peak: the most that any one device held.
        allocator_note, small_note: why a part of it is unknown, where it is.
        notes: sentences for the report, such as where training was continued.
    """

    replicas: int = field()
    accumulation_steps: int = field()
    epochs: int = field()
    updates: int = field()
    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    peak: Parts
    allocator_note: str = ""
    small_note: str = ""
    notes: tuple[str, ...] = ()

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
        history = {
            name: tuple(value if math.isfinite(value) else None for value in values)
            for name, values in self.history.items()
        }
        return replace(
            as_base(self, Training),
            history=history,
            oom_retries=len(self.oom_events),
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
    for one in records:  # updates and times continue
        for name, values in one.memory_timeline.items():
            start = {"update": updates, "time_s": time_s}.get(name, 0)
            timeline[name] += [None if value is None else start + value for value in values]
        updates += one.updates
        time_s = max([*timeline.get("time_s", []), time_s])
    return replace(
        last,
        oom_events=tuple(event for r in records for event in r.oom_events),
        epochs=sum(r.epochs for r in records),
        updates=sum(r.updates for r in records),
        history={name: tuple(v for r in records for v in r.history[name]) for name in last.history},
        peak=replace(highest.peak, small=None) if bound.peak.is_lower_bound else highest.peak,
        allocator_note=highest.allocator_note,
        small_note=bound.small_note,
        notes=tuple(dict.fromkeys(note for r in records for note in r.notes)),
        memory_timeline={name: tuple(values) for name, values in timeline.items()},
    )


MOST_POINTS = 120


class MemoryTimeline(keras.callbacks.Callback):
    """Samples memory after updates, evenly spread and at most `MOST_POINTS` times.

    Args:
        memory: its peak is read in windows, which leaves its own figure whole.
        first_update: updates made by earlier processes.
        last_update: updates of the whole training.

    Attributes:
        columns: `update`, `time_s` since this process began to train, `device_bytes` (the most that
            any one device's allocator held since the row before) and `host_bytes` (resident).
    """

    _supports_tf_logs = True

    def __init__(self, memory: AllocatorPeak, first_update: int, last_update: int) -> None:
        super().__init__()
        self.columns: dict[str, list[Any]] = {
            name: [] for name in ("update", "time_s", "device_bytes", "host_bytes")
        }
        self._memory = memory
        self._update = self._first_update = first_update
        self._stride = max(1, math.ceil((last_update - first_update) / (MOST_POINTS - 1)))
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Take a sample if one is due."""
        self._update += 1
        if self._update % self._stride == 0:
            self._sample()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Take a last sample, of the last updates and the last validation."""
        if self.columns["update"][-1:] == [self._update]:
            before = self.columns["device_bytes"][-1]
            for column in self.columns.values():
                column.pop()
            self._sample(before)
        elif self._update > self._first_update:
            self._sample()

    def _sample(self, before: int | None = None) -> None:
        elapsed = time.perf_counter() - self._began
        held = [peak for peak in (before, self._memory.window()) if peak is not None]
        row = (self._update, elapsed, max(held, default=None), host_resident_bytes())
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)
