"""How `shrink search` chooses trials, against Optuna's samplers and random ones, on equal terms.

    python -m tests.benchmarks.bench_search [--trials 12] [--seeds 0 1 2]
    python -m tests.benchmarks.bench_search --recipe R [--time T] [--set KEY=VALUE] [--seeds 0 1 2]
                                            [--cifar10 FOLDER --resnet8 model.h5]

All samplers run in the same search: with the same starting trials, the same sizes before training,
the same store and the same end. `tpe` is Optuna's TPESampler with 3 startup trials, `optuna-gp` its
GPSampler, which needs torch and is left out without it. Without a recipe trials are of a closed
form and cost nothing: bytes are a product of what is left and the bits, accuracy saturates with
what is left. With one, trials are trained as `shrink run` trains them.

Prints for each sampler and seed the hypervolume: the share of the box below the limit of the size
and above chance that the trained trials dominate; then medians.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import optuna

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import StageError
from shrink.contract.codec import from_plain
from shrink.contract.searched import SEARCH_NAME, Searched
from shrink.recipe.overrides import Override
from shrink.run.options import RunOptions
from shrink.search.candidates import Candidates
from shrink.search.session import Search
from shrink.search.trials import tpe_sampler
from tests.benchmarks.cifar_part import write_part
from tests.benchmarks.harness import apart, by_turns, say, say_json
from tests.search.fake import FakeAttempt, search

OBJECTIVES = ["accuracy", "tflite_bytes"]
CLOSED_FORM: dict[str, Any] = {
    "space": {
        "prune.parameters": {"low": 0.1, "high": 0.9, "step": 0.01},
        "quantize.scheme": ["static_wi8_ai8", "float16"],
    },
    "objectives": OBJECTIVES,
    "constraints": {"tflite_bytes": 100_000},
}
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler] | None] = {
    "shrink": None,
    "tpe": tpe_sampler,
    "random": optuna.samplers.RandomSampler,
}
if importlib.util.find_spec("torch") is not None:
    SAMPLERS["optuna-gp"] = functools.partial(optuna.samplers.GPSampler, n_startup_trials=3)
Point = tuple[float, float]


def main() -> None:
    """Print the hypervolume of each sampler."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe")
    parser.add_argument("--cifar10", type=Path, help="train/<class>/*.jpg and test/<class>/*.jpg")
    parser.add_argument("--resnet8", type=Path, help="the model's .h5 file, with --cifar10")
    parser.add_argument("--set", action="append", default=[], help="of the recipe")
    parser.add_argument("--time", type=float, default=240.0, help="seconds of each search")
    parser.add_argument("--trials", type=int, default=12, help="of the closed form")
    parser.add_argument("--flash", default="40KB", help="limit of the .tflite file")
    parser.add_argument("--chance", type=float, default=0.1, help="accuracy of guessing")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    chosen = parser.parse_args()
    say(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(prefix="bench-search-") as folder:
        if chosen.cifar10 is not None:
            chosen.recipe = str(write_part(chosen.cifar10, chosen.resnet8, Path(folder)))
        compare(chosen)


def compare(chosen: argparse.Namespace) -> None:
    """Search by each sampler with each seed, and print what came of it."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in SAMPLERS}
    for seed in chosen.seeds:
        ways = {name: functools.partial(_apart, name, seed, chosen) for name in SAMPLERS}
        for name, (row,) in by_turns(ways, 1).items():
            say_json({"sampler": name, "seed": seed, **row})
            found[name].append(row)
    for figure in ("volume_at_half", "volume"):
        medians = {n: statistics.median(row[figure] for row in found[n]) for n in SAMPLERS}
        say(f"{figure}: " + ", ".join(f"{name} {value:.4f}" for name, value in medians.items()))


def _apart(name: str, seed: int, chosen: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-search-") as folder:
        found: dict[str, Any] = apart(
            searched,
            environment={"SHRINK_CACHE_DIR": str(Path(folder) / "store")},
            name=name,
            seed=seed,
            folder=folder,
            recipe=chosen.recipe,
            settings=chosen.set,
            trials=chosen.trials,
            flash=chosen.flash,
            time_s=chosen.time,
            chance=chosen.chance,
        )
    return found


def searched(
    name: str,
    seed: int,
    folder: str,
    recipe: str | None,
    settings: Sequence[str],
    trials: int,
    flash: str,
    time_s: float,
    chance: float,
) -> dict[str, Any]:
    """Search in this process, and return what came of it."""
    made = _closed_form(Path(folder), seed, trials)
    if recipe is not None:
        made = _of_recipe(Path(folder), recipe, settings, seed, flash, time_s)
    sampler = SAMPLERS[name]
    made.sampler = None if sampler is None else sampler(seed)
    started = time.monotonic()
    with contextlib.suppress(StageError):  # no trial is within the limit; what there is counts
        made.find()
    took = time.monotonic() - started
    found = from_plain(Searched, files.read_mapping(made.folder / SEARCH_NAME))
    done = [one for one in found.trials if one.status == "done"]
    most = found.limits["tflite_bytes"]
    pairs = [
        (float(one.figures["tflite_bytes"] or 0), float(one.figures["accuracy"] or 0))
        for one in done
    ]
    return {
        "volume_at_half": hypervolume(pairs[: len(pairs) // 2], most, chance),
        "volume": hypervolume(pairs, most, chance),
        "trained": len(done),
        "untrained": len(found.trials) - len(done),
        "seconds": round(took, 1),
    }


def _closed_form(folder: Path, seed: int, trials: int) -> Search:
    return search(folder, {**CLOSED_FORM, "seed": seed, "trials": trials}, FakeAttempt())


def _of_recipe(
    folder: Path, recipe: str, settings: Sequence[str], seed: int, flash: str, time_s: float
) -> Search:
    from shrink.run.process import preloading_refused

    if why := preloading_refused():  # as every command has it
        say(f"workers are fresh processes: {why}")
    changes = [f"search.objectives={json.dumps(OBJECTIVES)}", f"search.seed={seed}"]
    changes += [f"search.constraints.tflite_bytes={flash}", f"search.time={time_s}", *settings]
    candidates = Candidates.of(recipe, [Override.parse(one) for one in changes])
    return Search(candidates, RunOptions(output=folder / "out"), Console(quiet=True))


def hypervolume(points: Iterable[Point], most: float, chance: float) -> float:
    """Return the share of the box below `most` bytes and above chance that points dominate."""
    volume, reached = 0.0, chance
    steps: Sequence[Point] = sorted(one for one in points if one[0] <= most)
    for number, (size, accuracy) in enumerate(steps):
        reached = max(reached, accuracy)
        end = steps[number + 1][0] if number + 1 < len(steps) else most
        volume += (end - size) * (reached - chance)
    return volume / (most * (1 - chance))


if __name__ == "__main__":
    main()
