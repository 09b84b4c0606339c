"""What guessing scores, against numpy on the whole arrays and scikit-learn's dummy models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tf_keras as keras
from sklearn.dummy import DummyClassifier

from shrink.data.arrays import ArrayExamples
from shrink.data.dataset import Dataset
from shrink.task.guessing import best_constant, describe_guess


def examples(targets: Any, inputs: Any = None) -> ArrayExamples:
    """As many examples as targets; more than are read at a time."""
    y = np.asarray(targets)
    x = np.zeros((len(y), 2), np.float32) if inputs is None else np.asarray(inputs)
    return ArrayExamples(x, y, np.arange(len(y)))


def test_best_constant_of_labels_is_the_share_of_the_commonest() -> None:
    y = np.random.default_rng(0).choice(4, 1000, p=[0.1, 0.2, 0.3, 0.4])
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((1000, 1)), y)
    expected = dummy.score(np.zeros((1000, 1)), y)
    assert best_constant(examples(y), "accuracy") == pytest.approx(expected)
    assert best_constant(examples(np.eye(4, dtype=np.float32)[y]), "accuracy") == expected
    assert best_constant(examples(np.eye(4, dtype=np.int64)[y]), "accuracy") == expected


def test_best_constant_of_pixels_counts_all_of_them() -> None:
    y = np.random.default_rng(1).integers(0, 3, (700, 4, 5))
    expected = np.bincount(y.ravel()).max() / y.size
    assert best_constant(examples(y), "accuracy") == pytest.approx(expected)


def test_best_constant_of_several_labels_takes_each_by_itself() -> None:
    y = (np.random.default_rng(2).random((900, 3)) < [0.1, 0.5, 0.8]).astype(np.float32)
    shares = y.mean(axis=0)
    expected = np.mean(np.maximum(shares, 1 - shares))
    assert best_constant(examples(y), "binary_accuracy") == pytest.approx(expected)


@pytest.mark.parametrize("offset", [0, 1e6])
def test_best_constant_of_real_targets_is_their_variance(offset: float) -> None:
    y = np.random.default_rng(3).normal(offset, [1, 5], (1300, 2))
    found = best_constant(examples(y), "mean_squared_error")
    assert found == pytest.approx(np.mean(np.var(y, axis=0)), rel=1e-9)


def test_best_constant_is_unknown_where_it_would_be_a_guess() -> None:
    assert best_constant(examples(np.arange(5) % 2), "top5_accuracy") is None
    assert best_constant(examples(np.arange(5.0)), "mean_absolute_error") is None
    assert best_constant(examples(np.zeros(0, np.int64)), "accuracy") is None


def test_describe_guess_says_what_may_be_wrong() -> None:
    x = np.linspace(0, 255, 40).reshape(20, 2)
    train = examples(np.array([0, 1] * 10), x)
    test = examples(np.array([0, 2] * 10), x)
    data = Dataset(train, train, test, ("cat", "dog", "eel"), 3)
    scaling = [keras.layers.Rescaling(1 / 255), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((2,)), keras.Sequential(scaling)])
    found = describe_guess(data, "accuracy", model)
    assert found == {
        "metric": "accuracy",
        "value": 0.5,
        "classes": ["cat", "dog", "eel"],
        "num_classes": 3,
        "low": 0.0,
        "high": 255.0,
        "rescales": True,
        "only_in_test": ["eel"],
        "only_in_train": ["dog"],
    }
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    assert describe_guess(data, "accuracy", plain)["rescales"] is False
    assert describe_guess(data, "accuracy", None)["rescales"] is None


def test_describe_guess_is_null_where_some_positions_do_not_count() -> None:
    ids = keras.Input((4,), dtype="int32")
    hidden = keras.layers.Embedding(9, 2, mask_zero=True)(ids)
    model = keras.Model(ids, keras.layers.Dense(3)(hidden))
    data = examples(np.zeros((6, 4), np.int64), np.zeros((6, 4), np.int32))
    dataset = Dataset(data, data, data, (), None)
    assert describe_guess(dataset, "accuracy", model)["value"] is None
