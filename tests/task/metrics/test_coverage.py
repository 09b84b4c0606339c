"""How often bootstrap intervals hold the truth, in simulation, and how wide they are at least."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from shrink.base.bootstrap import resampled_difference, resampled_interval
from tests.benchmarks.bench_intervals import BOUNDS, CASES, SIZES, coverage
from tests.task.metrics.toys import sampled

SAMPLES = 200
OF_BOXES = 60
"""Samples of mean average precision, which takes a second of each 200 pictures."""


def least(samples: int) -> float:
    """Return 93 % less 2.3 standard deviations of a share of so many samples.

    An interval that holds the truth in 93 % of samples misses this once in a hundred times.
    """
    return 0.93 - 2.3 * (0.93 * 0.07 / samples) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", [name for name in CASES if name != "map"])
def test_intervals_of_a_metric_and_of_a_difference_hold_the_truth(name: str, n: int) -> None:
    own, change = coverage(name, CASES[name], n, range(SAMPLES))
    assert own >= least(SAMPLES)
    assert change >= least(SAMPLES)


@pytest.mark.slow
def test_intervals_of_mean_average_precision_hold_the_truth() -> None:
    own, change = coverage("map", CASES["map"], 200, range(OF_BOXES))
    assert own >= least(OF_BOXES)
    assert change >= least(OF_BOXES)


OWN, OTHERS = 36, 324
"""Examples of the class that a metric is of, and of the other."""


def decided(truth: np.ndarray, wrong: int, at: int) -> np.ndarray:
    """Return scores of two classes that are right but for the first `wrong` examples of a class."""
    classes = truth.copy()
    classes[np.flatnonzero(truth == at)[:wrong]] = 1 - at
    return np.eye(2)[classes]


def test_the_recall_of_a_rare_class_is_held_by_its_interval() -> None:
    random, held, samples = np.random.default_rng(3), 0, 200
    for _ in range(samples):
        truth = np.repeat([0, 1], [OWN, OTHERS])
        sample = sampled("recall_0", decided(truth, random.binomial(OWN, 0.03), 0), truth)
        assert sample is not None
        found = resampled_interval(sample, bounds=BOUNDS)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.97 <= found.high
    assert held >= 0.93 * samples


@pytest.mark.parametrize("wrong", [0, OWN])
@pytest.mark.parametrize("key", ["recall_0", "f1_0", "precision_0", "roc_auc_0", "recall_macro"])
def test_a_metric_of_few_examples_at_its_end_is_as_uncertain_as_a_share_of_them(
    key: str, wrong: int
) -> None:
    truth = np.repeat([0, 1], [OWN, OTHERS])
    outputs = decided(truth, wrong, 0)
    if key == "precision_0":  # of which class what was decided for it is
        outputs, truth = np.eye(2)[truth], outputs.argmax(axis=1)
    if wrong and key in ("roc_auc_0", "recall_macro"):
        outputs = 1 - np.eye(2)[truth]
    sample = sampled(key, outputs, truth)
    assert sample is not None
    assert sample.value == (0 if wrong else 1)
    found = resampled_interval(sample, bounds=BOUNDS)
    change = resampled_difference(sample, sample, bounds=BOUNDS)
    assert change is not None
    assert None not in (found.low, found.high, change.low, change.high)
    # A half of the macro average is of the other class, which is as certain as its 324 examples.
    part = 2 if key == "recall_macro" else 1
    wilson = stats.binomtest(OWN, OWN).proportion_ci(method="wilson")
    width = (1 - wilson.low) / part
    assert width <= found.high - found.low <= 1.2 * width  # type: ignore[operator]
    assert change.low <= -width
    assert change.high >= width


RARE, COMMON = 10, 200
"""Examples of the third class, and of each other one."""


def of_three(wrong: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and truth of three classes; wrong ones are taken for the class before."""
    truth = np.repeat([0, 1, 2], [COMMON, COMMON, RARE])
    classes = truth.copy()
    for at, count in enumerate(wrong):
        classes[np.flatnonzero(truth == at)[:count]] = (at - 1) % 3 if at else 1
    return np.eye(3)[classes], truth


@pytest.mark.parametrize("key", ["balanced_accuracy", "recall_macro", "f1_macro"])
def test_a_rare_class_that_is_wholly_right_widens_a_mean_over_classes(key: str) -> None:
    sample = sampled(key, *of_three((20, 20, 0)))
    assert sample is not None
    found = resampled_interval(sample, bounds=BOUNDS)
    wilson = stats.binomtest(RARE, RARE).proportion_ci(method="wilson")
    width = (1 - wilson.low) / 3
    assert None not in (found.low, found.high)
    assert width <= sample.value - found.low <= 1.2 * width  # type: ignore[operator]
    assert found.high - sample.value <= 0.5 * width  # type: ignore[operator]


def test_a_class_that_is_never_true_is_no_part_of_balanced_accuracy() -> None:
    outputs, truth = of_three((20, 20, 0))
    outputs = np.hstack([outputs, np.zeros((len(outputs), 1))])
    outputs[:20] = [0, 0, 0, 1]  # twenty wrong answers name a class that no example has
    sample = sampled("balanced_accuracy", outputs, truth)
    assert sample is not None
    assert sample.part == pytest.approx(1 / 3)


def test_a_class_that_is_never_named_is_wholly_wrong() -> None:
    truth = np.repeat([0, 1], [40, 5])
    outputs = np.tile([1.0, 0.0], (45, 1))
    samples = [sampled(key, outputs, truth) for key in ("precision_macro", "f1_macro")]
    assert [one.wrong for one in samples if one is not None] == [5, 5]


def test_a_drop_in_large_classes_is_proven_beside_a_rare_class_that_stays_right() -> None:
    before, after = (
        sampled("balanced_accuracy", *of_three(wrong)) for wrong in ((20, 20, 0), (40, 40, 0))
    )
    assert before is not None
    assert after is not None
    change = resampled_difference(before, after, bounds=BOUNDS)
    assert change is not None
    assert change.high is not None
    assert change.high < 0


def test_balanced_accuracy_with_a_rare_class_is_held_by_its_interval() -> None:
    random, held, samples = np.random.default_rng(3), 0, 200
    for _ in range(samples):
        drawn = random.binomial([COMMON, COMMON, RARE], 0.1)
        sample = sampled("balanced_accuracy", *of_three(tuple(drawn.tolist())))
        assert sample is not None
        found = resampled_interval(sample, bounds=BOUNDS)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.9 <= found.high
    assert held >= 0.93 * samples


def test_mean_average_precision_of_few_pictures_is_as_uncertain_as_a_share_of_them() -> None:
    few, pictures = 10, 100
    truth = np.full((pictures, 1, 7), -1.0)
    truth[:, 0] = [0, 0, 40, 40, 1, 0, 1600]
    truth[:few, 0, 4] = 0
    found = np.zeros((pictures, 1, 6))
    found[:, :, :4], found[:, :, 4], found[:, :, 5] = truth[:, :, :4], 0.9, truth[:, :, 4]
    sample = sampled("map_0", found, truth, loss="boxes", classes=("0", "1"))
    assert sample is not None
    assert sample.value == pytest.approx(1)
    limits = resampled_interval(sample, bounds=BOUNDS)
    assert limits.low is not None
    assert limits.low <= stats.binomtest(few, few).proportion_ci(method="wilson").low
