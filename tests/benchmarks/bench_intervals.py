"""How often bootstrap intervals hold the truth in simulation, and what they cost.

    python -m tests.benchmarks.bench_intervals [--samples 400] [--sizes 200 1000 5000]
        [--metrics roc_auc f1_macro mean_iou map] [--first 0] [--keep FOLDER]

Examples are drawn from a population whose metric is known from 400,000 of them; so are those of a
second artifact, which decides otherwise on a few. Each sample gives an interval of the metric and
one of the paired difference. What the truth itself is off by counts as a miss: of boxes it is the
mean over parts of 20,000 pictures, 150 times as many as a sample has.

Samples are numbered, so that processes can share them: `--first 50 --samples 50` are those from the
fifty-first to the hundredth. With `--keep` each is written down, and read where it is there.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from shrink.base import files
from shrink.base.bootstrap import Resampled, resampled_difference, resampled_interval
from shrink.base.intervals import Interval
from shrink.task.metrics.resample import resample
from tests.task.metrics.toys import value, weighted

T = TypeVar("T")
Population = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Outputs of two artifacts, and targets, of a number of examples."""
SIZES = (200, 1_000, 5_000)
TRUTH, PART_OF_BOXES = 400_000, 20_000
TIMES = 150
"""How many times as many examples as a sample has the truth is of, at least."""
BOUNDS = (0.0, 1.0)


