"""Output of a search: search.json, the comparison of trials, and progress lines."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import InputError
from shrink.base.figures import figure_of, format_change
from shrink.contract.codec import to_plain
from shrink.contract.comparison import Comparison
from shrink.contract.report import Figures
from shrink.contract.report_file import read_report
from shrink.contract.search import SEARCH_NAME, Searched, Trial
from shrink.report.comparison import COMPARE_HTML, render_comparison
from shrink.report.comparison_rows import RunToCompare, compare_runs
from shrink.search.goal import ARENA, LATENCY, MAX_DROP, SIZE, Goal, cost_of
from shrink.search.space import settings_text

_SHOWN = 12


def _listed(figures: Figures, names: Iterable[str]) -> str:
    """Return figures as text: `accuracy 98.9 %, tflite_bytes 12.7 KB`."""
    known = [name for name in dict.fromkeys(names) if figures.get(name) is not None]
    return ", ".join(f"{name} {figure_of(name).text(figures[name])}" for name in known)


class SearchProgress:
    """Reports the progress of a search.

    Args:
        goal: what is optimised.
        deadline: of the last training, by `time.monotonic`.
    """

    def __init__(self, goal: Goal, deadline: float) -> None:
        self._goal, self._deadline = goal, deadline
        self._best = "no trial within the limits yet"

    def so_far(self) -> str:
        """Return the line above the progress: time left, and the best trial so far."""
        left = ""
        if math.isfinite(self._deadline):
            minutes, seconds = divmod(max(0, round(self._deadline - time.monotonic())), 60)
            left = f", {minutes}:{seconds:02d} left"
        return f"search{left}: {self._best}"

    def line(self, trial: Trial, known: Sequence[Trial]) -> str:
        """Return the line of a trained trial, compared with all known trials."""
        best = self._goal.best(known)
        if best is not None:
            front = len(self._goal.front(known))
            self._best = f"best trial {best.number}, {self._short(best.figures)}; front of {front}"
        if best is not None and best.number == trial.number:
            verdict = "the best so far"
        elif not trial.feasible:
            verdict = f"breaks {', '.join(trial.broken)}"
        elif self._goal.keeps(trial.drop_bound):
            verdict = "within the limits"
        else:
            verdict = "within the limits, but the confidence bound of the drop is above its limit"
        left = ""
        if math.isfinite(self._deadline):
            left = f"; {max(0.0, self._deadline - time.monotonic()):.0f} s left"
        return f"trial {trial.number}: {self._short(trial.figures)}: {verdict}{left}"

    def _short(self, figures: Figures) -> str:
        return _listed(figures, (self._goal.metric, *self._goal.ranking[:2]))


def write(searched: Searched, folder: Path) -> None:
    """Write search.json, and the comparison of the trials where any was run."""
    runs = [_to_compare(one, folder) for one in searched.trials if one.run is not None]
    pages: dict[str, str] = {}
    if runs:
        title = Comparison(
            rows=(),
            title=f"{searched.name}: trials of a search",
            sweep=True,
            split="validation",
            headline=tuple(headline_of(searched)),
            best=_best_row(searched),
            best_run=None if searched.best is None else str(Path(searched.best.recipe).parent),
            warnings=tuple(search_warnings(searched)),
        )
        pages = render_comparison(compare_runs(runs, title))
    files.write_together(folder, {**pages, SEARCH_NAME: files.json_text(to_plain(searched))})


def _to_compare(trial: Trial, folder: Path) -> RunToCompare:
    run = folder / str(trial.run)
    try:
        report = read_report(run)
    except InputError:
        report = None
    return RunToCompare(
        name=_row(trial),
        place=os.path.relpath(run, folder),
        folder=run,
        report=report,
        settings={key: str(value) for key, value in trial.settings.items()},
        broken=trial.broken,
    )


def _row(trial: Trial) -> str:
    return f"{trial.number}: {settings_text(trial.settings)}"


def _best_row(searched: Searched) -> str | None:
    if searched.best is None:
        return None
    return next(_row(one) for one in searched.trials if one.number == searched.best.number)


def headline_of(searched: Searched) -> list[str]:
    """Return the answer: the best trial on the test split."""
    best = searched.best
    if best is None:
        return []
    metric = figure_of(searched.metric)
    shown = _listed(best.figures, _names(searched))
    value = best.baseline.get(searched.metric)
    base = "" if value is None else f"; the baseline has {searched.metric} {metric.text(value)}"
    return [f"best: trial {best.number}, on the test split: {shown}{base}"]


def search_warnings(searched: Searched) -> list[str]:
    """Return the warnings about the result."""
    found, best = list(searched.warnings), searched.best
    if best is None:
        return found
    for name, most in searched.limits.items():
        value = best.figures.get(name)
        if name != MAX_DROP and value is not None and value > most:
            unit = figure_of(name)
            found.append(
                f"measured again, the best trial has {name} {unit.text(value)}, above the limit of "
                f"{unit.text(most)} that it kept as a trial"
            )
    limit = searched.limits.get(MAX_DROP)
    if limit is not None and best.drop is not None and best.drop - limit > 1e-9:
        found.append(
            f"on the test split the best trial loses {_change(searched, best.drop)}, above the "
            f"limit of {_change(searched, limit)} that it keeps on the validation split"
        )
    return found


def _change(searched: Searched, drop: float) -> str:
    unit = figure_of(searched.metric).unit
    text = format_change(drop, unit).lstrip("+")
    return f"{text} points of {searched.metric}" if unit == "fraction" else text


def _names(searched: Searched) -> list[str]:
    return [*dict.fromkeys([searched.metric, SIZE, ARENA, LATENCY, *searched.objectives])]


def impossible(trials: Sequence[Trial], goal: Goal) -> str:
    """Return the nearest trials, where none keeps the limits and the recipe's gates."""
    parts = []
    trained = [one for one in trials if one.status == "done"]
    done = [one for one in trained if set(one.broken) <= {MAX_DROP, *goal.limits}]
    if trained and not done:  # limits alone would not tell why
        least = min(trained, key=lambda one: len(one.broken))
        return f"each trained trial misses gates; trial {least.number}: {', '.join(least.broken)}"
    metric = figure_of(goal.metric)
    within = [one for one in done if set(one.broken) <= {MAX_DROP}]
    accurate = [one for one in done if MAX_DROP not in one.broken]
    if within and goal.max_drop is not None:
        top = min(within, key=lambda one: cost_of(goal.metric, one.figures.get(goal.metric)))
        value = metric.text(top.figures.get(goal.metric))
        parts.append(f"within the sizes, trial {top.number} is best: {goal.metric} {value}")
    if accurate and goal.limits:
        least = min(accurate, key=lambda one: one.figures.get(SIZE) or 0.0)
        parts.append(f"with that accuracy, trial {least.number} is smallest: {_sizes(least, goal)}")
    untrained = [one for one in trials if one.status == "infeasible" and one.figures.get(SIZE)]
    if not parts and untrained:
        least = min(untrained, key=lambda one: one.figures.get(SIZE) or 0)
        parts.append(f"the smallest of {len(untrained)} untrained ones has {_sizes(least, goal)}")
    return "; ".join(parts) or "no trial could be measured"


