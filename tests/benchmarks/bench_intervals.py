"""How often bootstrap intervals hold the truth in simulation, and what they cost.

    python -m tests.benchmarks.bench_intervals [--samples 400] [--sizes 200 1000 5000]
        [--metrics roc_auc f1_macro mean_iou map] [--first 0]

Examples are drawn from a population whose metric is known from 400,000 of them (20,000 pictures of
boxes); so are those of a second artifact, which decides otherwise on a few. Each sample gives an
interval of the metric and one of the paired difference. Samples are numbered, so that processes can
share them: `--first 50 --samples 50` are those from the fifty-first to the hundredth.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

import numpy as np

from shrink.base.intervals import Interval
from shrink.base.resampled import Resampled, resampled_difference, resampled_interval
from shrink.task.metrics.resample import resample
from tests.task.metrics.toys import value, weighted

Population = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Outputs of two artifacts, and targets, of a number of examples."""
SIZES = (200, 1_000, 5_000)
TRUTH, TRUTH_OF_BOXES = 400_000, 20_000
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


@functools.cache
def truth_of(name: str, population: Population) -> tuple[float, float]:
    """Return metric and difference of a whole population."""
    count = TRUTH_OF_BOXES if name == "map" else TRUTH
    first, second, targets = population(np.random.default_rng(7), count)
    own = value(name, first, targets, from_logits=True)
    return own, value(name, second, targets, from_logits=True) - own


def coverage(name: str, population: Population, n: int, samples: range) -> tuple[float, float]:
    """Return the shares of samples whose intervals hold the metric, and the difference."""
    own, change = truth_of(name, population)
    held, held_change = 0, 0
    for index in samples:
        first, second, targets = population(np.random.default_rng([n, index]), n)
        before, after = both(name, first, second, targets)
        held += holds(resampled_interval(before, bounds=BOUNDS), own)
        held_change += holds(resampled_difference(before, after, bounds=BOUNDS), change)
    return held / len(samples), held_change / len(samples)


def both(
    name: str, first: np.ndarray, second: np.ndarray, targets: np.ndarray
) -> tuple[Resampled, Resampled]:
    """Return what the intervals of both artifacts are computed from."""
    metrics = [weighted(name, outputs, targets, from_logits=True) for outputs in (first, second)]
    before, after = resample(metrics, len(targets))
    assert before is not None
    assert after is not None
    return before, after


def holds(interval: Interval | None, truth: float) -> bool:
    """Whether an interval holds the truth; without limits it does not."""
    if interval is None or interval.low is None or interval.high is None:
        return False
    return interval.low <= truth <= interval.high


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
    arguments = parser.parse_args()
    samples = range(arguments.first, arguments.first + arguments.samples)
    for name in arguments.metrics:
        population = CASES[name]
        seconds = cost(name, population)
        print(f"{name}: {seconds:.2f} s of CPU for 10,000 examples", flush=True)  # noqa: T201
        for n in arguments.sizes:
            own, change = coverage(name, population, n, samples)
            text = f"{name}, n = {n}: metric {own:.1%}, difference {change:.1%}"
            print(f"{text} of {arguments.samples} samples", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
