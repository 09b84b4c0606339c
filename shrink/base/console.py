"""The only output of the program: results on stdout, progress and warnings on stderr.

A closed descriptor would be handed to the next pipe that is opened, a reader may go away
(`| head -1`), a disk may be full, an encoding may lack a letter: none of these is a bug.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from shrink.base.errors import RecipeError, ResourceError, ShrinkError

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from shrink.base.progress import Activity, Progress
    from shrink.base.progress_line import ProgressLine


_DEFAULT_ENCODING = "utf-8"
_SILENCE_S = 15.0
"""Without a terminal, what a stage does is printed after so many seconds without a line."""


def prepare_streams() -> None:
    """Open what was closed, and make stdout and stderr safe to write to."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is this one: those below it are open by now.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = _safe(sys.stdout, 1, "stdout")
    sys.stderr = _safe(sys.stderr, 2, None)


class SafeOutput(io.RawIOBase):
    """Writes to a descriptor; what a reader that went away would have read is dropped.

    Args:
        descriptor: where to write.
        name: the stream's name in errors; None where a failure to write is nobody's concern.
    """

    def __init__(self, descriptor: int, name: str | None) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._name = name
        self._lost = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a person is looking."""
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:
        """Write `data` and return how many bytes are done with.

        Raises:
            ResourceError: the disk is full or broken; later calls then drop what they are given.
        """
        if self._lost:
            return len(data)
        try:
            return os.write(self._descriptor, data)
        except BrokenPipeError:
            self._lost = True
        except OSError as error:
            self._lost = True
            if self._name is not None:
                raise ResourceError(
                    f"cannot be written to: {error.strerror}",
                    subject=self._name,
                    hint="free some space, or send the output elsewhere",
                ) from error
        return len(data)


def _safe(stream: TextIO | None, descriptor: int, name: str | None) -> TextIO:
    if stream is not None:
        stream.flush()
    encoding = stream.encoding if stream is not None else _DEFAULT_ENCODING
    return io.TextIOWrapper(
        io.BufferedWriter(SafeOutput(descriptor, name)),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


class Console:
    """Where shrink writes.

    Args:
        as_json: stdout carries exactly one JSON document.
        quiet: nothing but errors and the result's last line.
        verbose: also what workers print, as they do.
        notes: also the notes of a report.
        prefix: before every line of what happens, where several runs print; then no line moves.

    Attributes:
        warned: the warnings so far.
        above: returns a line to stand above the progress on a terminal; None for no such line.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        notes: bool = False,
        prefix: str = "",
    ) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose
        self.notes = notes
        self.prefix = prefix
        self.warned: list[str] = []
        self.above: Callable[[], str] | None = None
        self._line: ProgressLine | None = None
        self._label = ""
        self._said_at = time.monotonic()

    def rich(self, stream: TextIO | None = None) -> RichConsole:
        """Return a rich console on stdout, or on another stream, for the result."""
        self.end_progress()
        return self._rich_on(stream or sys.stdout)

    @staticmethod
    def _rich_on(stream: TextIO) -> RichConsole:
        from rich.console import Console as RichConsole

        # Colours follow the terminal alone; a CI variable must not put codes into a log.
        return RichConsole(file=stream, force_terminal=stream.isatty(), highlight=False)

    def say(self, text: str) -> None:
        """Print a line of what happens, on stderr."""
        if self.quiet:
            return
        if self._line is not None:
            self._line.console.print(text, markup=False, highlight=False)
        else:
            self._write(sys.stderr, f"{self.prefix}{text}")
            self._said_at = time.monotonic()

    def warn(self, text: str) -> None:
        """Print a warning, on stderr, and keep it for the document of `--json`."""
        self.warned.append(text)
        self.say(f"warning: {text}")

    def error(self, error: ShrinkError) -> None:
        """Print an error with its hint, on stderr; with `--json` as the document on stdout."""
        self.end_progress()
        others = error.others if isinstance(error, RecipeError) else ()
        for problem in (error, *others):
            self._write(sys.stderr, f"error: {problem}")
        if self.as_json:
            problems = [problem.to_dict() for problem in (error, *others)]
            self.document({"error": problems[0], "errors": problems})

    def document(self, value: object) -> None:
        """Print the one JSON document on stdout."""
        self.end_progress()
        self._write(sys.stdout, json.dumps(value, indent=2, allow_nan=False))

    def print(self, text: str) -> None:
        """Print plain text, the command's result, on stdout."""
        self.end_progress()
        self._write(sys.stdout, text)

    def stage_started(self, name: str, index: int, count: int) -> None:
        """Announce a stage; `index` counts from 1."""
        self._label = f"[{index}/{count}] {name}"
        if self._on_terminal():
            self._start_progress()
        else:
            self.say(self._label)

    def stage_ended(self, name: str, index: int, count: int, how: str) -> None:
        """Say how a stage ended."""
        self.end_progress()
        self.say(f"[{index}/{count}] {name}: {how}")

    def show(self, activity: Activity) -> None:
        """Show what a worker does: a steady line on a terminal; elsewhere a line per epoch.

        Elsewhere other activities get a line where none was printed for `_SILENCE_S`.
        """
        from shrink.base.progress import Printed, Progress, Share

        if isinstance(activity, Printed):
            for line in activity.lines if self.verbose else ():
                self.say(f"{self._label} | {line}")
            return
        if isinstance(activity, Progress) and activity.continued:
            update = (activity.epoch - 1) * activity.steps + activity.step
            self.say(f"  {self._label}: continues after update {update}")
            return
        if self._line is None and self._on_terminal():
            self._start_progress()
        if self._line is not None:
            self._line.show(activity)
        elif isinstance(activity, Progress):
            if activity.epoch_end:
                self.say(f"  {self._label}: {describe_progress(activity)}")
        elif time.monotonic() - self._said_at >= _SILENCE_S:
            of = f" {activity.done:,}/{activity.total:,}" if isinstance(activity, Share) else ""
            self.say(f"  {self._label}: {activity.name}{of}")

    def end_progress(self) -> None:
        """Take the progress line away."""
        if self._line is not None:
            self._line.stop()
        self._line = None

    def _on_terminal(self) -> bool:
        may_move = not self.quiet and not self.prefix
        return sys.stderr.isatty() and may_move and os.environ.get("TERM") != "dumb"

    def _start_progress(self) -> None:
        from shrink.base.progress_line import ProgressLine

        self.end_progress()
        stream = self._rich_on(sys.stderr)
        self._line = ProgressLine(stream, self._label, self.above)
        self._line.start()

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        """Write a line; `shrink.base.console` has seen to readers that go away and to encodings."""
        stream.write(f"{text}\n")
        stream.flush()


def describe_progress(progress: Progress) -> str:
    """Return one line for a training: epoch, metrics, examples per second."""
    parts, metrics = [f"epoch {progress.epoch}/{progress.epochs}"], progress.metrics
    shown = [name for name in metrics if progress.epoch_end or not name.startswith("val_")]
    parts += [f"{name} {metrics[name]:.4g}" for name in shown]
    if progress.examples_per_s:
        parts.append(f"{progress.examples_per_s:,.0f} examples/s")
    return "  ".join(parts)
