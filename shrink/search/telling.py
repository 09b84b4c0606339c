"""What a worker of a search says while it looks at points."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shrink.base.figures import figure_of
from shrink.contract.report import Figures
from shrink.contract.searched import Trial
from shrink.search.goal import Goal


class Telling:
    """Says how far a search has come.

    Args:
        goal: what is looked for.
        deadline: by `time.monotonic`, of the last training; None for no limit.
    """

    def __init__(self, goal: Goal, deadline: float | None) -> None:
        self._goal, self._deadline = goal, deadline
        self._best = "no point within the limits yet"

    def so_far(self) -> str:
        """Return the line above the progress: time left, and the best point so far."""
        left = ""
        if self._deadline is not None:
            minutes, seconds = divmod(max(0, round(self._deadline - time.monotonic())), 60)
            left = f", {minutes}:{seconds:02d} left"
        return f"search{left}: {self._best}"

    def in_short(self, figures: Figures) -> str:
        """Return the figures that decide: `accuracy 98.9 %, tflite_bytes 12.7 KB`."""
        names = (self._goal.metric, *self._goal.ranking[:2])
        return ", ".join(
            f"{name} {figure_of(name).text(figures[name])}"
            for name in dict.fromkeys(names)
            if name in figures
        )

    def line(self, trial: Trial, known: Sequence[Trial]) -> str:
        """Return what became of a point that was trained, among all that are known."""
        best = self._goal.best(known)
        if best is not None:
            front = len(self._goal.front(known))
            self._best = (
                f"best point {best.number}, {self.in_short(best.figures)}; front of {front}"
            )
        if best is not None and best.number == trial.number:
            verdict = "the best so far"
        elif trial.feasible:
            verdict = "within the limits"
        else:
            verdict = f"out of {', '.join(trial.broken)}"
        left = ""
        if self._deadline is not None:
            left = f"; {max(0.0, self._deadline - time.monotonic()):.0f} s left"
        return f"point {trial.number}: {self.in_short(trial.figures)}: {verdict}{left}"
