"""Bootstrap intervals from replicates and influences, against SciPy and closed forms."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from shrink.base.bootstrap import Resampled, resampled_difference, resampled_interval
from shrink.contract.codec import from_plain, to_plain

RANDOM = np.random.default_rng(0)


def sample_of(values: np.ndarray, seed: int = 1, draw: str = "a") -> Resampled:
    """Return a mean with its resamples: what a metric that is no mean would leave."""
    random, n = np.random.default_rng(seed), len(values)
    replicates = [float(values[random.integers(0, n, n)].mean()) for _ in range(2000)]
    without = (values.sum() - values) / (n - 1)
    influences = values.mean() + (n - 1) * (without.mean() - without)
    return Resampled(float(values.mean()), tuple(replicates), tuple(influences.tolist()), draw)


@pytest.mark.parametrize(
    "values", [RANDOM.exponential(size=400), RANDOM.integers(0, 2, 100)], ids=["skewed", "tied"]
)
def test_resampled_interval_equals_scipys_bca_but_for_chance(values: np.ndarray) -> None:
    expected = stats.bootstrap(
        (values,), np.mean, method="BCa", n_resamples=20_000, rng=np.random.default_rng(5)
    ).confidence_interval
    found = resampled_interval(sample_of(values))
    spread = float(expected.high - expected.low)
    assert found.low == pytest.approx(expected.low, abs=0.06 * spread)
    assert found.high == pytest.approx(expected.high, abs=0.06 * spread)
    assert found.note is None


def test_resampled_difference_is_paired() -> None:
    before = RANDOM.normal(size=500)
    after = before + 0.1 + 0.01 * RANDOM.normal(size=500)
    found = resampled_difference(sample_of(before), sample_of(after))
    assert found is not None
    assert found.value == pytest.approx(float(np.mean(after - before)))
    assert found.low is not None
    assert found.high is not None
    assert 0.098 < found.low < found.value < found.high < 0.102


def test_resampled_difference_of_other_resamples_has_no_interval() -> None:
    values = RANDOM.normal(size=50)
    assert resampled_difference(sample_of(values), sample_of(values, draw="b")) is None


def test_equal_artifacts_have_an_interval_of_some_width() -> None:
    sample = sample_of((RANDOM.uniform(size=200) < 0.8).astype(float))
    found = resampled_difference(sample, sample, bounds=(0.0, 1.0))
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.high
    assert found.note is not None
    assert "few test examples" in found.note


def test_limits_for_many_tests_at_once_reach_beyond_the_last_resample() -> None:
    values = RANDOM.normal(size=400)
    sample = sample_of(values)
    error = float(values.std(ddof=1)) / 20
    few = Resampled(sample.value, sample.replicates[:400], sample.influences, "a")
    for confidence in (1 - 0.05 / 40, 1 - 0.05 / 200):
        half = float(stats.t.ppf((1 + confidence) / 2, 399)) * error
        found = resampled_interval(few, confidence)
        assert found.low is not None
        assert found.high is not None
        assert found.low <= sample.value - 0.98 * half
        assert found.high >= sample.value + 0.98 * half
    last = resampled_interval(few, 1 - 0.05 / 200)
    assert last.low is not None
    assert last.low < min(one for one in few.replicates if one is not None)


def test_limits_stay_within_bounds() -> None:
    values = np.ones(30)
    values[0] = 0.0
    found = resampled_interval(sample_of(values), bounds=(0.0, 1.0))
    assert found.low is not None
    assert 0 <= found.low < found.value < 1
    assert found.high == 1.0


def test_many_resamples_without_a_value_leave_no_interval() -> None:
    sample = Resampled(0.5, (0.5, None) * 100, (0.4, 0.6) * 50, "a")
    found = resampled_interval(sample)
    assert (found.low, found.high) == (None, None)
    assert found.note is not None
    assert "few examples" in found.note


def test_plain_data_are_read_as_they_were_written() -> None:
    sample = Resampled(0.5, (0.25, None), (0.5, 0.5), "a")
    assert from_plain(Resampled, json.loads(json.dumps(to_plain(sample)))) == sample
