"""How much of a front each sampler finds in few points, where points cost nothing.

    python -m tests.benchmarks.bench_samplers [--seeds 25] [--points 10 20 40]

Points are of a closed form, and each takes as long: bytes are a product of what is left, the width,
the bits and the sparsity; accuracy saturates with the capacity, and has noise of 0.6 points. All
samplers look for both, as `shrink search` asks them, once without limits and once within 60 KB and
a drop of 18 points; a point beyond the size is told and not counted, as it is not trained. Prints
the share that is dominated, as the mean over the seeds, of the box below the baseline's bytes and
above no accuracy, and of the box that the limits leave.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import optuna

from shrink.base.foreign import Json
from shrink.contract.job import Outline
from shrink.contract.report import Figures
from shrink.contract.searched import Trial
from shrink.recipe.search_config import SAMPLERS
from shrink.search.goal import Goal
from shrink.search.proposing import Known, Looked, Looker, Proposer
from shrink.search.space import Chain, Choice, Interval, Settings, Space
from shrink.search.study import Asked, Study
from tests.benchmarks.bench_search import hypervolume
from tests.benchmarks.harness import say

_FRONT = Goal("accuracy", objectives=("accuracy", "tflite_bytes"), traded=True)
_LIMITED = replace(_FRONT, limits={"tflite_bytes": 60.0}, max_drop=0.18)
_BITS: dict[Json, tuple[float, float]] = {"i8": (1, 0.01), "i4": (0.5, 0.03), "f16": (2, 0)}
"""Bytes of a weight, and the accuracy that it costs."""
_SPARSE: dict[Json, tuple[float, float]] = {"0": (1, 0), "2:4": (0.75, 0.008), "0.75": (0.45, 0.05)}
"""Share of the bytes that is left, and the accuracy that it costs."""
_SPACE = Space(
    (
        Chain(
            "",
            None,
            {
                "left": Interval(0.1, 0.9, 0.05),
                "width": Interval(0.25, 1.0, 0.125),
                "bits": Choice(tuple(_BITS)),
                "sparse": Choice(tuple(_SPARSE)),
            },
        ),
    )
)
_BASELINE = {"accuracy": 0.98, "tflite_bytes": 200.0}
"""Of the network as it is, in float16."""
_BOXES = ((_FRONT, 200.0, 0.0), (_LIMITED, 60.0, 0.8))
"""Goals, each with the corner that its front is measured from."""


def main() -> None:
    """Print a line for each sampler."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--points", type=int, nargs="+", default=[10, 20, 40])
    chosen = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for goal, most, least in _BOXES:
        for sampler in SAMPLERS:
            seeds = range(chosen.seeds)
            found = [_volumes(goal, sampler, seed, chosen.points, most, least) for seed in seeds]
            means = [statistics.mean(one) for one in zip(*found, strict=True)]
            told = zip(chosen.points, means, strict=True)
            words = ", ".join(f"{mean:.3f} after {count}" for count, mean in told)
            say(f"{sampler}, {goal.in_words()}: {words}")


def _volumes(
    goal: Goal, sampler: str, seed: int, counts: list[int], most: float, least: float
) -> list[float]:
    """Return what is dominated after so many points."""
    study = Study(optuna.storages.InMemoryStorage(), "s", goal, _SPACE, sampler, seed, "")
    noise, points = random.Random(seed), list[tuple[float, float, float]]()
    proposer = (
        Proposer(goal, _BASELINE, _Known(), [], study.draw, seed) if sampler == "gp" else None
    )
    while len(points) < max(counts):
        asked = _asked(study, proposer)
        figures = _figures(asked.settings, noise)
        size, accuracy = (float(figures[name] or 0) for name in ("tflite_bytes", "accuracy"))
        excesses = goal.excesses(figures, _BASELINE)
        broken = tuple(name for name, excess in excesses.items() if excess > 0)
        is_too_large = size > goal.limits.get("tflite_bytes", math.inf)
        trial = Trial(
            number=asked.number,
            settings=asked.settings,
            figures={"tflite_bytes": size} if is_too_large else figures,
            feasible=not broken,
            status="infeasible" if is_too_large else "done",
            broken=broken,
        )
        study.tell(asked, trial, excesses)
        if not is_too_large:
            points.append((0.0, size, accuracy))
    return [hypervolume([p for p in points[:n] if p[1] <= most], most, least) for n in counts]


class _Known(Looker):
    """Knows the sizes of points."""

    def __init__(self) -> None:
        return

    def look(self, settings: Settings) -> Looked:
        return Looked(settings, repr(settings))

    def outlined(self, looked: Looked) -> Looked:
        size = _figures(looked.settings, None)["tflite_bytes"]
        return replace(looked, outline=Outline(figures={"tflite_bytes": size}))

    def seconds(self, looked: Sequence[Looked]) -> list[float]:
        return [1.0] * len(looked)


def _asked(study: Study, proposer: Proposer | None) -> Asked:
    if proposer is None:
        return study.ask()
    trials = study.trials()
    seen = frozenset(repr(one.settings) for one in trials)
    return study.ask_if_none_waits(lambda: proposer.propose(Known(trials, seen, (), study.asked())))


def _figures(settings: Settings, noise: random.Random | None) -> Figures:
    capacity = float(str(settings["left"])) * float(str(settings["width"]))
    (share, coarse), (left, sparse) = _BITS[settings["bits"]], _SPARSE[settings["sparse"]]
    accuracy = 0.98 - 0.25 * math.exp(-capacity / 0.12) - coarse - sparse
    size = 100 * capacity * share * left + 4
    error = 0.0 if noise is None else noise.gauss(0, 0.006)
    return {"accuracy": min(1.0, accuracy + error), "tflite_bytes": size}


if __name__ == "__main__":
    main()
