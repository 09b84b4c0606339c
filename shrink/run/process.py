"""One worker process: starts it, reads its events, and turns its death into a typed error."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from shrink.base import files
from shrink.base.child import Child
from shrink.base.console import Console
from shrink.base.errors import InternalError, ModelError, ResourceError, ShrinkError, StageError
from shrink.base.forkserver import Preloaded, switched_off
from shrink.base.host import HOST_LIMIT, HostMemory, host_peak_bytes
from shrink.base.packages import lacks_keras
from shrink.base.progress import Activity, Printed
from shrink.base.types import JsonObject
from shrink.contract.codec import to_plain
from shrink.contract.events import Beat, Event, Heartbeat, Tick, read_message
from shrink.contract.job import Job, StepJob

LOG_NAME = "worker.log"
"""In a worker's folder: what it printed, of all attempts."""
_LOG_TAIL_LINES = 15
_TAIL_BYTES, _PIECE_BYTES, _KEPT_BYTES = 1 << 16, 1 << 20, 1 << 21
_FRESH = ("doctor",)
"""Actions that are to find out how a process starts."""
_MEMORY_WORDS = ("bad_alloc", "Cannot allocate memory", "OOM when allocating", "RESOURCE_EXHAUSTED")


@dataclass(eq=False)
class WorkerDied(Exception):
    """A worker ended without a result.

    Attributes:
        name: what it was working on.
        code: its exit code, negative for a signal.
        beat: the update that it was making; None where it was not training.
        host_peak_bytes: the most resident memory that was seen.
        memory_evidence: what speaks for memory as the cause; empty if nothing does.
        log: the last lines that it printed.
    """

    name: str
    code: int | None
    beat: Beat | None = None
    host_peak_bytes: int = 0
    memory_evidence: str = ""
    log: str = ""

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that ended it, if one did."""
        return signal.Signals(-self.code) if self.code is not None and self.code < 0 else None

    def as_error(self) -> ShrinkError:
        """Return what the death means to a user."""
        if self.signal is None:
            message = f"the worker ended without a result (exit {self.code})\n{self.log}"
            return InternalError(message, subject=self.name)
        if self.signal is signal.SIGALRM:
            return ModelError(
                "loading a model took longer than any file of its size should",
                subject=self.name,
                hint="save the model again, or give the function that builds it",
            )
        peak = f"its resident memory had reached {self.host_peak_bytes / 1e6:.0f} MB"
        message = f"the worker was killed by {self.signal.name}; {peak}"
        if self.memory_evidence:
            return ResourceError(
                f"{message}, and it was memory: {self.memory_evidence}\n{self.log}",
                subject=self.name,
                hint=_LESS_MEMORY,
            )
        hint = f"if the kernel ended it for want of memory, {_LESS_MEMORY}"
        return StageError(f"{message}\n{self.log}".rstrip(), subject=self.name, hint=hint)


_LESS_MEMORY = (
    "set a smaller training.micro_batch_size; a stage that trains nothing needs more memory"
)


class _Held:
    """The process of which workers are forks, once it is started; workers of forks use it, too."""

    process: Preloaded | None = None


def preload() -> None:
    """Start a process that does the imports of workers, of which those that follow are forks.

    It costs nothing to have asked twice. Where it may not be used, workers are fresh processes.
    """
    if _Held.process is None and not switched_off():
        with contextlib.suppress(OSError):
            _Held.process = Preloaded("shrink.run.forkserver", _environment(Path(), alone=True))


@contextlib.contextmanager
def preloading() -> Iterator[None]:
    """Preload for as long as one call takes; in a process that lives on nothing is left of it.

    The process would end with the thread that started it, and threads are not forked for: in any
    but the main one workers are fresh processes. A process that there already is stays.
    """
    own = _Held.process is None and threading.current_thread() is threading.main_thread()
    if own:
        preload()
    try:
        yield
    finally:
        if own and _Held.process is not None:
            _Held.process.close()
            _Held.process = None


def preloading_refused() -> str:
    """Return why workers here are fresh processes; empty where they are forks.

    Starts the process that does the imports, if none is, and waits until they are done.
    """
    if why := switched_off():
        return why
    if lacks_keras():
        return "TensorFlow is not installed"
    preload()
    return "it did not start" if _Held.process is None else _Held.process.refusal()


def run_worker(job: Job, work: Path, on_event: Callable[[Event], None]) -> JsonObject:
    """Run one job in a fresh process and return its result.

    Args:
        job: what the worker shall do.
        work: the worker's folder; its files are left there, and its log is appended to.
        on_event: called with each progress event.

    Raises:
        ShrinkError: whatever the worker raised, or what its death means.
    """
    try:
        return attempt(job, work, on_event)
    except WorkerDied as death:
        raise death.as_error() from death


def attempt(job: Job, work: Path, on_event: Callable[[Event], None]) -> JsonObject:
    """Do what `run_worker` does, but leave it to the caller what a death means.

    Raises:
        WorkerDied: the worker ended without a result.
        ShrinkError: whatever the worker raised.
    """
    heartbeat = Heartbeat.create()
    try:
        given = replace(job, work=work, heartbeat=heartbeat.descriptor)
        return _attempt(given, work, on_event, heartbeat)
    finally:
        heartbeat.close()


def _attempt(
    job: Job, work: Path, on_event: Callable[[Event], None], heartbeat: Heartbeat
) -> JsonObject:
    memory, host_peak, log = HostMemory(), 0, _Log(work / LOG_NAME)
    with log.appending(job) as descriptor:
        child = start_worker(job, work, descriptor, (heartbeat.descriptor,))
    with child:
        for message in child.messages():
            with contextlib.suppress(ResourceError):  # it may have ended
                host_peak = max(host_peak, host_peak_bytes(child.pid))
            for printed in log.new_lines():
                on_event(Printed(printed))
            if message is not None:
                on_event(read_message(message))
            if job.place is not None:
                on_event(Tick())
    for printed in log.new_lines(at_the_end=True):
        on_event(Printed(printed))
    if child.error is not None:
        if isinstance(child.error, InternalError):
            child.error.message += f"\n{log.tail()}"
        raise child.error
    if child.result is None or child.code != 0:
        raise WorkerDied(
            job.name,
            child.code,
            beat=heartbeat.read(),
            host_peak_bytes=host_peak,
            memory_evidence=memory.evidence(host_peak) or _memory_words(log.tail()),
            log=log.tail(),
        )
    return dict(child.result)


def start_worker(job: Job, work: Path, output: int, descriptors: Sequence[int] = ()) -> Child:
    """Return a worker that has been given its job; a context, at whose end it is ended.

    Args:
        job: what it shall do.
        work: its folder.
        output: descriptor of the file that it prints to.
        descriptors: that it inherits.

    Raises:
        OSError: it could not be started.
    """
    limit = job.training["host_memory_limit"] if isinstance(job, StepJob) else None
    return Child(
        "shrink.run.worker",
        to_plain(job),
        output,
        _environment(work, alone=job.place is None)
        | ({} if limit is None else {HOST_LIMIT: str(limit)}),
        descriptors=descriptors,
        preloaded=None if job.place is not None or job.action in _FRESH else _Held.process,
    )


class _Log:
    """A worker's log: a file to which each attempt is appended, read while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = self._read = 0

    @contextlib.contextmanager
    def appending(self, job: Job) -> Iterator[int]:
        """Begin an attempt with a line that says what it is; yield the descriptor to print to.

        Raises:
            ResourceError: the disk is full.
        """
        with files.open_to_append(self._path) as stream:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            with files.typed_errors(self._path):
                stream.write(f"--- {job.name}: {job.action}, begun {now} ---\n".encode())
            self._begin = self._read = stream.tell()
            yield stream.fileno()

    def new_lines(self, *, at_the_end: bool = False) -> Iterator[tuple[str, ...]]:
        """Yield the lines since the last call, some at a time; an incomplete one at the end."""
        while printed := self._from(self._read):
            whole = printed[: printed.rfind(b"\n") + 1]
            if not whole and (at_the_end or len(printed) == _PIECE_BYTES):
                whole = printed
            if not whole:
                return
            self._read += len(whole)
            yield tuple(whole.decode("utf-8", "replace").splitlines())

    def tail(self) -> str:
        """Return the last of the lines that were read in this attempt."""
        last = self._from(max(self._begin, self._read - _TAIL_BYTES))
        lines = last.decode("utf-8", "replace").splitlines()
        return "\n".join(f"  | {line}" for line in lines[-_LOG_TAIL_LINES:])

    def _from(self, begin: int) -> bytes:
        try:
            with self._path.open("rb") as stream:
                stream.seek(begin)
                return stream.read(_PIECE_BYTES)
        except OSError:
            return b""


