"""Runs a point of a search, and measures what it is chosen by."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from shrink.base import files
from shrink.base.cache import cache_root
from shrink.base.console import Console
from shrink.base.errors import ReportWarning, StageError, Terminated
from shrink.contract.report import Report
from shrink.contract.result import Evidence, scores_from_plain, scores_to_plain
from shrink.recipe.plan import Plan
from shrink.report.content import stage_figures
from shrink.run.options import RunOptions, RunResult
from shrink.run.process import attempt
from shrink.run.runner import Runner
from shrink.run.store import Store
from shrink.run.supervisor import Attempt

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
SCORES = "scores.json"
_COMMAND_S = 600.0
_OF_VALIDATION = ReportWarning(
    "validation-figures",
    "metrics are of validation examples: this run is a point of a search, which looks at no test "
    "example before it has chosen",
)


class OutOfTime(Terminated):
    """The time of a search is over."""


@contextmanager
def until(deadline: float | None) -> Iterator[None]:
    """Raise `OutOfTime` in the block at a time of `time.monotonic`; None for no limit.

    By SIGALRM, so in the main thread alone; elsewhere the block is not ended.
    """
    if deadline is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime("the time of the search is over")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


HOST = "host"
"""How latency is measured where no command of the user's does it."""


class Runs:
    """Runs plans of a search.

    Args:
        options: of every run; `output` is the folder of the search.
        timed: whether latency is measured of each point.
        command: that measures latency in place of this host; None for none.
        console: told what happens.

    Attributes:
        attempt: runs a job in a worker process, once.
    """

    def __init__(
        self, options: RunOptions, timed: bool, command: str | None, console: Console
    ) -> None:
        self._options, self._console = options, console
        self._timed, self._command = timed and command is None, command if timed else None
        self.attempt: Attempt = attempt
        self.store = Store(cache_root(), console.warn)

    @property
    def latency(self) -> str:
        """How latency is measured; empty where it is not."""
        return self._command or (HOST if self._timed else "")

    def key(self, plan: Plan) -> str:
        """Return the key of a plan's baseline: of the model, the data and the code that it is."""
        return self._runner(plan, self._options).keys()[plan.baseline.name]

    def choose(self, plan: Plan, folder: Path, last: str | None = None) -> RunResult:
        """Run a plan up to a step, measured on validation examples."""
        options = replace(
            self._options,
            output=folder,
            force=True,
            last=last,
            measured_on="validation",
            timed=self._timed,
        )
        runner = self._runner(plan, options)
        runner.warnings.append(_OF_VALIDATION)
        return runner.run()

    def show(self, plan: Plan, folder: Path) -> RunResult:
        """Run a plan as any other: measured on test examples."""
        return self._runner(plan, replace(self._options, output=folder, force=True)).run()

    def _runner(self, plan: Plan, options: RunOptions) -> Runner:
        runner = Runner(plan, options, self.store, self._console)
        runner.attempt = self.attempt
        return runner

    def figures(self, report: Report, folder: Path) -> dict[str, float]:
        """Return the figures of a run's last stage, its latency by the user's command.

        Raises:
            StageError: the command failed.
        """
        stage = report.ends[-1]
        found = stage_figures(stage)
        found.pop("duration_s", None)
        found.pop("threads", None)
        found.pop("examples", None)
        if self._command is not None and stage.artifact is not None:
            found.pop("p90_ms", None)  # of this host, which the command does not measure on
            found["p50_ms"] = measured_by(self._command, folder / stage.artifact)
        return found


def measured_by(command: str, artifact: Path) -> float:
    """Return the last number that a command prints: milliseconds.

    Args:
        command: for a shell; `{artifact}` in it stands for the file.
        artifact: the .tflite file.

    Raises:
        StageError: it fails, takes too long, or prints no number.
    """
    import shlex

    told = command.replace("{artifact}", shlex.quote(str(artifact.resolve())))
    try:
        ended = subprocess.run(
            told, shell=True, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise StageError(
            f"it took longer than {_COMMAND_S:g} s", subject="latency.command"
        ) from late
    numbers = _NUMBER.findall(ended.stdout)
    if ended.returncode != 0 or not numbers:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:]
        how = f"exit {ended.returncode}" if ended.returncode else "it printed no number"
        raise StageError(
            f"{how}: {''.join(last)[:200]}",
            subject="latency.command",
            hint="it is to print a latency in milliseconds as its last number",
        )
    return float(numbers[-1])


def keep_scores(result: RunResult, folder: Path) -> None:
    """Keep what each validation example scores under a run's last stage."""
    stage = result.report.ends[-1].name
    files.write_json(folder / SCORES, scores_to_plain(result.scores.get(stage, {})))


def scores_in(folder: Path) -> dict[str, Evidence]:
    """Return what `keep_scores` kept; nothing where it is not there."""
    return scores_from_plain(files.read_mapping(folder / SCORES))
