"""Lets the parent process know what its worker trains, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from shrink.engine.heartbeat import Heartbeat
from shrink.engine.recovery import OutOfMemoryEvent


class ParentWatcher:
    """A `shrink.engine.recovery.Watcher` whose news reach the parent, whatever ends the worker.

    Args:
        heartbeat: shared with the parent; None where there is none.
        send: sends an event with fields to the parent.
    """

    def __init__(self, heartbeat: Heartbeat | None, send: Callable[..., None]) -> None:
        self._heartbeat = heartbeat
        self._send = send

    def begins(self, step: int, micro_batch_size: int) -> None:
        """Note the update in memory that the parent sees."""
        if self._heartbeat is not None:
            self._heartbeat.beat(step, micro_batch_size)

    def out_of_memory(self, event: OutOfMemoryEvent) -> None:
        """Send the event."""
        self._send("out_of_memory", **asdict(event))

    def lost(self, evidence: str, *, memory: bool) -> None:
        """Send what ended training, and in which update."""
        beat = self._heartbeat.read() if self._heartbeat is not None else None
        if beat is not None:
            self._send("lost", **asdict(beat), evidence=evidence, memory=memory)

    def rest(self) -> None:
        """Say that training is over."""
        if self._heartbeat is not None:
            self._heartbeat.rest()
