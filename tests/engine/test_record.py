from __future__ import annotations

import math

from shrink.engine.record import (
    MOST_POINTS,
    MemoryTimeline,
    Sample,
    TrainingRecord,
    merged,
    thinned,
)
from shrink.measure.memory import AllocatorPeak
from shrink.measure.training_peak import Parts


class Peaks(AllocatorPeak):
    """An allocator that holds 1 MB, and 9 MB in its 777th window."""

    def __init__(self) -> None:
        self.windows = 0

    def window(self) -> int | None:
        self.windows += 1
        return 9_000_000 if self.windows == 777 else 1_000_000


def test_timeline_stays_short_and_keeps_the_peak() -> None:
    timeline = MemoryTimeline(Peaks(), first_update=5)
    for _ in range(777):
        timeline._stride = 1  # every update is a window, or the 777th would lie in another
        timeline.on_train_batch_end(0)
    for _ in range(5_000):
        timeline.on_train_batch_end(0)
    columns = timeline.to_dict()
    assert 10 < len(columns["update"]) <= MOST_POINTS
    assert columns["update"] == sorted(set(columns["update"]))
    assert max(columns["device_bytes"]) == 9_000_000
    assert min(columns["host_bytes"]) > 1_000_000


def test_timeline_counts_the_end_of_an_epoch_to_its_last_update() -> None:
    timeline = MemoryTimeline(Peaks())
    timeline.on_train_batch_end(0)
    timeline.on_epoch_end(0)
    assert timeline.to_dict()["update"] == [1]


def test_thinned_keeps_the_last_moment_and_all_peaks() -> None:
    samples = [Sample(i, float(i), 10 - i, 100 + i) for i in range(5)]
    assert thinned(samples) == [
        Sample(1, 1.0, 10, 101),
        Sample(3, 3.0, 8, 103),
        Sample(4, 4.0, 6, 104),
    ]


def test_merged_knows_what_only_one_knows() -> None:
    assert merged(Sample(1, 1.0, None, 5), Sample(2, 2.0, 7, 4)) == Sample(2, 2.0, 7, 5)
    assert merged(Sample(1, 1.0, None, 5), Sample(2, 2.0, None, 4)).device_bytes is None


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
        history={"loss": [1.0, 0.5], "val_loss": [math.inf, 0.25]},
        peak=Parts(1, 0),
    )
    assert record.described().history == {"loss": (1.0, 0.5), "val_loss": (None, 0.25)}
    assert record.lost == ("history: val_loss was NaN or infinite after epoch 1",)
