"""Memory over the course of a training run: the device's peaks and the process's size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tf_keras as keras

from shrink.base.host import host_resident_bytes
from shrink.measure.memory import AllocatorPeak

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

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Take a sample if one is due."""
        self._update += 1
        if self._update % self._stride == 0:
            self._sample()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Take a sample of what the validation held, as part of the epoch's last update."""
        self._sample()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the samples by column."""
        names = ("update", "time_s", "device_bytes", "host_bytes")
        return {name: [getattr(sample, name) for sample in self.samples] for name in names}

    def _sample(self) -> None:
        elapsed = time.perf_counter() - self._began
        found = Sample(self._update, elapsed, self._memory.window(), host_resident_bytes())
        if self.samples and self.samples[-1].update == self._update:
            found = merged(self.samples.pop(), found)
        self.samples.append(found)
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