def log_to_keep(path: Path) -> bytes:
    """Return a worker's log, of a long one the begin and the end.

    A model that prints in every update must not fill the memory, nor every run folder.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= 2 * _KEPT_BYTES:
            return stream.read()
        begin = stream.read(_KEPT_BYTES)
        stream.seek(size - _KEPT_BYTES)
        gap = f"\n--- {size - 2 * _KEPT_BYTES} bytes are left out here ---\n".encode()
        return begin + gap + stream.read(_KEPT_BYTES)


def show_event(event: Event, console: Console) -> None:
    """Show what a worker does; what it tells the supervisor is not for people."""
    if isinstance(event, Activity):
        console.show(event)


def _environment(work: Path, *, alone: bool) -> dict[str, str]:
    inherited = dict(os.environ)
    if alone:
        inherited.pop("TF_CONFIG", None)
    return {
        **inherited,
        "TF_USE_LEGACY_KERAS": "1",
        # Its allocator keeps the statistics that a CPU's training peak is read from. TensorFlow
        # turns it on by itself only where the processor has AVX-512.
        "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1"),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        # tf-keras imports pandas where it is installed, that pyarrow, whose allocator would start a
        # thread: no process that has one is forked.
        "JE_ARROW_MALLOC_CONF": os.environ.get("JE_ARROW_MALLOC_CONF", "background_thread:false"),
        # numpy's threads would spin for 2^26 cycles after each product, beside TensorFlow's.
        "OPENBLAS_THREAD_TIMEOUT": os.environ.get("OPENBLAS_THREAD_TIMEOUT", "16"),
        "TMPDIR": str(work),  # what libraries leave there when they are killed goes with the folder
        "KERAS_HOME": str(work),  # a user's keras.json must not change what a recipe computes
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "PYTHONWARNINGS": "ignore",
    }


def _memory_words(log: str) -> str:
    """Return the last line of a log that speaks of memory; empty if there is none."""
    lines = [line for line in log.splitlines() if any(word in line for word in _MEMORY_WORDS)]
    return lines[-1].removeprefix("  | ").strip()[:300] if lines else ""
