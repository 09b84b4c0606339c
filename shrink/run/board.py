"""The board on which the chief of a cluster tells the others what to run: files they all see.

    state.json       the session, the number of the order, and the job that it asks for
    beat             changes as long as the chief lives
    joined-<n>.json  the last order that worker n has taken
    worker-<n>.json  how an order went on worker n, where it went wrong

It lies in the store, which all machines share. Every file is replaced as a whole.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from shrink.base import files
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.job import StepJob

BEAT_S = 1.0
_STATE, _BEAT = "state.json", "beat"


@dataclass(frozen=True)
class Order:
    """What the chief wants now.

    Attributes:
        session: of the chief's process.
        number: counts orders; a new one ends the one before.
        job: the job to run, or None for nothing.
        exit_code: of the chief, once it is at its end.
    """

    session: str
    number: int
    job: StepJob | None = None
    exit_code: int | None = None


class ChiefsBoard:
    """The chief's side; a context, in which the others see that it lives.

    Args:
        folder: where the board is.
        workers: how many workers there are, the chief among them.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._order = Order(uuid.uuid4().hex, 0)
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> ChiefsBoard:
        files.make_folder(self._folder)
        self.post(None)
        self._beats.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._beats.join()

    def post(self, job: StepJob | None, exit_code: int | None = None) -> None:
        """Replace the order."""
        number = self._order.number + 1
        self._order = Order(self._order.session, number, job, exit_code)
        files.write_json(self._folder / _STATE, to_plain(self._order))

    def reports(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the index and the error of every worker for which this order went wrong."""
        found = []
        for index in range(1, self._workers):
            report = _read(self._folder / _report_name(index))
            if report and (report["session"], report["number"]) == self._now():
                found.append((index, report["error"]))
        return found

    def _now(self) -> tuple[str, int]:
        return self._order.session, self._order.number

    def _beat(self) -> None:
        count = 0
        while not self._ended.wait(BEAT_S):
            count += 1
            files.write_text(self._folder / _BEAT, f"{self._order.session} {count}")


class FollowersBoard:
    """Another worker's side.

    Args:
        folder: where the board is.
        index: the worker's number.
    """

    def __init__(self, folder: Path, index: int) -> None:
        self._folder = folder
        self._index = index
        self._beat = self._first = _text(folder / _BEAT)
        self._changed_at = time.monotonic()

    def order(self) -> Order | None:
        """Return the present order; None where there is none to be read."""
        state = _read(self._folder / _STATE)
        return from_plain(Order, state) if state else None

    def silence_s(self) -> float:
        """Return for how many seconds the chief has shown no sign of life."""
        beat = _text(self._folder / _BEAT)
        if beat != self._beat:
            self._beat, self._changed_at = beat, time.monotonic()
        return time.monotonic() - self._changed_at

    def is_alive(self, order: Order) -> bool:
        """Whether the order's chief has shown a sign of life since this board was opened."""
        return self._beat != self._first and self._beat.startswith(order.session)

    def join(self, order: Order) -> bool:
        """Take an order, and return whether this worker had not taken it yet.

        One that was taken in an earlier life of this worker is lost: those that work on it have
        noticed the death, or will, and cannot be joined any more.
        """
        path, ours = self._folder / f"joined-{self._index}.json", [order.session, order.number]
        if _read(path) == ours:
            return False
        files.write_json(path, ours)
        return True

    def report(self, order: Order, error: dict[str, Any]) -> None:
        """Tell the chief that an order went wrong here."""
        content = {"session": order.session, "number": order.number, "error": error}
        files.write_json(self._folder / _report_name(self._index), content)


def _report_name(index: int) -> str:
    return f"worker-{index}.json"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _read(path: Path) -> Any:
    text = _text(path)
    return json.loads(text) if text else None
