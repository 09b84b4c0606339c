"""Child processes: the request, the answer, and every way to end.

A child runs as `python -P -m MODULE DESCRIPTOR PARENT_PID`. Its request is JSON on its standard
input; to the descriptor it writes messages, an object of JSON a line. `{"result": ...}` is its
answer, the last one counts; `{"error": ...}` is a `ShrinkError`; others are the module's own. What
it and its libraries print goes to a file. It ends with its parent, and its group ends with it.
Where its parent has a process that did the imports, the child is a fork of that one, all else being
the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, NoReturn, TypeVar

from shrink.base import files
from shrink.base.errors import ShrinkError
from shrink.base.foreign import Json, JsonObject, Record
from shrink.base.forkserver import Preloaded, Process

A = TypeVar("A", covariant=True)
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5
_LAST_WORDS = 200


class Child:
    """A child process that was started; a context, at whose end its whole group is killed.

    Args:
        module: what it runs; calls `serve_plain`.
        request: for the module.
        output: descriptor of the file that its stdout and stderr go to.
        environment: of the child, by default this process's.
        descriptors: that it inherits beside its own.
        preloaded: the process that forks where it may; it runs its own module, whatever `module`.

    Attributes:
        pid: of the process.
        result: its answer so far; None for none.
        error: what it raised; None for nothing.

    Raises:
        OSError: it could not be started.
        ResourceError: there is no room for its request.
    """

    def __init__(
        self,
        module: str,
        request: JsonObject,
        output: int,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
        preloaded: Preloaded | None = None,
    ) -> None:
        self.result: Json = None
        self.error: ShrinkError | None = None
        # Not escaped: a path that an ASCII locale could not read reaches the child as UTF-8.
        text = json.dumps(request, allow_nan=False, ensure_ascii=False)
        with contextlib.ExitStack() as until_started:
            with files.typed_errors(module):
                stdin = files.in_memory(files.encoded(text))
            until_started.callback(os.close, stdin)
            self._reader, writer = os.pipe()
            until_started.callback(os.close, writer)
            # In UTF-8 every name of a file can be read, as TensorFlow must.
            given = {**(os.environ if environment is None else environment), "PYTHONUTF8": "1"}
            kept = [writer, *descriptors]
            try:
                fork = None if preloaded is None else preloaded.fork(stdin, output, given, kept)
                self._process: Process = fork or _started(module, stdin, output, given, kept)
            except BaseException:
                os.close(self._reader)
                raise
        self.pid = self._process.pid
        # When memory runs out, let the kernel end the child rather than its parent.
        pid = self.pid
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/oom_score_adj").write_text("500", encoding="ascii")

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def messages(self, timeout_s: float = math.inf) -> Iterator[JsonObject | None]:
        """Yield the module's own messages until the child has ended; None twice a second.

        Raises:
            TimeoutError: it takes longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        for message in self._received(deadline):
            if message is None:
                yield None
            elif "result" in message:
                self.result = message["result"]
            elif "error" in message:
                self.error = ShrinkError.from_dict(message["error"])
            else:
                yield message
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        try:
            self._process.wait(left)
        except subprocess.TimeoutExpired as late:
            raise TimeoutError from late

    def _received(self, deadline: float) -> Iterator[JsonObject | None]:
        buffer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                if not selector.select(min(_POLL_S, left)):
                    # Dead, though a fork of it may hold the pipe open for ever.
                    if self._process.poll() is not None and not selector.select(0):
                        return
                    yield None
                    continue
                chunk = os.read(self._reader, 1 << 16)
                if not chunk:
                    return
                *lines, buffer = (buffer + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        raise TimeoutError


def _started(
    module: str,
    stdin: int,
    output: int,
    environment: Mapping[str, str],
    descriptors: Sequence[int],
) -> Process:
    """Return a fresh process; its first descriptor beside its own is for its messages."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(descriptors[0]), str(os.getpid())],
        stdin=stdin,
        stdout=output,
        stderr=output,
        pass_fds=tuple(descriptors),
        env=environment,
        start_new_session=True,  # a Ctrl-C reaches the parent alone, which ends it
    )


@dataclass(frozen=True)
class NoAnswer:
    """Of a child that gives none: all is well where it ends so."""


@dataclass(frozen=True)
class ChildRun(Generic[A]):
    """How a child process ended.

    Attributes:
        output: what it printed, stdout and stderr as they came.
        failure: None after a clean exit, else one phrase that says how it ended.
        timed_out: whether it was ended for taking too long.
        answer: the last that it gave, also before it failed; None for none.
        error: the one that it raised, if that is how it failed.
        code: its exit code, negative for a signal; None where it has none of its own.
    """

    output: str
    failure: str | None
    timed_out: bool = False
    answer: A | None = None
    error: ShrinkError | None = None
    code: int | None = None


def run_child(
    module: str, request: Record, answer: Callable[..., A], *, timeout_s: float
) -> ChildRun[A]:
    """Ask a child of its own and wait; how it ends raises nothing.

    Args:
        module: what it runs; calls `serve`.
        request: what the function for its type is given; of values that JSON knows.
        answer: the type of what its function returns.
        timeout_s: after so many seconds it is killed.
    """
    output, late, code, result, error = files.in_memory(), False, None, None, None
    try:
        with Child(module, {type(request).__name__: dataclasses.asdict(request)}, output) as child:
            try:
                for _ in child.messages(timeout_s):
                    pass
                code = child.code
            except TimeoutError:
                late = True
        result, error = child.result, child.error
        printed = _content(output)
    except OSError as failed:
        return ChildRun("", f"could not be started ({failed.strerror})")
    finally:
        os.close(output)
    failure = f"took longer than {timeout_s:g} s" if late else _failure(code or 0, printed)
    given = None if result is None else answer(**result)
    return ChildRun(printed, failure, late, given, error, code)


class Channel:
    """The child's way to its parent: an object of JSON a line, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: JsonObject) -> None:
        """Send a message of the module's own."""
        self._send(json.dumps(message))

    def _send(self, text: str) -> None:
        line = text.encode() + b"\n"
        with self._lock:
            view = memoryview(line)
            while view:
                view = view[os.write(self._descriptor, view) :]

    def answer(self, result: JsonObject) -> None:
        """Send an answer; one that is sent later replaces it.

        Raises:
            ValueError: it holds a number that JSON does not know.
        """
        self._send(json.dumps({"result": result}, allow_nan=False))


def serve(
    answers: Mapping[type[Record], Callable[..., Record | None]],
) -> NoReturn:
    """Answer the request of `run_child`, and exit; what a child's module ends with.

    Args:
        answers: what the child does, by the type of its request; None where it has sent its
            answer, or there is none.
    """
    by_name = {kind.__name__: kind for kind in answers}

    def answer(plain: JsonObject, parent: Channel) -> None:
        ((name, values),) = plain.items()
        if (result := answers[by_name[name]](by_name[name](**values), parent)) is not None:
            parent.answer(dataclasses.asdict(result))

    serve_plain(answer)


def serve_plain(answer: Callable[[JsonObject, Channel], None]) -> NoReturn:
    """Answer the request of a `Child`, and exit.

    An error of shrink reaches the parent and gives the exit code; any other is left to Python.

    Args:
        answer: what the child does; it sends its answer.
    """
    descriptor, parent = sys.argv[1:3]
    die_with_parent(int(parent))
    channel = Channel(int(descriptor))
    try:
        answer(json.loads(_content(0, "surrogateescape")), channel)
    except ShrinkError as error:
        channel.send({"error": error.to_dict()})
        with contextlib.suppress(OSError):  # there may be no room for it
            traceback.print_exc()
        sys.exit(error.exit_code)
    sys.exit(0)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends.

    Linux's `prctl(PR_SET_PDEATHSIG)`: it is the thread that counts, so a child must be started
    from a thread that outlives it. Elsewhere this does nothing.

    Args:
        parent: the parent's process id, if this child knows it. Where the parent has gone before
            the kernel was asked, the process ends itself.
    """
    import ctypes  # the parent, a light command, needs none of it

    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (AttributeError, OSError):
        return
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _content(descriptor: int, errors: str = "replace") -> str:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", errors)


def _failure(code: int, output: str) -> str | None:
    if code == 0:
        return None
    if code < 0:
        return f"died by {signal.Signals(-code).name}"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return f"ended with code {code} ({last.strip()[:_LAST_WORDS]})"
