"""Training on several machines: the chief runs the plan, the other workers follow.

The chief posts every job that trains in a folder of the shared store and runs it itself; the others
run the same job at the same time, and throw away what they made. All that is decided (what is in
the store, which micro-batch, where to continue) the chief decides. The folder holds

    order.json       what the chief wants now; it changes every second as long as the chief lives
    worker-<n>.json  the last order that worker n has taken, and what went wrong with it
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import InternalError, Interrupted, ResourceError, ShrinkError, Terminated
from shrink.base.foreign import JsonObject
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.events import Event, Lost, Tick
from shrink.contract.job import Place, StepJob
from shrink.run.cluster import ClusterPlace
from shrink.run.process import WorkerDied, attempt
from shrink.run.runner import Runner

BEAT_S = 1.0
PATIENCE_S = 600.0
"""For how long a worker waits for a sign of life of its chief."""
LINGER_S = 30.0
"""For how long a chief that is done waits for the others to learn it."""
_POLL_S = 0.3
_STARTS = 5
_PEER_IS_GONE = ("UnavailableError", "AbortedError", "CancelledError", "coordination")


@dataclass(frozen=True)
class Order:
    """What the chief wants now; a new one ends the one before.

    Attributes:
        id: tells it from all others.
        job: the job to run, or None for nothing.
        exit_code: of the chief, once it is at its end.
        beat: counts the chief's signs of life.
    """

    id: str
    job: StepJob | None = None
    exit_code: int | None = None
    beat: int = 0


def cluster_folder(root: Path, place: ClusterPlace) -> Path:
    """Return the folder in the store that the machines of a cluster share."""
    return root / "clusters" / place.key


def _order_file(folder: Path) -> Path:
    return folder / "order.json"


def _is_missing(path: Path) -> bool:
    """Whether there is no such file, unlike one that cannot be read for a moment."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _worker_file(folder: Path, index: int) -> Path:
    return folder / f"worker-{index}.json"


@contextlib.contextmanager
def leading(runner: Runner, root: Path, place: ClusterPlace | None) -> Iterator[None]:
    """Let a runner run in here with all workers, or alone where there are none.

    Args:
        runner: of the chief.
        root: of the store.
        place: this worker's; None without others.
    """
    if place is None:
        yield
        return
    with Chief(cluster_folder(root, place), place.workers) as chief:
        exit_code = InternalError.exit_code
        runner.attempt, runner.workers = chief.attempt, place.workers
        try:
            yield
            exit_code = runner.exit_code
        except ShrinkError as error:
            exit_code = error.exit_code
            raise
        finally:
            chief.end(exit_code)


