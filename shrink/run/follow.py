"""Training on several machines: the chief runs the plan, the other workers follow.

The chief posts every job that trains on a board in the shared store (see `shrink.run.cluster`) and
runs it itself; the others run the same job at the same time, and throw away what they made. All
that is decided (what is in the store, which micro-batch, where to continue) the chief decides.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from shrink.base.console import Console
from shrink.base.errors import InternalError, Interrupted, ResourceError, ShrinkError, Terminated
from shrink.base.foreign import JsonObject
from shrink.contract.events import Event, Lost, Tick
from shrink.contract.job import Place, StepJob
from shrink.run.cluster import ChiefsBoard, FollowersBoard, Membership, Order
from shrink.run.process import WorkerDied, attempt
from shrink.run.runner import Runner

PATIENCE_S = 600.0
"""For how long a worker waits for a sign of life of its chief."""
LINGER_S = 30.0
"""For how long a chief that is done waits for the others to learn it."""
_POLL_S = 0.3
_STARTS = 5
_PEER_IS_GONE = ("UnavailableError", "AbortedError", "CancelledError", "coordination")


def follow(root: Path, place: Membership, console: Console) -> int:
    """Train where the chief says so, until it is done; return its exit code.

    Args:
        root: of the store.
        place: this worker's.
        console: where progress and warnings are printed.

    Raises:
        ResourceError: there is no sign of life of a chief.
    """
    board = FollowersBoard(_folder(root, place), place.index)
    return Follower(board, place, console).follow()


@contextlib.contextmanager
def leading(runner: Runner, root: Path, place: Membership | None) -> Iterator[None]:
    """Let a runner run in here with all workers, or alone where there are none.

    Args:
        runner: of the chief.
        root: of the store.
        place: this worker's; None without others.
    """
    if place is None:
        yield
        return
    with ChiefsBoard(_folder(root, place), place.workers) as board:
        chief, exit_code = Chief(board, place), InternalError.exit_code
        runner.attempt, runner.workers = chief.attempt, place.workers
        try:
            yield
            exit_code = runner.exit_code
        except ShrinkError as error:
            exit_code = error.exit_code
            raise
        finally:
            chief.end(exit_code)


def _folder(root: Path, place: Membership) -> Path:
    return root / "clusters" / place.key


class Chief:
    """Runs the jobs of a plan, and has the other workers train with it.

    Args:
        board: entered, where the orders are posted.
        place: this worker's.
    """

    def __init__(self, board: ChiefsBoard, place: Membership) -> None:
        self._board = board
        self._place = place

    def attempt(self, job: StepJob, work: Path, on_event: Callable[[Event], None]) -> JsonObject:
        """Do what `shrink.run.process.attempt` does, with all workers where the job trains."""
        if not job.trains:
            return attempt(job, work, on_event)
        together = replace(job, place=Place(self._place.workers, 0))
        lost = False  # training was interrupted, which the supervisor knows how to continue

        def listen(event: Event) -> None:
            nonlocal lost
            lost = lost or isinstance(event, Lost)
            if not isinstance(event, Tick):
                on_event(event)
                return
            for index, report in self._board.reports():
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
        self._board.post(job)
        try:
            return attempt(job, work, on_event)
        finally:
            self._board.post(None)

    def end(self, exit_code: int) -> None:
        """Have the other workers shut down with the exit code of the run; wait until they know."""
        self._board.post(None, exit_code)
        was_told_to_stop = exit_code in (Interrupted.exit_code, Terminated.exit_code)
        deadline = time.monotonic() + (0 if was_told_to_stop else LINGER_S)
        while len(self._board.reports()) < self._place.workers - 1:
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)


class _Superseded(Exception):
    """The chief wants something else by now."""


class Follower:
    """Trains with the chief, and leaves nothing behind.

    Args:
        board: where the orders are.
        place: this worker's.
        console: where progress and warnings are printed.
    """

    def __init__(self, board: FollowersBoard, place: Membership, console: Console) -> None:
        self._board = board
        self._place = place
        self._console = console

    def follow(self) -> int:
        """Run the chief's jobs until it is done; return its exit code.

        Raises:
            ResourceError: there is no sign of life of a chief.
        """
        self._console.say(f"worker {self._place.index} of {self._place.workers}: following")
        while True:
            order = self._wait()
            if order.exit_code is not None:
                self._board.report(order, {})
                return order.exit_code
            if order.job is not None and self._board.join(order):
                self._run_job(order, order.job)
            time.sleep(_POLL_S)

    def _wait(self) -> Order:
        """Return the order of a chief that is alive."""
        while True:
            silence_s, order = self._board.silence_s(), self._board.order()
            if order is not None and self._board.is_alive():
                return order
            if silence_s > PATIENCE_S:
                raise ResourceError(
                    f"no heartbeat from the chief (worker 0) for {silence_s:.0f} s",
                    subject="SHRINK_CACHE_DIR",
                    hint="all workers need the same cache on a shared disk, and the same recipe",
                )
            time.sleep(_POLL_S)

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
                    self._board.report(order, error.to_dict())

    def _is_superseded(self, order: Order) -> bool:
        now = self._board.order()
        gone = self._board.silence_s() > LINGER_S
        return gone or now is None or now.id != order.id


def _names_a_lost_peer(error: ShrinkError) -> bool:
    return any(word in error.message for word in _PEER_IS_GONE)