def _sizes(trial: Trial, goal: Goal) -> str:
    limited = [name for name in (ARENA, LATENCY) if name in goal.limits]
    return _listed(trial.figures, (SIZE, *limited))


def show_search(
    searched: Searched, folder: Path, console: Console, artifact: Path | None = None
) -> None:
    """Print the result.

    Args:
        searched: the search.
        folder: of the search.
        console: printed to.
        artifact: the file that the best trial was copied to, if one was asked for.
    """
    for line in search_warnings(searched):
        console.warn(line)
    if console.as_json:
        console.document(to_plain(searched))
        return
    if console.quiet:
        console.print(str(artifact or folder))
        return
    for line in search_lines(searched, folder, artifact):
        console.print(line)


def search_lines(searched: Searched, folder: Path, artifact: Path | None = None) -> list[str]:
    """Return the front and the best trial as lines of text."""
    by_number = {one.number: one for one in searched.trials}
    names = _names(searched)
    rows = [[" ", "trial", *names, "settings"]]
    best = searched.best.number if searched.best else None
    for number in searched.front[:_SHOWN]:
        trial = by_number[number]
        shown = [figure_of(n).text(trial.figures.get(n)) for n in names]
        mark = "*" if number == best else " "
        rows.append([mark, str(number), *shown, settings_text(trial.settings)])
    keep = [i for i in range(len(rows[0])) if any(r[i].strip(" -") for r in rows[1:]) or i == 0]
    widths = {i: max(len(row[i]) for row in rows) for i in keep}
    table = ["  ".join(f"{row[i]:<{widths[i]}}" for i in keep).rstrip() for row in rows]
    counts = {s: sum(one.status == s for one in searched.trials) for s in ("done", "infeasible")}
    lines = [
        f"{searched.name}: {counts['done']} trials trained, {counts['infeasible']} beyond the "
        f"limits (not trained), {searched.time_s:.0f} s",
        *(["", "Pareto front (validation split; * is best)", *table] if rows[1:] else []),
        "",
        *headline_of(searched),
    ]
    if searched.best is not None:
        lines += [
            f"shrink run {folder / searched.best.recipe}",
            str(artifact or folder / searched.best.artifact),
        ]
    return [*lines, str(folder / COMPARE_HTML)]
