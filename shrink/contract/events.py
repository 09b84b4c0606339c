"""What a worker tells its parent, one JSON object a line; `event` is the name of its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shrink.base.activity import Phase, Progress, Share
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


@dataclass(frozen=True)
class Finished:
    """The job is done; `result` is what it gave, as plain data."""

    result: Any


@dataclass(frozen=True)
class Failed:
    """The job ended in an error, from `ShrinkError.to_dict`."""

    error: Mapping[str, Any]


Event = Phase | Share | Progress | OutOfMemoryEvent | Lost | Tick
"""What is told while a job is worked on."""
Message = Event | Finished | Failed
Send = Callable[[Event], None]

_KINDS: Mapping[str, type[Message]] = {
    "phase": Phase,
    "share": Share,
    "progress": Progress,
    "out_of_memory": OutOfMemoryEvent,
    "lost": Lost,
    "tick": Tick,
    "result": Finished,
    "error": Failed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def message_to_plain(message: Message) -> dict[str, Any]:
    """Return a message as JSON's data."""
    return {"event": _NAMES[type(message)], **to_plain(message)}


def read_message(plain: Mapping[str, Any]) -> Message:
    """Return the message that `message_to_plain` made plain."""
    fields = {key: value for key, value in plain.items() if key != "event"}
    return from_plain(_KINDS[plain["event"]], fields)
