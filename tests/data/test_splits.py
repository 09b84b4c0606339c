from __future__ import annotations

import numpy as np
import pytest

from shrink.base.errors import DataError
from shrink.data.splits import apportion, permutation, split_examples, stratified_sample


def _labels(*counts: int) -> np.ndarray:
    return np.repeat(np.arange(len(counts)), counts).astype(np.int64)


def test_permutation_holds_every_index_once() -> None:
    order = permutation(1000, 3, 1)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(1000))


def test_permutation_sorts_the_stream_that_numpy_publishes_for_seed_0() -> None:
    # numpy.random.default_rng(0).random(8), to two digits, from numpy's own documentation.
    published = [0.64, 0.27, 0.04, 0.02, 0.81, 0.91, 0.61, 0.73]
    assert permutation(8, 0).tolist() == np.argsort(published).tolist()


def test_permutation_differs_by_seed_and_epoch() -> None:
    orders = {tuple(permutation(50, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_split_examples_gives_sizes_of_digits() -> None:
    split = split_examples(np.arange(1797, dtype=np.int64) % 10, 1797, 0, validation=0.1, test=0.2)
    assert (len(split.train), len(split.validation), len(split.test)) == (1257, 180, 360)


@pytest.mark.parametrize("labelled", [True, False])
def test_split_examples_divides_all_examples(labelled: bool) -> None:
    labels = _labels(40, 30, 27, 3) if labelled else None
    split = split_examples(labels, 100, 5, validation=0.15, test=0.25)
    together = np.concatenate([split.train, split.validation, split.test])
    assert np.array_equal(np.sort(together), np.arange(100))


@pytest.mark.parametrize("seed", range(5))
def test_split_examples_has_each_class_of_three_in_every_part(seed: int) -> None:
    labels = _labels(500, 3, 3, 4, 3, 487)
    split = split_examples(labels, 1000, seed, validation=0.05, test=0.1)
    for part in (split.train, split.validation, split.test):
        assert set(labels[part]) == set(range(6))
    assert (len(split.validation), len(split.test)) == (50, 100)


def test_split_examples_keeps_proportions_within_one() -> None:
    counts = (101, 57, 33, 9)
    labels = _labels(*counts)
    split = split_examples(labels, 200, 1, validation=0.1, test=0.3)
    for label, count in enumerate(counts):
        assert abs(np.sum(labels[split.test] == label) - 0.3 * count) < 1
        assert abs(np.sum(labels[split.validation] == label) - 0.1 * count) < 1


def test_split_examples_keeps_its_promises_for_any_labels() -> None:
    random = np.random.default_rng(0)
    for seed in range(200):
        counts = random.integers(1, 40, random.integers(1, 12))
        labels = random.permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int64)
        total = len(labels)
        if total < 5:
            continue
        split = split_examples(labels, total, seed, validation=0.1, test=0.2)
        parts = (split.train, split.validation, split.test)
        assert sorted(np.concatenate(parts)) == list(range(total))
        common = set(np.flatnonzero(counts >= 3))
        assert all(common <= set(labels[part]) for part in parts)
        for part, fraction in ((split.validation, 0.1), (split.test, 0.2)):
            if len(common) <= fraction * total:
                assert abs(len(part) - fraction * total) < 1


def test_split_examples_grows_a_part_when_classes_outnumber_it() -> None:
    labels = np.repeat(np.arange(50), 3).astype(np.int64)
    split = split_examples(labels, 150, 0, validation=0.1, test=0.1)
    assert (len(split.train), len(split.validation), len(split.test)) == (50, 50, 50)


def test_split_examples_holds_out_rare_classes_when_there_are_only_such() -> None:
    split = split_examples(np.arange(100, dtype=np.int64), 100, 0, validation=0.1, test=0.2)
    assert (len(split.train), len(split.validation), len(split.test)) == (70, 10, 20)
    assert split.test.max() > 50  # not merely the lowest labels


def test_split_examples_is_decided_by_the_seed() -> None:
    labels = _labels(60, 60)
    one, same, other = (split_examples(labels, 120, seed, test=0.2) for seed in (1, 1, 2))
    assert np.array_equal(one.test, same.test)
    assert not np.array_equal(one.test, other.test)
    assert len(one.validation) == 0


def test_split_examples_raises_when_nothing_is_left_to_train_on() -> None:
    with pytest.raises(DataError, match="2 examples are too few"):
        split_examples(None, 2, 0, validation=0.1, test=0.2)


def test_stratified_sample_keeps_proportions() -> None:
    labels = _labels(600, 300, 90, 10)
    chosen = stratified_sample(labels, 1000, 100, 0)
    assert len(set(chosen.tolist())) == 100
    assert np.bincount(labels[chosen]).tolist() == [60, 30, 9, 1]


def test_stratified_sample_gives_rare_classes_one() -> None:
    labels = _labels(997, 1, 1, 1)
    assert set(labels[stratified_sample(labels, 1000, 10, 0)]) == {0, 1, 2, 3}


def test_stratified_sample_is_uniform_without_labels() -> None:
    chosen = stratified_sample(None, 1000, 300, 4)
    assert len(set(chosen.tolist())) == 300
    assert 350 < chosen.mean() < 650


def test_stratified_sample_returns_all_when_fewer_than_asked() -> None:
    assert sorted(stratified_sample(_labels(3, 4), 7, 500, 0)) == list(range(7))


def test_apportion_reaches_the_total_within_bounds() -> None:
    shares = np.array([2.6, 0.2, 0.2, 7.0])
    quota = apportion(shares, 10, np.ones(4, int), np.array([9, 9, 9, 6]), np.arange(4))
    assert quota.tolist() == [2, 1, 1, 6]