class Chief:
    """Runs the jobs of a plan with the other workers; a context, in which these see that it lives.

    Args:
        folder: that the workers share.
        workers: how many there are, the chief among them.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder, self._workers = folder, workers
        self._order = Order("")
        self._posting, self._ended = threading.Lock(), threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Chief:
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
        self._write(Order(uuid.uuid4().hex, job, exit_code))

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            self._write(None)

    def _write(self, order: Order | None) -> None:
        with self._posting:
            self._order = order or replace(self._order, beat=self._order.beat + 1)
            files.write_json(_order_file(self._folder), to_plain(self._order))

    def reports(self) -> list[tuple[int, JsonObject]]:
        """Return the index and the error of every worker for which this order went wrong."""
        found = []
        for index in range(1, self._workers):
            report = files.read_mapping(_worker_file(self._folder, index))
            if report.get("id") == self._order.id and report["error"] is not None:
                found.append((index, report["error"]))
        return found

    def attempt(self, job: StepJob, work: Path, on_event: Callable[[Event], None]) -> JsonObject:
        """Do what `shrink.run.process.attempt` does, with all workers where the job trains."""
        if not job.trains:
            return attempt(job, work, on_event)
        together = replace(job, place=Place(self._workers, 0))
        lost = False  # training was interrupted, which the supervisor knows how to continue

        def listen(event: Event) -> None:
            nonlocal lost
            lost = lost or isinstance(event, Lost)
            if not isinstance(event, Tick):
                on_event(event)
                return
            for index, report in self.reports():
                error = ShrinkError.from_dict(report)
                error.message = f"worker {index}: {error.message}"
                raise error

        for _ in range(_STARTS - 1):
            try:
                return self._attempt(together, work, listen)
            except ShrinkError as error:
                # A worker that comes or goes while the others connect; nothing is trained yet.
                if lost or not _names_a_lost_peer(error):
                    raise
        return self._attempt(together, work, listen)

    def _attempt(self, job: StepJob, work: Path, on_event: Callable[[Event], None]) -> JsonObject:
        self.post(job)
        try:
            return attempt(job, work, on_event)
        finally:
            self.post(None)

    def end(self, exit_code: int) -> None:
        """Have the other workers shut down with the exit code of the run; wait until they know."""
        self.post(None, exit_code)
        was_told_to_stop = exit_code in (Interrupted.exit_code, Terminated.exit_code)
        deadline = time.monotonic() + (0 if was_told_to_stop else LINGER_S)
        while len(self.reports()) < self._workers - 1 and time.monotonic() <= deadline:
            time.sleep(_POLL_S)


class _Superseded(Exception):
    """The chief wants something else by now."""


class Follower:
    """Trains with the chief, and leaves nothing behind.

    Args:
        folder: that the workers share.
        place: this worker's.
        console: where progress and warnings are printed.
    """

    def __init__(self, folder: Path, place: ClusterPlace, console: Console) -> None:
        self._folder, self._place, self._console = folder, place, console
        self._file = _worker_file(folder, place.index)
        self._last = files.read_mapping(_order_file(folder))
        self._first = self._last if self._last or _is_missing(_order_file(folder)) else None
        self._changed_at = time.monotonic()

    def follow(self) -> int:
        """Train where the chief says so, until it is done; return its exit code.

        Raises:
            ResourceError: there is no sign of life of a chief, or none any more.
        """
        self._console.say(f"worker {self._place.index} of {self._place.workers}: following")
        while True:
            order = self.order()
            silence_s = time.monotonic() - self._changed_at
            if silence_s > PATIENCE_S:
                raise ResourceError(
                    f"no heartbeat from the chief (worker 0) for {silence_s:.0f} s",
                    subject="SHRINK_CACHE_DIR",
                    hint="all workers need the same cache on a shared disk, and the same recipe",
                )
            if order is not None and self.is_led():
                if order.exit_code is not None:
                    self.report(order, {})
                    return order.exit_code
                if order.job is not None and self.join(order):
                    self._run_job(order, order.job)
            time.sleep(_POLL_S)

    def order(self) -> Order | None:
        """Return the last order that could be read; None where there has been none.

        A file that is replaced every second cannot always be read on a network's disk.
        """
        found = files.read_mapping(_order_file(self._folder)) or self._last
        if self._first is None and found:  # it may be of a chief that ended before
            self._first = self._last = found
        if found != self._last:
            self._last, self._changed_at = found, time.monotonic()
        return from_plain(Order, found) if found else None

    def is_led(self) -> bool:
        """Whether a chief has shown a sign of life since this worker began."""
        return self._first is not None and self._last != self._first

    def join(self, order: Order) -> bool:
        """Take an order, and return whether this worker had not taken it yet.

        One that was taken in an earlier life of this worker is lost: those that work on it have
        noticed the death, or will, and cannot be joined any more.
        """
        if files.read_mapping(self._file).get("id") == order.id:
            return False
        self.report(order, None)
        return True

    def report(self, order: Order, error: JsonObject | None) -> None:
        """Tell the chief what went wrong with an order here; None for nothing yet."""
        files.write_json(self._file, {"id": order.id, "error": error})

    def _run_job(self, order: Order, job: StepJob) -> None:
        lost = False

        def listen(event: Event) -> None:
            nonlocal lost
            lost = lost or isinstance(event, Lost)
            if isinstance(event, Tick) and self._is_superseded(order):
                raise _Superseded

        self._console.say(f"worker {self._place.index}: training {job.name}")
        place = Place(self._place.workers, self._place.index)
        with tempfile.TemporaryDirectory(prefix="shrink-") as folder:
            mine = replace(job, action="follow", place=place)
            try:
                attempt(mine, Path(folder), listen)
            except _Superseded:
                return
            except WorkerDied as death:
                self._console.warn(f"worker {self._place.index}: {death.as_error()}")
            except ShrinkError as error:
                self._console.warn(f"worker {self._place.index}: {error}")
                if not lost and not _names_a_lost_peer(error):
                    self.report(order, error.to_dict())

    def _is_superseded(self, order: Order) -> bool:
        now = self.order()
        gone = time.monotonic() - self._changed_at > LINGER_S
        return gone or (now is not None and now.id != order.id)


def _names_a_lost_peer(error: ShrinkError) -> bool:
    return any(word in error.message for word in _PEER_IS_GONE)
