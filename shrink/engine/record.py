"""What a training stage reports of its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shrink.engine.recovery import OutOfMemoryEvent


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
        oom_events: steps that ran out of memory and were made again.
        exact: whether the weights are those of one replica with one big batch.
        inexact_because: the layers for which they are not, and why.
        epochs: passes over the training examples.
        updates: optimizer updates.
        examples_per_s: without the first step, which builds the graph; None for a single step.
        history: loss, val_loss and metrics, one number per epoch.
        training_peak_bytes: the most that any one device's allocator held; None if unknown.
        note: how the peak was measured, or why it is unknown.
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
    training_peak_bytes: int | None
    note: str | None
    notes: tuple[str, ...] = ()
    memory_timeline: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def oom_retries(self) -> int:
        """Times that a step was made again with a smaller micro-batch."""
        return len(self.oom_events)

    def to_dict(self) -> dict[str, Any]:
        """Return the report's `training` object; the peak belongs to its `memory` object."""
        record = asdict(self)
        del record["training_peak_bytes"], record["note"], record["notes"]
        record["oom_events"] = [asdict(event) for event in self.oom_events]
        record["inexact_because"] = list(self.inexact_because)
        record["history"] = {name: list(values) for name, values in self.history.items()}
        return {**record, "oom_retries": self.oom_retries}


def joined(records: Sequence[TrainingRecord]) -> TrainingRecord:
    """Return the record of trainings that followed each other, at least one, as one training.

    Epochs, updates, histories and timelines are strung together, the peak is the largest, and
    what describes a step is the last one's.
    """
    last = records[-1]
    peaks = [r.training_peak_bytes for r in records if r.training_peak_bytes is not None]
    return replace(
        last,
        oom_events=tuple(event for r in records for event in r.oom_events),
        epochs=sum(r.epochs for r in records),
        updates=sum(r.updates for r in records),
        history={name: [v for r in records for v in r.history[name]] for name in last.history},
        training_peak_bytes=max(peaks) if len(peaks) == len(records) else None,
        notes=tuple(dict.fromkeys(note for r in records for note in r.notes)),
        memory_timeline=_strung(records),
    )


def _strung(records: Sequence[TrainingRecord]) -> dict[str, list[Any]]:
    """Return the timelines after each other; updates and times go on where they were."""
    columns: dict[str, list[Any]] = {name: [] for name in records[-1].memory_timeline}
    updates, time_s = 0, 0.0
    for record in records:
        for name, values in record.memory_timeline.items():
            start = {"update": updates, "time_s": time_s}.get(name)
            columns[name] += values if start is None else [start + value for value in values]
        updates += record.updates
        time_s = max([*columns.get("time_s", []), time_s])
    return columns
