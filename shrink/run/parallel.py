"""Several runs of a sweep at a time: each in a fork of this process, with memory of its own.

The command's process is small and has no threads: a fork costs milliseconds and has every plan
already. Stages that runs share are computed once: the first run that needs a stage locks it in the
store, the others wait and take what it stored.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

from shrink.base.child import die_with_parent
from shrink.base.errors import (
    InternalError,
    Interrupted,
    RecipeError,
    ResourceError,
    ShrinkError,
    Terminated,
)
from shrink.base.figures import format_value
from shrink.base.host import HOST_SHARED_BY, HostMemory, has_nvidia_gpu
from shrink.recipe.plan import Plan
from shrink.run.host_plan import PROCESS_BYTES

T = TypeVar("T")
LEAST_BYTES = 2_000_000_000
"""What a run gets at least, where no memory limit says what it needs."""


def check_memory(plans: Sequence[Plan], jobs: int, host_bytes: int | None = None) -> None:
    """Refuse more runs at a time than fit in memory.

    With `training.memory_limit` a run takes the limit and what its process takes beside it.

    Args:
        plans: of the runs.
        jobs: how many run at a time, above 1.
        host_bytes: of this host, or its control group; by default what the kernel says.

    Raises:
        RecipeError: the host has too little, or runs would share GPUs without limits.
    """
    host = HostMemory().limit_bytes() if host_bytes is None else host_bytes
    trains = [step.training.memory_limit for plan in plans for step in plan.steps if step.epochs]
    limits = [limit for limit in trains if limit is not None]
    if len(limits) < len(trains) and has_nvidia_gpu():
        raise RecipeError(
            f"{jobs} runs would share the memory of the GPUs without a limit for each",
            subject=f"--jobs {jobs}",
            hint="set training.memory_limit to what each run may take, or leave --jobs out",
        )
    unlimited = LEAST_BYTES if len(limits) < len(trains) or not trains else 0
    needed = max([unlimited, *(limit + PROCESS_BYTES for limit in limits)])
    if jobs * needed <= host:
        return
    fits = max(host // needed, 1)
    why = (
        f"each takes up to {_size(max(limits))} (training.memory_limit) and "
        f"{_size(PROCESS_BYTES)} for its process"
        if limits and needed > LEAST_BYTES
        else f"each gets at least {_size(LEAST_BYTES)}"
    )
    raise RecipeError(
        f"{jobs} runs in parallel need {_size(jobs * needed)}, and there are {_size(host)}: {why}",
        subject=f"--jobs {jobs}",
        hint=f"use --jobs {fits}" + (", or a smaller training.memory_limit" if limits else ""),
    )


def _size(count: int) -> str:
    return format_value(count, "bytes")


class Pool:
    """Runs functions in forks, so many at a time.

    Args:
        jobs: how many.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._running: dict[Connection, tuple[int, ForkProcess]] = {}

    def run(self, count: int, work: Callable[[int], T]) -> Iterator[tuple[int, T | ShrinkError]]:
        """Yield what `work` returns or how it ended, by its number, in the order of their ends.

        A signal that ends this process is passed on to the forks, whose ends are waited for.

        Args:
            count: how often; `work` is called with 0, 1, ...
            work: called in a fork; what it returns is pickled.
        """
        waiting = list(range(count))
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self._jobs:
                    self._start(waiting.pop(0), work)
                yield from self._ended()
        except (Interrupted, Terminated) as error:
            number = signal.SIGINT if isinstance(error, Interrupted) else signal.SIGTERM
            for _, process in self._running.values():
                with contextlib.suppress(ProcessLookupError):
                    if process.is_alive() and process.ident:
                        os.kill(process.ident, number)
            while self._running:
                yield from self._ended()
            raise
        finally:
            for _, process in self._running.values():
                process.kill()
                process.join()
            self._running.clear()

    def _start(self, index: int, work: Callable[[int], object]) -> None:
        fork = multiprocessing.get_context("fork")
        reader, writer = fork.Pipe(duplex=False)
        # Until the fork is noted: a signal before that would not be passed on to it.
        with _held_signals() as release:
            arguments = (writer, os.getpid(), self._jobs, release, lambda: work(index))
            process = fork.Process(target=_serve, args=arguments)
            process.start()
            writer.close()
            self._running[reader] = (index, process)

    def _ended(self) -> Iterator[tuple[int, Any]]:
        ready = wait([*self._running])
        for reader in [one for one in self._running if one in ready]:
            index, process = self._running.pop(reader)
            answer = None
            with contextlib.suppress(EOFError, OSError):
                answer = reader.recv()
            process.join()
            reader.close()
            yield index, _no_answer(process.exitcode or 0) if answer is None else answer


@contextlib.contextmanager
def _held_signals() -> Iterator[Callable[[], None]]:
    """Hold back SIGINT and SIGTERM to the end of the block; yield what a fork releases them by."""
    held: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()  # no other has handlers
    before = {
        number: signal.signal(number, lambda one, _: held.append(one))
        for number in ((signal.SIGINT, signal.SIGTERM) if is_main else ())
    }

    def release() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in held[:1]:
            signal.raise_signal(one)

    try:
        yield release
    finally:
        release()


def _serve(
    writer: Connection,
    parent: int,
    shared_by: int,
    release: Callable[[], None],
    work: Callable[[], object],
) -> None:
    """Do the work of a fork, and send its answer."""
    # A Ctrl-C on the terminal reaches the parent alone, which passes it on once.
    os.setsid()
    die_with_parent(parent)
    os.environ[HOST_SHARED_BY] = str(shared_by)
    try:
        release()
        writer.send(work())
    except ShrinkError as error:
        writer.send(error)


def _no_answer(code: int) -> ShrinkError:
    if code < 0:
        return ResourceError(
            f"the run was killed by {signal.Signals(-code).name}",
            hint="run again with fewer --jobs; what was computed is kept",
        )
    return InternalError(f"the run ended without an answer (exit {code})")
