"""Weights of classes, against scikit-learn and a loop by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from sklearn.utils.class_weight import compute_class_weight

from shrink.base.errors import DataError, RecipeError
from shrink.data.dataset import Dataset
from shrink.engine.class_weights import class_weights_of, with_class_weights
from shrink.engine.config import OptimizerConfig, TrainingConfig
from tests.engine._toys import splits, trained

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 3)).astype(np.float32)
Y = np.array([0] * 25 + [1] * 10 + [2] * 5)


def dataset(y: Any = Y, names: tuple[str, ...] = ("cat", "dog", "eel")) -> Dataset:
    return replace(splits(X, y, names=names), num_classes=3)


def test_class_weights_of_balanced_equals_scikit_learn() -> None:
    expected = compute_class_weight("balanced", classes=np.arange(3), y=Y)
    np.testing.assert_allclose(class_weights_of("balanced", dataset()), expected, rtol=1e-6)


def test_class_weights_of_takes_names_and_numbers() -> None:
    weights = class_weights_of({"dog": 3.0, "2": 0.5}, dataset())
    np.testing.assert_array_equal(weights, np.array([1.0, 3.0, 0.5], np.float32))


def test_class_weights_of_refuses_an_unknown_class() -> None:
    with pytest.raises(RecipeError, match="no class 'dgo'") as caught:
        class_weights_of({"dgo": 3.0}, dataset())
    assert "dog" in str(caught.value.hint)


def test_class_weights_of_refuses_to_balance_a_class_without_examples() -> None:
    with pytest.raises(DataError, match="no example of the class dog"):
        class_weights_of("balanced", dataset(np.where(Y == 1, 0, Y)))


@pytest.mark.parametrize(
    ("targets", "words"),
    [(Y + 0.5, r"real numbers of shape \(\)"), (np.tile(Y[:, None], 4) * 1.0, r"whole .* \(4,\)")],
)
def test_class_weights_of_refuses_what_is_no_class_number(targets: Any, words: str) -> None:
    data = dataset(targets)
    data.train.labels = None
    with pytest.raises(DataError, match="number for each example, but the targets are " + words):
        class_weights_of("balanced", data)


@pytest.mark.parametrize("labels", [Y, Y[:, None]])
def test_with_class_weights_weighs_each_example_by_its_label(labels: Any) -> None:
    batches = tf.data.Dataset.from_tensor_slices((X, labels)).batch(16)
    table = np.array([1.0, 2.0, 3.0], np.float32)
    weights = [weight for _, _, weight in with_class_weights(batches, table)]
    np.testing.assert_array_equal(np.concatenate(weights), table[Y])


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_with_class_weights_takes_one_hot_labels_for_their_class(dtype: Any) -> None:
    one_hot = np.eye(3)[Y].astype(dtype)
    batches = tf.data.Dataset.from_tensor_slices((X, one_hot)).batch(16)
    table = np.array([1.0, 2.0, 3.0], np.float32)
    weights = [weight for _, _, weight in with_class_weights(batches, table)]
    np.testing.assert_array_equal(np.concatenate(weights), table[Y])
    np.testing.assert_allclose(
        class_weights_of("balanced", dataset(one_hot)), len(Y) / (3 * np.bincount(Y)), rtol=1e-6
    )


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_with_class_weights_mixes_weights_as_mixup_mixes_labels(share: float) -> None:
    table = np.array([1.0, 7.0, 100.0], np.float32)
    other = np.roll(Y, 3)
    mixed = share * np.eye(3)[Y] + (1 - share) * np.eye(3)[other]
    batches = tf.data.Dataset.from_tensors((X, mixed.astype(np.float32)))
    ((_, _, weights),) = with_class_weights(batches, table)
    np.testing.assert_allclose(weights, share * table[Y] + (1 - share) * table[other], rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda y: (y,), lambda y: {"kind": y}])
def test_with_class_weights_finds_labels_in_a_structure(wrap: Any) -> None:
    table = np.array([1.0, 2.0, 3.0], np.float32)
    batches = tf.data.Dataset.from_tensors((X, wrap(Y)))
    ((_, _, weights),) = with_class_weights(batches, table)
    np.testing.assert_array_equal(weights, table[Y])


def test_class_weights_of_refuses_several_labels_for_an_example() -> None:
    sequences = np.random.default_rng(0).integers(0, 3, (40, 3))
    with pytest.raises(DataError, match="one label for each example"):
        class_weights_of({"dog": 2.0}, dataset(sequences))


def test_train_multiplies_each_loss_by_the_weight_of_its_class() -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.layers.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    kernel, bias = model.get_weights()
    config = TrainingConfig(
        global_batch_size=40,
        micro_batch_size=7,
        class_weights={"dog": 3.0},
        optimizer=OptimizerConfig(name="sgd", learning_rate=1.0),
    )
    trained(model, dataset(), config, epochs=1)
    logits = X @ kernel + bias
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    slope = (probabilities - np.eye(3)[Y]) * np.where(Y == 1, 3.0, 1.0)[:, None] / len(Y)
    np.testing.assert_allclose(model.get_weights()[0], kernel - X.T @ slope, atol=1e-6)
