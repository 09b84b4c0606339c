"""A metric without blocks of examples, from sums over the blocks, beside that of the weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shrink.base.scores import rule
from shrink.base.scores.rule import Blocks
from shrink.task.metrics.resample import resample
from tests.task.metrics.toys import weighted

EXAMPLES, CLASSES = 120, 4
OF_CLASSES = (
    *("balanced_accuracy", "precision", "recall", "f1", "f1_micro", "recall_weighted"),
    *("roc_auc", "average_precision", "expected_calibration_error", "mean_iou", "dice"),
)


def blocks(count: int) -> Blocks:
    return Blocks(np.arange(EXAMPLES) % count, count)


def without(count: int) -> np.ndarray:
    """Return weights of 0 for the examples of one block each, (count, n)."""
    return 1.0 - (np.arange(EXAMPLES) % count == np.arange(count)[:, None])


@pytest.mark.parametrize("count", [EXAMPLES, 7, 1])
@pytest.mark.parametrize("key", OF_CLASSES)
def test_without_a_block_a_metric_is_that_of_the_other_examples(key: str, count: int) -> None:
    """Two thirds of the examples are tied between classes, which counts them in thirds."""
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, EXAMPLES)
    outputs = random.integers(0, 3, (EXAMPLES, CLASSES)) + 1.0
    metric = weighted(key, outputs, labels)
    assert metric.sums is not None
    found = metric.leaving_out(blocks(count))
    np.testing.assert_allclose(found, metric.of(without(count)), rtol=1e-9, atol=1e-12)


def test_a_class_that_is_in_one_block_alone_does_not_count_without_it() -> None:
    outputs = np.zeros((EXAMPLES, 3))
    outputs[:, 0] = 1.0
    outputs[[0, 5, 10]] = 1.0  # all three classes tied: a third for each
    labels = np.zeros(EXAMPLES, int)
    metric = weighted("precision", outputs, labels)
    assert metric.sums is not None
    found = metric.leaving_out(blocks(5))
    # Without block 0 every example is decided for the first class, and the others do not count.
    assert found[0] == 1.0
    np.testing.assert_allclose(found, metric.of(without(5)), rtol=1e-9)


@pytest.mark.parametrize("key", ["roc_auc", "average_precision", "f1", "recall"])
def test_without_a_block_of_several_elements_an_example(key: str) -> None:
    random = np.random.default_rng(1)
    outputs = random.uniform(size=(EXAMPLES, 6, 1))
    targets = random.integers(0, 2, (EXAMPLES, 6, 1))
    mask = random.uniform(size=(EXAMPLES, 6)) < 0.7
    metric = weighted(key, outputs, targets, mask=mask, loss="binary_crossentropy")
    assert metric.sums is not None
    found = metric.leaving_out(blocks(30))
    np.testing.assert_allclose(found, metric.of(without(30)), rtol=1e-9)


@pytest.mark.parametrize("chunk", [1, 700, 1_000_000])
@pytest.mark.parametrize("key", ["f1", "roc_auc", "expected_calibration_error"])
def test_blocks_are_left_out_some_at_a_time(
    key: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(2)
    labels, outputs = random.integers(0, 4, EXAMPLES), random.uniform(size=(EXAMPLES, 4))
    metric = weighted(key, outputs, labels)
    assert metric.sums is not None
    monkeypatch.setattr(rule, "CHUNK", chunk)
    found = metric.leaving_out(blocks(7))
    np.testing.assert_allclose(found, metric.of(without(7)), rtol=1e-9)


def test_metrics_that_sum_and_others_keep_their_order() -> None:
    """As of each alone, sums that they share or not."""
    random = np.random.default_rng(4)
    labels, outputs = random.integers(0, 4, EXAMPLES), random.uniform(size=(EXAMPLES, 4))
    keys = ("f1", "roc_auc", "recall", "average_precision", "expected_calibration_error")
    every = [weighted(key, outputs, labels) for key in keys]
    every.insert(1, replace(every[1], sums=None))
    together = resample(every, EXAMPLES)
    for metric, found in zip(every, together, strict=True):
        (alone,) = resample([metric], EXAMPLES)
        assert found is not None
        assert alone is not None
        np.testing.assert_allclose(found.influences, alone.influences, rtol=1e-9, atol=1e-12)
        assert found.replicates == alone.replicates
    assert together[1] is not None
    assert together[2] is not None
    np.testing.assert_allclose(together[1].influences, together[2].influences, atol=1e-9)
