"""What a search leaves and says: search.json, the page of its points, and lines for people."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import InputError
from shrink.base.figures import figure_of, format_change
from shrink.contract.codec import to_plain
from shrink.contract.report_file import read_report
from shrink.contract.searched import SEARCH_NAME, Luck, Searched, Trial
from shrink.report.compare_rendered import HTML_NAME, render_comparison
from shrink.report.compared import RunToCompare, Titled, compare_runs
from shrink.search.goal import ARENA, LATENCY, MAX_DROP, SIZE, Goal
from shrink.search.points import in_words

_SHOWN = 12


def write(searched: Searched, folder: Path, jobs: int = 1) -> None:
    """Write search.json, and the page where any point was run."""
    runs = [_to_compare(one, folder) for one in searched.trials if one.run is not None]
    pages: dict[str, str] = {}
    if runs:
        title = f"{searched.name}: points of a search, on validation examples"
        found = compare_runs(runs, Titled(title, True, None, jobs))
        told = (*told_of(searched), *found.warnings)
        pages = render_comparison(replace(found, warnings=told))
    files.write_together(folder, {**pages, SEARCH_NAME: files.json_text(to_plain(searched))})


def _to_compare(trial: Trial, folder: Path) -> RunToCompare:
    run = folder / str(trial.run)
    try:
        report = read_report(run)
    except InputError:
        report = None
    settings = {key: str(value) for key, value in trial.settings.items()}
    return RunToCompare(
        name=f"{trial.number}: {in_words(trial.settings)}",
        place=os.path.relpath(run, folder),
        folder=run,
        report=report,
        settings=settings,
    )


def told_of(searched: Searched) -> list[str]:
    """Return what a reader has to know of the result."""
    told = list(searched.warnings)
    best = searched.best
    if best is None:
        return told
    unit = figure_of(searched.metric)
    value, before = best.figures.get(searched.metric), best.baseline.get(searched.metric)
    if value is not None and before is not None:
        told.append(
            f"best: point {best.number}, {unit.text(value)} {searched.metric} on the test split, "
            f"where the baseline has {unit.text(before)}"
        )
    if best.luck is not None:
        told.append(
            f"luck: choosing among {best.luck.trials} points on validation examples flatters the "
            f"chosen one by {_change(best.luck)} of "
            f"{searched.metric}, on average over {best.luck.resamples:,} resamples; it is chosen "
            f"again on {best.luck.chosen_again:.0%} of them. The figures of best/ are of test "
            "examples, which nothing was chosen by"
        )
    for name, most in searched.limits.items():
        value = best.figures.get(name)
        if name != MAX_DROP and value is not None and value > most:
            unit = figure_of(name)
            told.append(
                f"measured again, the best point has {unit.text(value)} {name}, more than the "
                f"limit of {unit.text(most)}, which it kept when it was chosen"
            )
    limit = searched.limits.get(MAX_DROP)
    if limit is not None and best.drop is not None and best.drop > limit:
        told.append(
            f"on the test split the best point loses {100 * best.drop:.2f} points, more than the "
            f"limit of {100 * limit:g}, which it keeps on validation examples"
        )
    return told


def _change(luck: Luck) -> str:
    unit = figure_of(luck.metric).unit
    text = format_change(luck.optimism, unit)
    return f"{text} points" if unit == "fraction" else text


def impossible(trials: Sequence[Trial], goal: Goal) -> str:
    """Return what came nearest, where no point keeps to the limits."""
    done = [one for one in trials if one.status == "done"]
    parts = []
    metric = figure_of(goal.metric)
    within = [one for one in done if set(one.broken) <= {MAX_DROP}]
    accurate = [one for one in done if MAX_DROP not in one.broken]
    sign = -1 if metric.larger_is_better else 1
    if within and goal.max_drop is not None:
        top = min(within, key=lambda one: sign * (one.figures.get(goal.metric) or 0.0))
        parts.append(
            f"within the sizes, point {top.number} is best: "
            f"{metric.text(top.figures[goal.metric])} {goal.metric}"
        )
    if accurate and goal.limits:
        least = min(accurate, key=lambda one: one.figures.get(SIZE) or 0.0)
        parts.append(f"{_sizes(least, goal)} at the accuracy asked for (point {least.number})")
    looked = [one for one in trials if one.status == "infeasible" and one.figures.get(SIZE)]
    if not parts and looked:
        least = min(looked, key=lambda one: one.figures.get(SIZE) or 0)
        parts.append(f"the smallest of what was looked at takes {_sizes(least, goal)}")
    return "; ".join(parts) or "no point could be measured"


def _sizes(trial: Trial, goal: Goal) -> str:
    names = [name for name in (SIZE, ARENA, LATENCY) if name in goal.limits or name == SIZE]
    return ", ".join(
        f"{name} {figure_of(name).text(trial.figures[name])}"
        for name in names
        if trial.figures.get(name) is not None
    )


def show(searched: Searched, folder: Path, console: Console) -> None:
    """Print the result."""
    for line in told_of(searched):
        console.warn(line) if "limit of" in line else console.say(line)
    if console.as_json:
        console.document(to_plain(searched))
        return
    if console.quiet:
        console.print(str(folder))
        return
    for line in lines_of(searched, folder):
        console.print(line)


def _of_rungs(searched: Searched) -> str:
    """Return what rungs saved and took; nothing where there were none."""
    spent = [rung.duration_s for one in searched.trials for rung in one.rungs]
    halted = sum(one.status == "halted" for one in searched.trials)
    return f"{halted} halted on rungs, which took {sum(spent):.0f} s, " if spent else ""


def lines_of(searched: Searched, folder: Path) -> list[str]:
    """Return the front and the best point, for people."""
    by_number = {one.number: one for one in searched.trials}
    names = [searched.metric, SIZE, ARENA, LATENCY]
    rows = [[" ", "point", *names, "settings"]]
    best = searched.best.number if searched.best else None
    for number in searched.front[:_SHOWN]:
        trial = by_number[number]
        shown = [figure_of(n).text(trial.figures.get(n)) for n in names]
        mark = "*" if number == best else " "
        rows.append([mark, str(number), *shown, in_words(trial.settings)])
    keep = [i for i in range(len(rows[0])) if any(r[i].strip(" -") for r in rows[1:]) or i == 0]
    widths = {i: max(len(row[i]) for row in rows) for i in keep}
    table = ["  ".join(f"{row[i]:<{widths[i]}}" for i in keep).rstrip() for row in rows]
    counts = {s: sum(one.status == s for one in searched.trials) for s in ("done", "infeasible")}
    lines = [
        f"{searched.name}: {counts['done']} points trained, {counts['infeasible']} beyond the "
        f"limits untrained, {_of_rungs(searched)}{searched.time_s:.0f} s",
        *(["", "front (validation examples; * is best)", *table] if len(rows) > 1 else []),
    ]
    if searched.best is not None:
        figures = searched.best.figures
        told = ", ".join(f"{n} {figure_of(n).text(figures[n])}" for n in names if n in figures)
        recipe, artifact = folder / searched.best.recipe, folder / searched.best.artifact
        lines += ["", f"best (test split): {told}", f"shrink run {recipe}", str(artifact)]
    return [*lines, str(folder / HTML_NAME)]
