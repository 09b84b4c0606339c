"""What a worker is doing at this moment, in memory that outlives its death by a signal."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass

_LAYOUT = struct.Struct("qq")
_NOT_TRAINING = -1


@dataclass(frozen=True)
class Beat:
    """An update in progress.

    Attributes:
        step: index of the update, from 0.
        micro_batch_size: examples per forward pass and replica.
    """

    step: int
    micro_batch_size: int


class Heartbeat:
    """A few bytes that a process and the child that inherits its descriptor both see.

    Args:
        descriptor: of an anonymous file, from `create` in this process or in the parent.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _LAYOUT.size)

    @classmethod
    def create(cls) -> Heartbeat:
        """Return a new one, at rest."""
        descriptor = os.memfd_create("shrink-heartbeat")
        os.ftruncate(descriptor, _LAYOUT.size)
        heartbeat = cls(descriptor)
        heartbeat.rest()
        return heartbeat

    def beat(self, step: int, micro_batch_size: int) -> None:
        """Say that this update begins."""
        _LAYOUT.pack_into(self._memory, 0, step, micro_batch_size)

    def rest(self) -> None:
        """Say that nothing is being trained."""
        self.beat(_NOT_TRAINING, 0)

    def read(self) -> Beat | None:
        """Return the update in progress; None where nothing is being trained."""
        step, micro_batch_size = _LAYOUT.unpack_from(self._memory, 0)
        return None if step == _NOT_TRAINING else Beat(step, micro_batch_size)

    def close(self) -> None:
        """Give the memory and the descriptor back."""
        self._memory.close()
        os.close(self.descriptor)
