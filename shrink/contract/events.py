"""Events that a worker sends to its parent, and its heartbeat in shared memory.

An event is one JSON object a line; `event` is the name of its type. Python writes and reads NaN and
infinities there, which a loss may be.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shrink.base.foreign import Json, JsonObject
from shrink.base.progress import Activity, Phase, Progress, Share
from shrink.contract.codec import from_plain, to_plain


@dataclass(frozen=True)
class OutOfMemoryEvent:
    """A step that ran out of memory.

    Attributes:
        step: index of the update, from 0.
        micro_batch_size: examples per forward pass and replica that did not fit.
        evidence: the line of the framework's error that speaks of memory.
    """

    step: int
    micro_batch_size: int
    evidence: str


@dataclass(frozen=True)
class Lost(OutOfMemoryEvent):
    """Training ended in this update, and another process can go on.

    Attributes:
        memory: whether the evidence speaks of memory.
    """

    memory: bool


@dataclass(frozen=True)
class Tick:
    """Nothing is new; the parent looks what other machines do."""


Event = Activity | OutOfMemoryEvent | Lost | Tick
"""What a worker reports while it works on a job."""
Send = Callable[[Event], None]

_KINDS: Mapping[str, type[Event]] = {
    "phase": Phase,
    "share": Share,
    "progress": Progress,
    "out_of_memory": OutOfMemoryEvent,
    "lost": Lost,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def message_to_plain(message: Event) -> JsonObject:
    """Return a message as JSON's data."""
    return {"event": _NAMES[type(message)], **to_plain(message)}


def read_message(plain: Mapping[str, Json]) -> Event:
    """Return the message that `message_to_plain` made plain."""
    fields = {key: value for key, value in plain.items() if key != "event"}
    return from_plain(_KINDS[plain["event"]], fields)


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
