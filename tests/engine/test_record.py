from __future__ import annotations

import math

from shrink.engine.record import MOST_POINTS, MemoryTimeline, TrainingRecord
from shrink.measure.memory import AllocatorPeak
from shrink.measure.training_peak import Parts


class Peaks(AllocatorPeak):
    """An allocator that holds 1 MB, and 9 MB in its 77th window."""

    def __init__(self) -> None:
        self.windows = 0

    def window(self) -> int | None:
        self.windows += 1
        return 9_000_000 if self.windows == 77 else 1_000_000


def test_timeline_stays_short_and_keeps_the_peak() -> None:
    timeline = MemoryTimeline(Peaks(), first_update=5, last_update=5_005)
    for _ in range(5_000):
        timeline.on_train_batch_end(0)
    columns = timeline.columns
    assert columns["update"] == list(range(43, 5_005, 43))
    assert len(columns["update"]) <= MOST_POINTS
    assert columns["device_bytes"][76] == max(columns["device_bytes"]) == 9_000_000
    assert min(columns["host_bytes"]) > 1_000_000


def test_timeline_ends_with_the_last_update_and_its_validation() -> None:
    class Last(Peaks):
        def window(self) -> int | None:
            super().window()
            return 1_000_000 * self.windows

    timeline = MemoryTimeline(Last(), first_update=0, last_update=MOST_POINTS + 1)
    for _ in range(MOST_POINTS + 1):
        timeline.on_train_batch_end(0)
    timeline.on_train_end()
    columns = timeline.columns
    assert columns["update"] == [*range(2, MOST_POINTS + 1, 2), MOST_POINTS + 1]
    timeline.on_train_end()
    assert columns["update"][-2:] == [MOST_POINTS, MOST_POINTS + 1]
    assert columns["device_bytes"][-1] == 62_000_000


def test_timeline_of_the_most_updates_per_row_stays_short() -> None:
    timeline = MemoryTimeline(Peaks(), first_update=0, last_update=MOST_POINTS * 7 - 1)
    for _ in range(MOST_POINTS * 7 - 1):
        timeline.on_train_batch_end(0)
    timeline.on_train_end()
    assert timeline.columns["update"][-1] == MOST_POINTS * 7 - 1
    assert len(timeline.columns["update"]) <= MOST_POINTS


def test_a_history_that_json_does_not_know_is_null_with_its_reason() -> None:
    record = TrainingRecord(
        replicas=1,
        workers=1,
        global_batch_size=8,
        micro_batch_size=8,
        accumulation_steps=1,
        precision="float32",
        memory_limit_bytes=None,
        oom_events=(),
        exact=True,
        inexact_because=(),
        epochs=2,
        updates=2,
        examples_per_s=None,
        history={"loss": (1.0, 0.5), "val_loss": (math.inf, 0.25)},
        peak=Parts(1, 0),
    )
    assert record.described().history == {"loss": (1.0, 0.5), "val_loss": (None, 0.25)}
    assert record.lost == ("history: val_loss was NaN or infinite after epoch 1",)
