"""How much of a front each sampler finds in few points, where points cost nothing.

    python -m tests.benchmarks.bench_samplers [--seeds 25] [--points 10 20 40]

Points are of a closed form: bytes are a product of what is left, the width, the bits and the
sparsity; accuracy saturates with the capacity, and has noise of 0.6 points. All samplers look for
both, as `shrink search` asks them. Prints the share of the box below 60 KB and above 80 % that is
dominated, as the mean over the seeds.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics

import optuna

from shrink.base.foreign import Json
from shrink.contract.report import Figures
from shrink.contract.searched import Trial
from shrink.recipe.search_config import SAMPLERS
from shrink.search.goal import Goal
from shrink.search.space import Chain, Choice, Interval, Settings, Space
from shrink.search.study import Study
from tests.benchmarks.bench_search import hypervolume
from tests.benchmarks.harness import say

_GOAL = Goal("accuracy", objectives=("accuracy", "tflite_bytes"), traded=True)
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
_MOST, _LEAST = 60.0, 0.8


def main() -> None:
    """Print a line for each sampler."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--points", type=int, nargs="+", default=[10, 20, 40])
    chosen = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for sampler in SAMPLERS:
        found = [_volumes(sampler, seed, chosen.points) for seed in range(chosen.seeds)]
        means = [statistics.mean(one) for one in zip(*found, strict=True)]
        told = zip(chosen.points, means, strict=True)
        say(f"{sampler}: " + ", ".join(f"{mean:.3f} after {count}" for count, mean in told))


def _volumes(sampler: str, seed: int, counts: list[int]) -> list[float]:
    """Return what is dominated after so many points."""
    study = Study(optuna.storages.InMemoryStorage(), "s", _GOAL, _SPACE, sampler, seed, "")
    noise, points = random.Random(seed), list[tuple[float, float, float]]()
    for _ in range(max(counts)):
        asked = study.ask()
        figures = _figures(asked.settings, noise)
        trial = Trial(
            number=asked.number,
            settings=asked.settings,
            figures=figures,
            feasible=True,
            status="done",
        )
        study.tell(asked, trial, {})
        points.append((0.0, float(figures["tflite_bytes"] or 0), float(figures["accuracy"] or 0)))
    within = [[one for one in points[:count] if one[1] <= _MOST] for count in counts]
    return [hypervolume(one, _MOST, _LEAST) for one in within]


def _figures(settings: Settings, noise: random.Random) -> Figures:
    capacity = float(str(settings["left"])) * float(str(settings["width"]))
    (share, coarse), (left, sparse) = _BITS[settings["bits"]], _SPARSE[settings["sparse"]]
    accuracy = 0.98 - 0.25 * math.exp(-capacity / 0.12) - coarse - sparse
    size = 100 * capacity * share * left + 4
    return {"accuracy": min(1.0, accuracy + noise.gauss(0, 0.006)), "tflite_bytes": size}


if __name__ == "__main__":
    main()
