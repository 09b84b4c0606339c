"""Simulates the limits of many slices at once, whose metric has few resamples.

Two models of equal quality are measured by F1 on 400 resamples. At 0.05 for 11 slices together each
may be found to differ in 0.45 % of the samples at most.
"""

from __future__ import annotations

import numpy as np
import pytest

from shrink.base.bootstrap import Resampled, resampled_difference

RESAMPLES, SLICES, SAMPLES = 400, 11, 6_000
LEVEL = 0.05 / SLICES
CHANCE = 3 * (LEVEL / SAMPLES) ** 0.5
"""Three standard errors of the share of samples."""


def f1(truth: np.ndarray, found: np.ndarray, weights: np.ndarray) -> np.ndarray:
    hits = weights @ (found & truth)
    return np.asarray(2 * hits / (2 * hits + weights @ (found ^ truth)))


def evidence(truth: np.ndarray, found: np.ndarray, drawn: np.ndarray) -> Resampled:
    count = len(truth)
    value = float(f1(truth, found, np.ones(count)))
    without = f1(truth, found, 1 - np.eye(count))
    influences = value + (count - 1) * (without.mean() - without)
    replicates = f1(truth, found, drawn)
    return Resampled(value, tuple(replicates.tolist()), tuple(influences.tolist()), "one draw")


@pytest.mark.slow
@pytest.mark.parametrize("examples", [60, 300])
def test_equal_models_are_rarely_found_to_differ_in_one_of_many_slices(examples: int) -> None:
    random = np.random.default_rng(3)
    drawn = random.multinomial(examples, [1 / examples] * examples, RESAMPLES).astype(float)
    held = 0
    for _ in range(SAMPLES):
        truth = random.random(examples) < 0.4
        models = [truth ^ (random.random(examples) < 0.15) for _ in range(2)]
        before, after = (evidence(truth, found, drawn) for found in models)
        limits = resampled_difference(before, after, 1 - LEVEL, (0.0, 1.0))
        assert limits is not None
        assert limits.low is not None
        assert limits.high is not None
        held += limits.low <= 0 <= limits.high
    assert held / SAMPLES >= 1 - LEVEL - CHANCE
