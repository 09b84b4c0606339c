"""A search against plain Optuna and against chance, with the same space and time.

    python -m tests.benchmarks.bench_search [--recipe R] [--set KEY=VALUE] [--flash SIZE]
                                            [--time T] [--seeds 0 1 2]
                                            [--cifar10 FOLDER --resnet8 model.h5]

All three look for the front of accuracy and bytes, and run points as `shrink run` does, with a
store of their own that keeps what points share: more than a script around `shrink run` would have
without it. Plain Optuna is TPE with the limit on the size as its constraint, told of a point once
it is trained; neither it nor chance knows a file's size before, or begins with points that are
likely to be good. With `--cifar10` and a model that was trained on it, the recipe is one on 1,500
of its images for training and 1,000 for testing (`cifar_part`).

Hypervolume is that of the validation accuracy and the bytes of the points trained by then, above
chance and below the baseline's bytes; of the points within the limit alone in the second figure. A
line for each way and seed, then medians and ratios, and the ratio that a perfect file of no bytes
would have. `of_known` is the share of what all points of all searches of the run dominate together:
the most that is known to be reachable.

Overhead is what a search takes beside running points and asking for sizes, for each point that was
asked for, told apart from what asking for sizes takes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from shrink.base import files
from shrink.base.errors import StageError
from shrink.contract.codec import from_plain
from shrink.contract.job import Outline
from shrink.contract.searched import SEARCH_NAME, Searched
from shrink.recipe.plan import Plan
from shrink.run.store import Store
from shrink.search import session
from shrink.search.asking import Wanted, asking_of, recipe_named
from shrink.search.candidates import Candidates
from shrink.search.outliner import Outliner
from shrink.search.space import Space
from tests.benchmarks.cifar_part import write_part
from tests.benchmarks.harness import apart, by_turns, say, say_json

ROOT = Path(__file__).parents[2]
_FRONT = "search.objectives=[accuracy, tflite_bytes]"
"""What hypervolume is the measure of."""
WAYS = ("shrink", "plain Optuna", "random")
Point = tuple[float, float, float]
T = TypeVar("T")


class Blind(Outliner):
    """Says nothing of a point before it is trained."""

    def outline(self, plan: Plan) -> Outline:
        """Return no figures."""
        return Outline(figures={})

    def expect(self, plan: Plan) -> None:
        """Work nothing out."""

    def start(self) -> None:
        """Start no process."""


def main() -> None:
    """Print the hypervolume of each way at half the time and at its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default=str(ROOT / "recipes" / "digits.yaml"))
    parser.add_argument("--cifar10", type=Path, help="train/<class>/*.jpg and test/<class>/*.jpg")
    parser.add_argument("--resnet8", type=Path, help="the model's .h5 file, with --cifar10")
    parser.add_argument("--flash", default="40KB", help="limit of the .tflite file")
    parser.add_argument("--set", action="append", default=[], help="of the recipe, as `shrink run`")
    parser.add_argument("--time", type=float, default=240.0, help="seconds of each search")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--chance", type=float, default=0.1, help="accuracy of guessing")
    chosen = parser.parse_args()
    if chosen.cifar10 is None:
        compare(chosen)
        return
    with tempfile.TemporaryDirectory(prefix="bench-part-") as folder:
        chosen.recipe = str(write_part(chosen.cifar10, chosen.resnet8, Path(folder)))
        compare(chosen)


def compare(chosen: argparse.Namespace) -> None:
    """Search by each way with each seed, and print what came of it."""
    say(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for seed in chosen.seeds:
        rows = by_turns({way: _once(way, seed, chosen) for way in WAYS}, 1)
        for way, (row,) in rows.items():
            told = {key: value for key, value in row.items() if key != "all"}
            say_json({"way": way, "seed": seed, "load": round(os.getloadavg()[0], 1), **told})
            found[way].append(row)
    reachable = hypervolume(
        ((one[0], one[1], one[2]) for way in WAYS for row in found[way] for one in row["all"]),
        found["shrink"][0]["baseline_bytes"],
        chosen.chance,
    )
    if not reachable:
        say("no search has finished a point that counts: allow more --time")
        return
    for way in WAYS:
        for row in found[way]:
            row["of_known"] = row["volume"] / reachable
            row["of_known_at_half"] = row["volume_at_half"] / reachable
    for name in ("overhead_s_per_point", "sizes_s_per_point", "of_known_at_half", "of_known"):
        medians = {way: statistics.median(row[name] for row in found[way]) for way in WAYS}
        say(f"{name}: " + ", ".join(f"{way} {value:.3f}" for way, value in medians.items()))
    for name in ("volume_at_half", "volume", "volume_within", "volume_within_at_half"):
        medians = {way: statistics.median(row[name] for row in found[way]) for way in WAYS}
        say(f"{name}: " + ", ".join(f"{way} {value:.4f}" for way, value in medians.items()))
    ours = statistics.median(row["volume"] for row in found["shrink"])
    half = statistics.median(row["volume_at_half"] for row in found["shrink"])
    for way in WAYS[1:]:
        theirs = statistics.median(row["volume"] for row in found[way])
        say(f"shrink / {way}: {ours / theirs:.3f} at the end, {half / theirs:.3f} at half time")
        say(f"the most that any search could have over {way}: {1 / theirs:.3f}")


def _once(way: str, seed: int, chosen: argparse.Namespace) -> Any:
    def run() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="bench-search-") as folder:
            found: dict[str, Any] = apart(
                searched,
                environment={"SHRINK_CACHE_DIR": str(Path(folder) / "store")},
                way=way,
                seed=seed,
                folder=folder,
                recipe=chosen.recipe,
                flash=chosen.flash,
                settings=[*chosen.set, _FRONT],
                time_s=chosen.time,
                chance=chosen.chance,
            )
            return found

    return run


