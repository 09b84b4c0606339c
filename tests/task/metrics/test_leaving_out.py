"""A metric without blocks of examples, from sums over the blocks, beside that of the weights."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.task.metrics.rule import Blocks
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
    assert metric.leaving_out is not None
    found = metric.leaving_out(blocks(count))
    np.testing.assert_allclose(found, metric.exact(without(count)), rtol=1e-9, atol=1e-12)


def test_a_class_that_is_in_one_block_alone_is_not_there_without_it() -> None:
    """Three tied decisions for a class leave 0 without their block, and not what rounding does."""
    outputs = np.zeros((EXAMPLES, 3))
    outputs[:, 0] = 1.0
    outputs[[0, 5, 10]] = 1.0  # all three classes tied: a third for each
    labels = np.zeros(EXAMPLES, int)
    metric = weighted("precision", outputs, labels)
    assert metric.leaving_out is not None
    found = metric.leaving_out(blocks(5))
    # Without block 0 every example is decided for the first class, and the others do not count.
    assert found[0] == 1.0
    np.testing.assert_allclose(found, metric.exact(without(5)), rtol=1e-9)


@pytest.mark.parametrize("key", ["roc_auc", "average_precision", "f1", "recall"])
def test_without_a_block_of_several_elements_an_example(key: str) -> None:
    random = np.random.default_rng(1)
    outputs = random.uniform(size=(EXAMPLES, 6, 1))
    targets = random.integers(0, 2, (EXAMPLES, 6, 1))
    mask = random.uniform(size=(EXAMPLES, 6)) < 0.7
    metric = weighted(key, outputs, targets, mask=mask, loss="binary_crossentropy")
    assert metric.leaving_out is not None
    found = metric.leaving_out(blocks(30))
    np.testing.assert_allclose(found, metric.exact(without(30)), rtol=1e-9)
