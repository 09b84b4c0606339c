"""Confusion matrices against scikit-learn, batch by batch."""

from __future__ import annotations

import numpy as np
import sklearn.metrics as sk

from shrink.task.confusion_tables import ConfusionTables
from shrink.task.task import Task

RANDOM = np.random.default_rng(8)
NONE = [None]


def task(loss: str, classes: tuple[str, ...] = ()) -> Task:
    return Task((loss,), (), "loss", (True,), (), (1.0,), classes=classes)


def test_counts_are_those_of_scikit_learn() -> None:
    labels, outputs = RANDOM.integers(0, 3, 50), RANDOM.normal(size=(50, 3))
    found = ConfusionTables(task("sparse_categorical_crossentropy", ("a", "b", "c")))
    for part in (slice(0, 30), slice(30, 50)):
        found.add([outputs[part]], [labels[part]], NONE)
    (one,) = found.described()
    expected = sk.confusion_matrix(labels, outputs.argmax(1))
    np.testing.assert_array_equal(one.counts, expected)
    assert one.labels == ("a", "b", "c")
    wrong = expected - np.diag(np.diag(expected))
    first = one.confused[0]
    assert first.count == wrong.max()
    assert wrong["abc".index(first.true), "abc".index(first.decided)] == wrong.max()


def test_outputs_beyond_the_named_classes_have_their_numbers() -> None:
    found = ConfusionTables(task("sparse_categorical_crossentropy", ("a", "b")))
    found.add([np.eye(3)], [np.array([0, 1, 1])], NONE)
    (one,) = found.described()
    assert one.labels == ("a", "b", "2")


def test_one_output_has_two_classes_and_a_mask_leaves_elements_out() -> None:
    labels, outputs = RANDOM.integers(0, 2, (9, 4, 1)), RANDOM.normal(size=(9, 4, 1))
    mask = RANDOM.integers(0, 2, (9, 4)).astype(bool)
    found = ConfusionTables(task("binary_crossentropy"))
    found.add([outputs], [labels], [mask])
    (one,) = found.described()
    expected = sk.confusion_matrix(labels[mask][:, 0], outputs[mask][:, 0] > 0)
    np.testing.assert_array_equal(one.counts, expected)


def test_of_equal_outputs_the_first_is_decided() -> None:
    found = ConfusionTables(task("sparse_categorical_crossentropy"))
    found.add([np.array([[1.0, 1.0, 0.0]])], [np.array([0])], NONE)
    (one,) = found.described()
    np.testing.assert_array_equal(one.counts, [[1, 0, 0], [0, 0, 0], [0, 0, 0]])


def test_many_classes_have_pairs_and_no_matrix_and_real_targets_have_nothing() -> None:
    labels = np.arange(150)
    found = ConfusionTables(task("sparse_categorical_crossentropy"))
    found.add([np.eye(150)[(labels + 1) % 150]], [labels], NONE)
    (one,) = found.described()
    assert (one.labels, one.counts, len(one.confused)) == ((), (), 50)
    real = ConfusionTables(task("mean_squared_error"))
    real.add([np.zeros((4, 2))], [np.zeros((4, 2))], NONE)
    assert real.described() == ()
