"""Peak memory of training on a device: what its allocator counts, and what it does not.

TensorFlow is imported on use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shrink.base.measurement import Measured
from shrink.measure.memory import AllocatorPeak
from shrink.measure.small_tensors import (
    BESIDE_TRAINING,
    SMALL_BYTES,
    Sampling,
    SmallTensorsPeak,
)

NO_WINDOW = "training made one update alone, which also builds the graph"


@dataclass(frozen=True)
class Parts:
    """What a peak is made of, in bytes.

    Attributes:
        allocator: the peak of the fullest device's allocator; None if unknown.
        small: how much higher the peak of all tensors is than that; None if unknown.
    """

    allocator: int | None = None
    small: int | None = None

    @property
    def total(self) -> int | None:
        """The peak, in bytes: a lower bound without the second part; None without the first."""
        return None if self.allocator is None else self.allocator + (self.small or 0)

    @property
    def is_lower_bound(self) -> bool:
        """Whether the small tensors are missing."""
        return self.small is None

    def or_more(self, other: Parts) -> Parts:
        """Return the larger one of each part."""
        return Parts(_larger(self.allocator, other.allocator), _larger(self.small, other.small))


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


class TrainingPeak(AllocatorPeak):
    """Reads the most memory that any one device held since `reset`, in both its parts.

    Args:
        devices: names of logical devices, such as "CPU:0".
        sampling: how often small tensors are measured.

    Attributes:
        small: looks at steps for what the allocator does not count; its note says why it cannot.
        counts_all: whether there is nothing that the allocator does not count, as on a GPU.
    """

    def __init__(
        self, devices: Sequence[str] = ("CPU:0",), sampling: Sampling = BESIDE_TRAINING
    ) -> None:
        super().__init__(devices)
        self.counts_all = not self.note and _counts_small(self, devices[0])
        looked_at = "the allocator counts them" if self.counts_all else self.note
        self.small = SmallTensorsPeak(self, looked_at, sampling)

    @property
    def is_complete(self) -> bool:
        """Whether every tensor can be counted."""
        return self.counts_all or not self.small.note

    def reset(self) -> None:
        """Start anew: the peak becomes what is held now."""
        super().reset()
        self.small.reset()

    def parts(self) -> Parts:
        """Return both parts of the peak."""
        highest = self.peak()
        return Parts(highest, 0 if self.counts_all else self.small.peak(highest or 0))


def _counts_small(peak: AllocatorPeak, device: str) -> bool:
    import tensorflow as tf

    before = peak.held() or 0
    with tf.device(device):
        tensors = [tf.zeros([SMALL_BYTES // 2], tf.uint8) for _ in range(4)]
    return bool((peak.held() or 0) - before >= len(tensors) * SMALL_BYTES // 2)


def figures(parts: Parts, allocator_note: str, small_note: str) -> dict[str, Measured[int]]:
    """Return the figures of a report, with what is missing.

    Args:
        parts: of the peak.
        allocator_note: why the first part is unknown, where it is.
        small_note: why the second part is unknown, where it is.
    """
    bound = f"a lower bound, without tensors under 256 KiB: {small_note}"
    known, whole = parts.allocator is not None, not parts.is_lower_bound
    return {
        "training_peak_bytes": Measured(
            parts.total, allocator_note if not known else "" if whole else bound
        ),
        "training_peak_allocator_bytes": Measured(parts.allocator, "" if known else allocator_note),
        "training_peak_small_bytes": Measured(
            parts.small, "" if whole else f"unknown: {small_note}"
        ),
    }
