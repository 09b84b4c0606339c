from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError, RecipeError
from shrink.base.metrics import METRICS
from shrink.task.means import sums
from shrink.task.metrics.detection import RULES

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(40, 7)) * 4
LABELS = RANDOM.integers(0, 7, size=40)
ONE_HOT = np.eye(7)[LABELS]
# Far from 0 and 1, where Keras' own ways of clipping a probability differ.
PROBABILITIES = tf.nn.softmax(LOGITS / 4).numpy()
BINARY = RANDOM.normal(size=(40, 3)) * 3
BITS = RANDOM.integers(0, 2, size=(40, 3))


def scores(outputs: np.ndarray, targets: np.ndarray, key: str, *, from_logits: bool) -> np.ndarray:
    """Return each example's score, (n,)."""
    found = sums(outputs, targets, key, from_logits=from_logits)
    return found.values / found.valid


def test_every_metric_that_a_recipe_can_name_is_computed_in_one_way() -> None:
    for name, info in METRICS.items():
        assert [info.elements is None, info.rule is None, name not in RULES].count(False) == 1, name


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("targets", [LABELS, LABELS[:, None], ONE_HOT])
def test_scores_crossentropy_equals_keras(targets: np.ndarray, from_logits: bool) -> None:
    outputs = LOGITS if from_logits else PROBABILITIES
    expected = keras.losses.sparse_categorical_crossentropy(LABELS, outputs, from_logits)
    for metric in ("sparse_categorical_crossentropy", "categorical_crossentropy"):
        actual = scores(outputs, targets, metric, from_logits=from_logits)
        assert actual.dtype == np.float64
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_scores_crossentropy_equals_keras_when_targets_are_soft() -> None:
    soft = tf.nn.softmax(LOGITS[::-1]).numpy()
    expected = keras.losses.categorical_crossentropy(soft, LOGITS, from_logits=True)
    actual = scores(LOGITS, soft, "categorical_crossentropy", from_logits=True)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("from_logits", [True, False])
def test_scores_binary_crossentropy_equals_keras(from_logits: bool) -> None:
    outputs = BINARY if from_logits else tf.sigmoid(BINARY / 3).numpy()
    expected = keras.losses.binary_crossentropy(BITS, outputs, from_logits)
    actual = scores(outputs, BITS, "binary_crossentropy", from_logits=from_logits)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_scores_stay_finite_for_extreme_outputs() -> None:
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]])
    crossentropy = scores(logits, np.zeros(2, int), "categorical_crossentropy", from_logits=True)
    np.testing.assert_allclose(crossentropy, [0, 2e4])
    binary = scores(logits, np.zeros((2, 2)), "binary_crossentropy", from_logits=True)
    np.testing.assert_allclose(binary, [5e3, 5e3])
    certain = scores(np.eye(2), np.array([0, 0]), "categorical_crossentropy", from_logits=False)
    np.testing.assert_allclose(certain, [0, -np.log(1e-7)], atol=1e-6)


@pytest.mark.parametrize("targets", [LABELS, LABELS[:, None], ONE_HOT])
def test_scores_accuracy_equals_keras(targets: np.ndarray) -> None:
    metric = keras.metrics.SparseCategoricalAccuracy()
    metric.update_state(LABELS, LOGITS)
    actual = scores(LOGITS, targets, "accuracy", from_logits=True)
    assert 0 < actual.mean() < 1
    assert actual.mean() == pytest.approx(float(metric.result()))


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("squeezed", [True, False])
def test_scores_accuracy_of_one_output_equals_keras(from_logits: bool, squeezed: bool) -> None:
    logits, bits = BINARY[:, :1], BITS[:, 0] if squeezed else BITS[:, :1]
    outputs = logits if from_logits else tf.sigmoid(logits).numpy()
    metric = keras.metrics.BinaryAccuracy(threshold=0.0 if from_logits else 0.5)
    metric.update_state(BITS[:, :1], outputs)
    actual = scores(outputs[:, 0], bits, "accuracy", from_logits=from_logits)
    assert actual.mean() == pytest.approx(float(metric.result()))