def scores(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One number, a third positives, AUC about 0.92; the second artifact is noisier."""
    labels = (random.uniform(size=n) < 1 / 3).astype(int)
    first = random.normal(size=n) + 2 * labels
    second = first + 0.3 * random.normal(size=n)
    return first[:, None], second[:, None], labels


def classes(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four classes of unequal size, F1 about 0.75; the second artifact is noisier."""
    labels = random.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    first = random.normal(size=(n, 4)) + 2 * np.eye(4)[labels]
    return first, first + 0.3 * random.normal(size=(n, 4)), labels


def masks(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sixteen pixels of three classes, whose difficulty differs by picture."""
    truth = random.choice(3, (n, 16), p=[0.6, 0.3, 0.1])
    hard = random.exponential(1.0, (n, 1, 1))
    first = hard * random.normal(size=(n, 16, 3)) + 2 * np.eye(3)[truth]
    return first, first + 0.3 * random.normal(size=(n, 16, 3)), truth


def boxes(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Up to three boxes of two classes in rows of their own; pictures differ in difficulty."""
    truth, first = np.zeros((n, 3, 7)), np.zeros((n, 6, 6))
    truth[..., 4] = np.where(random.uniform(size=(n, 3)) < 0.7, random.integers(0, 2, (n, 3)), -1)
    side = random.uniform(20, 60, (n, 3, 2))
    corner = np.stack([random.uniform(0, 60, (n, 3)), np.arange(3) * 100 + np.zeros((n, 3))], -1)
    truth[..., :2], truth[..., 2:4] = corner, corner + side
    truth[..., 6] = side.prod(-1)
    hard = random.exponential(1.0, (n, 1, 1))
    first[:, :3, :4] = truth[..., :4] + 2 * hard * random.normal(size=(n, 3, 4))
    found = (truth[..., 4] >= 0) & (random.uniform(size=(n, 3)) < 0.9)
    first[:, :3, 5] = np.where(found, truth[..., 4], -1)
    first[:, 3:, :4] = [300, 0, 330, 30]  # where nothing is
    first[:, 3:, 5] = np.where(random.uniform(size=(n, 3)) < 0.3, random.integers(0, 2, (n, 3)), -1)
    first[..., 4] = random.normal(np.array([2, 2, 2, 0, 0, 0]), 1, (n, 6))
    second = first.copy()
    second[..., 4] += 0.3 * random.normal(size=(n, 6))
    second[:, :3, :4] += random.normal(size=(n, 3, 4))
    return first, second, truth


CASES: dict[str, Population] = {
    "roc_auc": scores,
    "f1_macro": classes,
    "mean_iou": masks,
    "map": boxes,
}


def truth_of(name: str, population: Population, n: int) -> tuple[float, float]:
    """Return metric and difference of a whole population, for samples of `n`."""
    size = PART_OF_BOXES if name == "map" else TRUTH
    return _truth(name, population, size, math.ceil(TIMES * n / size))


@functools.cache
def _truth(name: str, population: Population, size: int, parts: int) -> tuple[float, float]:
    random, found = np.random.default_rng(7), []
    for _ in range(parts):
        first, second, targets = population(random, size)
        own = value(name, first, targets, from_logits=True)
        found.append((own, value(name, second, targets, from_logits=True) - own))
    own, change = np.mean(found, axis=0)
    return float(own), float(change)


def coverage(
    name: str, population: Population, n: int, samples: range, keep: Path | None = None
) -> tuple[float, float]:
    """Return the shares of samples whose intervals hold the metric, and the difference."""
    found = [
        _kept(keep, f"{name}-{n}-{index}", _sample(name, population, n, index)) for index in samples
    ]
    truth = _kept(keep, f"{name}-{n}-truth", lambda: truth_of(name, population, n))
    held = [
        [low <= true <= high for (low, high), true in zip(one, truth, strict=True)] for one in found
    ]
    own, change = np.mean(held, axis=0)
    return float(own), float(change)


def _sample(
    name: str, population: Population, n: int, index: int
) -> Callable[[], list[tuple[float, float]]]:
    """Return what gives the limits of the metric and of the difference, NaN where it has none."""

    def limits() -> list[tuple[float, float]]:
        first, second, targets = population(np.random.default_rng([n, index]), n)
        before, after = both(name, first, second, targets)
        intervals = (
            resampled_interval(before, bounds=BOUNDS),
            resampled_difference(before, after, bounds=BOUNDS),
        )
        return [_limits(one) for one in intervals]

    return limits


def _limits(interval: Interval | None) -> tuple[float, float]:
    if interval is None or interval.low is None or interval.high is None:
        return (math.nan, math.nan)
    return (interval.low, interval.high)


def _kept(folder: Path | None, name: str, make: Callable[[], T]) -> T:
    """Return what was made before and kept in a folder, or make it."""
    if folder is None:
        return make()
    path = folder / f"{name}.json"
    if not path.is_file():
        files.write_text(path, json.dumps(make()))
    made: T = json.loads(path.read_text(encoding="utf-8"))
    return made


def both(
    name: str, first: np.ndarray, second: np.ndarray, targets: np.ndarray
) -> tuple[Resampled, Resampled]:
    """Return what the intervals of both artifacts are computed from."""
    metrics = [weighted(name, outputs, targets, from_logits=True) for outputs in (first, second)]
    before, after = resample(metrics, len(targets))
    assert before is not None
    assert after is not None
    return before, after


def cost(name: str, population: Population) -> float:
    """Return the seconds of CPU that a metric of 10,000 examples takes with its interval."""
    first, _, targets = population(np.random.default_rng(1), 10_000)
    start = time.process_time()
    metric = weighted(name, first, targets, from_logits=True)
    (sample,) = resample([metric], len(targets))
    assert sample is not None
    resampled_interval(sample, bounds=BOUNDS)
    return time.process_time() - start


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="number of the first sample")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--metrics", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--keep", type=Path, help="an existing folder for samples")
    arguments = parser.parse_args()
    samples = range(arguments.first, arguments.first + arguments.samples)
    for name in arguments.metrics:
        population = CASES[name]
        seconds = cost(name, population)
        print(f"{name}: {seconds:.2f} s of CPU for 10,000 examples", flush=True)  # noqa: T201
        for n in arguments.sizes:
            own, change = coverage(name, population, n, samples, arguments.keep)
            text = f"{name}, n = {n}: metric {own:.1%}, difference {change:.1%}"
            print(f"{text} of {arguments.samples} samples", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