def searched(
    way: str,
    seed: int,
    folder: str,
    recipe: str,
    settings: list[str],
    flash: str,
    time_s: float,
    chance: float,
) -> dict[str, Any]:
    """Search in this process, and return what came of it."""
    from shrink.base.console import Console
    from shrink.run.options import RunOptions
    from shrink.run.process import preloading_refused

    if why := preloading_refused():  # as every command has it, and here of all three ways
        say(f"workers are fresh processes: {why}")
    ours = way == "shrink"
    named = recipe_named(recipe, settings)
    sampler = {"plain Optuna": "tpe", "random": "random"}.get(way)
    wanted = Wanted(flash=flash, time=time_s, seed=seed, sampler=sampler)
    asking = asking_of(wanted, named.config)
    space = named.space(asking)
    if not ours:
        space = Space(tuple(dataclasses.replace(one, first=()) for one in space.chains))
    out = Path(folder) / "out"
    candidates = Candidates(named.raw, named.source, space)
    mine = session.Search(candidates, asking, RunOptions(output=out), Console(quiet=True))
    spent = {"runs": 0.0, "sizes": 0.0}
    for name in ("choose", "show"):
        setattr(mine.runs, name, _timed(getattr(mine.runs, name), spent, "runs"))

    def outliner(store: Store, trust: bool) -> Outliner:
        made = Outliner(store, trust) if ours else Blind(store, trust)
        for name in ("outline", "expect", "start"):
            vars(made)[name] = _timed(getattr(made, name), spent, "sizes")
        return made

    mine.make_outliner = outliner
    began, started = time.time(), time.monotonic()
    with contextlib.suppress(StageError):  # no point was within the limit; what there is counts
        mine.find()
    found = from_plain(Searched, files.read_mapping(out / SEARCH_NAME))
    limit = asking.limits["tflite_bytes"]
    points = [
        (
            (out / str(one.run) / "report.json").stat().st_mtime - began,
            float(one.figures["tflite_bytes"] or 0),
            float(one.figures["accuracy"] or 0),
        )
        for one in found.trials
        if one.status == "done"
    ]
    most = float(found.baseline["tflite_bytes"] or 0)
    took = time.monotonic() - started
    asked = max(1, len(found.trials))
    figures: dict[str, Any] = {
        "all": points,
        "baseline_bytes": most,
        "overhead_s_per_point": round((took - sum(spent.values())) / asked, 3),
        "sizes_s_per_point": round(spent["sizes"] / asked, 3),
        "halted": sum(one.status == "halted" for one in found.trials),
        "points": float(len(points)),
        "untrained": float(sum(one.status == "infeasible" for one in found.trials)),
        "seconds": round(took, 1),
        "best_bytes": float((found.best.figures["tflite_bytes"] if found.best else 0) or 0),
        "best_accuracy": float((found.best.figures["accuracy"] if found.best else 0) or 0),
    }
    for name, within in (("volume", most), ("volume_within", limit)):
        kept = [one for one in points if one[1] <= within]
        early = [one for one in kept if one[0] <= time_s / 2]
        figures[name] = hypervolume(kept, most, chance)
        figures[f"{name}_at_half"] = hypervolume(early, most, chance)
    return figures


def _timed(function: Callable[..., T], spent: dict[str, float], name: str) -> Callable[..., T]:
    """Return a function that adds the seconds of each call to what was spent."""

    def call(*given: Any, **named: Any) -> T:
        started = time.monotonic()
        try:
            return function(*given, **named)
        finally:
            spent[name] += time.monotonic() - started

    return call


def hypervolume(points: Iterable[Point], most: float, chance: float) -> float:
    """Return the share of the box below `most` bytes and above chance that points dominate."""
    volume, reached = 0.0, chance
    steps: Sequence[tuple[float, float]] = sorted((one[1], one[2]) for one in points)
    for number, (size, accuracy) in enumerate(steps):
        reached = max(reached, accuracy)
        until = steps[number + 1][0] if number + 1 < len(steps) else most
        volume += max(0.0, min(until, most) - size) * (reached - chance)
    return volume / (most * (1 - chance))


if __name__ == "__main__":
    main()