def test_scores_accuracy_averages_over_pixels() -> None:
    outputs = np.eye(3)[np.array([[[0, 1], [2, 2]]])]  # one image of 2 x 2 pixels, 3 classes
    labels = np.array([[[0, 1], [2, 0]]])
    assert scores(outputs, labels, "accuracy", from_logits=False).tolist() == [0.75]


def test_scores_top5_accuracy_equals_keras() -> None:
    expected = keras.metrics.sparse_top_k_categorical_accuracy(
        LABELS, LOGITS.astype(np.float32), k=5
    )
    actual = scores(LOGITS, LABELS, "top5_accuracy", from_logits=True)
    assert 0 < actual.mean() < 1
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("metric", ["accuracy", "top5_accuracy"])
def test_scores_count_nan_as_wrong(metric: str) -> None:
    outputs = np.array([[np.nan, 0.0], [1.0, 0.0]])
    assert scores(outputs, np.array([0, 0]), metric, from_logits=True).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("metric", "loss"),
    [
        ("mean_squared_error", keras.losses.mean_squared_error),
        ("mean_absolute_error", keras.losses.mean_absolute_error),
    ],
)
def test_scores_errors_equal_keras(metric: str, loss: object) -> None:
    expected = loss(LOGITS[:, :3], BINARY)  # type: ignore[operator]
    actual = scores(BINARY, LOGITS[:, :3], metric, from_logits=False)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)
    # A column against a flat array must not broadcast to a square.
    flat = scores(BINARY[:, :1], LOGITS[:, 0], metric, from_logits=False)
    np.testing.assert_allclose(flat, loss(LOGITS[:, :1], BINARY[:, :1]))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.zeros(39, int), "40 outputs for 39 targets"),
        (np.zeros((40, 6)), "do not match"),
        (np.full(40, 7), "labels from 7 to 7"),
        (np.full(40, -1), "labels from -1"),
    ],
)
def test_scores_refuses_targets(targets: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        scores(LOGITS, targets, "accuracy", from_logits=True)


def test_scores_refuses_an_unknown_metric() -> None:
    with pytest.raises(RecipeError, match="acuracy"):
        scores(LOGITS, LABELS, "acuracy", from_logits=True)


def test_scores_count_each_of_several_labels() -> None:
    outputs, targets = (
        np.array([[0.9, 0.2, 0.6], [0.1, 0.4, 0.4]]),
        np.array([[1, 1, 1], [0, 0, 0]]),
    )
    found = scores(outputs, targets, "binary_accuracy", from_logits=False)
    np.testing.assert_allclose(found, [2 / 3, 1])


def test_scores_accuracy_decides_for_the_first_of_equal_outputs() -> None:
    outputs = np.array([[3, 3, 1], [3, 3, 1], [2, 2, 2], [0, 2, 2]])
    found = scores(outputs, np.array([0, 1, 0, 2]), "accuracy", from_logits=True)
    np.testing.assert_array_equal(found, [1, 0, 1, 0])
    found = scores(np.array([[np.nan, 1.0]]), np.array([0]), "accuracy", from_logits=True)
    np.testing.assert_array_equal(found, [0])


def test_scores_of_top5_over_ties_equal_the_mean_over_random_orders() -> None:
    rng = np.random.default_rng(4)
    outputs, labels = rng.integers(0, 4, (30, 12)), rng.integers(0, 12, 30)
    hits = np.zeros(30)
    for _ in range(4000):
        order = np.lexsort((rng.random(outputs.shape), -outputs), axis=-1)
        hits += (order[:, :5] == labels[:, None]).any(axis=1)
    found = scores(outputs, labels, "top5_accuracy", from_logits=True)
    assert len(set(found.round(6))) > 4
    np.testing.assert_allclose(found, hits / 4000, atol=0.035)  # four standard errors


def test_scores_of_top5_stay_when_classes_change_places() -> None:
    metric = "top5_accuracy"
    rng = np.random.default_rng(5)
    outputs, labels = rng.integers(0, 3, (50, 9)), rng.integers(0, 9, 50)
    places = rng.permutation(9)
    moved = scores(outputs[:, places], np.argsort(places)[labels], metric, from_logits=True)
    np.testing.assert_allclose(moved, scores(outputs, labels, metric, from_logits=True))
