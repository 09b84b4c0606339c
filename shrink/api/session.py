"""One call from Python: its console, and how Ctrl-C and errors end it."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from types import FrameType

from shrink.base.cache import cache_root
from shrink.base.console import Console
from shrink.base.errors import Interrupted, RecipeError, ShrinkError
from shrink.report.content import warnings_of
from shrink.run.options import RunResult
from shrink.run.process import preloading
from shrink.run.session import tell_ci

_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?=(\W|$))")


def console_of(keys: Mapping[str, object]) -> Console:
    """Return the console of a call: stderr, where there is one and `quiet` is not given."""
    quiet = bool(keys.get("quiet")) or sys.stderr is None
    return Console(quiet=quiet, verbose=bool(keys.get("verbose")))


@contextlib.contextmanager
def called() -> Iterator[None]:
    """Let Ctrl-C end the worker and then this call, and errors speak of keywords.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the same call goes on where it was.
    """
    try:
        with _interrupts():
            yield
    except Interrupted as error:
        raise KeyboardInterrupt(error.message) from error
    except ShrinkError as error:
        others = error.others if isinstance(error, RecipeError) else ()
        for problem in (error, *others):
            _speak_python(problem)
        raise


@contextlib.contextmanager
def working() -> Iterator[None]:
    """Do what `called` does, for a call that starts workers: they are forks, as a command's are.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the same call goes on where it was.
    """
    with called(), preloading():
        yield


def ended(result: RunResult, console: Console) -> None:
    """Tell of warnings, and raise what ended a run; its report is in the run folder.

    Raises:
        ShrinkError: the run failed; `folder` of the error is the run folder.
    """
    for warning in warnings_of(result.report):
        console.warn(warning.text())
    tell_ci(result)
    if result.error is not None:
        result.error.folder = result.folder
        raise result.error


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """Turn SIGINT into `Interrupted`, which ends a run, where this thread may ask for signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one is enough; leaving takes a moment
        raise Interrupted("interrupted; the same call continues")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _speak_python(error: ShrinkError) -> None:
    """Write flags as keywords, but in commands that a hint shows.

    A file of the cache is written as what was given: arrays are `data`, a model in memory its name.
    """
    error.message = _keywords(_as_given(error.message))
    if error.subject is not None:
        error.subject = _keywords(_as_given(error.subject)).rstrip("=")
    if error.hint is not None:
        error.hint = _keywords(error.hint)


def _as_given(text: str) -> str:
    inputs = re.escape(str(cache_root() / "inputs"))
    return re.sub(rf"{inputs}/[0-9a-f]+/([^\s/:,]+)\.(?:npz|keras)", r"\1", text)


def _keywords(text: str) -> str:
    def keyword(found: re.Match[str]) -> str:
        return found[1].replace("-", "_") + "="

    return text if "shrink " in text else _FLAG.sub(keyword, text)
