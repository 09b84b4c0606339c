"""The one output sink: results on stdout, everything that happens meanwhile on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from shrink.errors import RecipeError, ShrinkError

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.progress import Progress, TaskID


class Console:
    """Where shrink writes.

    Args:
        as_json: stdout carries exactly one JSON document.
        quiet: nothing but errors and the result's last line.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._label = ""

    def rich(self, stream: TextIO | None = None) -> RichConsole:
        """Return a rich console on stdout, or on another stream."""
        from rich.console import Console as RichConsole

        stream = stream or sys.stdout
        # Colours follow the terminal alone; a CI variable must not put codes into a log.
        return RichConsole(file=stream, force_terminal=stream.isatty(), highlight=False)

    def say(self, text: str) -> None:
        """Print a line of what happens, on stderr."""
        if self.quiet:
            return
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            self._write(sys.stderr, text)

    def warn(self, text: str) -> None:
        """Print a warning, on stderr."""
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

    def document(self, value: Any) -> None:
        """Print the one JSON document on stdout."""
        self._write(sys.stdout, json.dumps(value, indent=2, allow_nan=False))

    def print(self, text: str) -> None:
        """Print plain text, the command's result, on stdout."""
        self._write(sys.stdout, text)

    def stage_started(self, name: str, index: int, count: int) -> None:
        """Announce a stage; `index` counts from 1."""
        self._label = f"[{index}/{count}] {name}"
        if not self._on_terminal():
            self.say(self._label)
            return
        self._start_progress()

    def stage_ended(self, name: str, index: int, count: int, how: str) -> None:
        """Say how a stage ended."""
        self.end_progress()
        self.say(f"[{index}/{count}] {name}: {how}")

    def event(self, event: Mapping[str, Any]) -> None:
        """Show a worker's event: a bar on a terminal, a line per epoch elsewhere."""
        if event["event"] == "phase":
            self._show(str(event["name"]), None)
        elif event["event"] == "share":
            if self._progress is None and self._on_terminal():
                self._start_progress()
            done, total = event["done"], event["total"]
            self._show(f"{event['name']} {done:,}/{total:,}", done / max(total, 1))
        elif event["event"] == "progress":
            if self._progress is None and event.get("epoch_end"):
                self.say(f"  {self._label}: {describe_progress(event)}")
            done = (event["epoch"] - 1) * event["steps"] + event["step"]
            self._show(describe_progress(event), done / (event["epochs"] * event["steps"]))

    def end_progress(self) -> None:
        """Take the progress bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None

    def _on_terminal(self) -> bool:
        return sys.stderr.isatty() and not self.quiet and os.environ.get("TERM") != "dumb"

    def _start_progress(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.fields[label]}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.description}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self.rich(sys.stderr),
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None, label=self._label)
        self._progress.start()

    def _show(self, text: str, fraction: float | None) -> None:
        if self._progress is not None and self._task is not None:
            total = None if fraction is None else 1.0
            self._progress.update(
                self._task, description=text, total=total, completed=fraction or 0.0
            )

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        """Write a line; `shrink.streams` has seen to readers that go away and to encodings."""
        stream.write(f"{text}\n")
        stream.flush()


def describe_progress(event: Mapping[str, Any]) -> str:
    """Return one line for a progress event: epoch, metrics, examples per second."""
    parts = [f"epoch {event['epoch']}/{event['epochs']}"]
    metrics = event.get("metrics", {})
    shown = [name for name in metrics if event.get("epoch_end") or not name.startswith("val_")]
    parts += [f"{name} {metrics[name]:.4g}" for name in shown]
    if event.get("examples_per_s"):
        parts.append(f"{event['examples_per_s']:,.0f} examples/s")
    return "  ".join(parts)
