"""Areas under curves, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as sk

from tests.task.metrics.toys import value, weighted

RANDOM = np.random.default_rng(1)
LABELS = RANDOM.integers(0, 4, 400)
LOGITS = RANDOM.normal(size=(400, 4)) + np.eye(4)[LABELS]
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
BITS = RANDOM.integers(0, 2, 400)
SCORES = RANDOM.normal(size=400) + BITS
SEVERAL = RANDOM.integers(0, 2, (400, 3))
SEVERAL_SCORES = RANDOM.normal(size=(400, 3)) + SEVERAL
AREAS = {"roc_auc": sk.roc_auc_score, "average_precision": sk.average_precision_score}
# Scores of an int8 artifact: many are equal.
COARSE = np.round(SCORES * 2) / 2


@pytest.mark.parametrize("scores", [SCORES, COARSE, np.zeros(400)])
@pytest.mark.parametrize("name", AREAS)
def test_one_output_equals_scikit_learn_with_and_without_ties(
    name: str, scores: np.ndarray
) -> None:
    assert value(name, scores[:, None], BITS, from_logits=True) == pytest.approx(
        AREAS[name](BITS, scores), abs=1e-9
    )


@pytest.mark.parametrize("name", AREAS)
def test_nan_ranks_below_all_scores_and_equal_to_itself(name: str) -> None:
    # Sorted by class: the order of the examples would rank the positives first.
    bits, scores = np.sort(BITS)[::-1], COARSE.copy()
    scores[::3] = np.nan
    expected = AREAS[name](bits, np.nan_to_num(scores, nan=-1e9))
    found = value(name, scores[:, None], bits, from_logits=True)
    assert found == pytest.approx(expected, abs=1e-9)
    nothing = value(name, np.full((400, 1), np.nan), bits, from_logits=True)
    assert nothing == pytest.approx(0.5 if name == "roc_auc" else bits.mean(), abs=1e-9)


def test_several_classes_equal_scikit_learn_one_against_the_rest() -> None:
    expected = sk.roc_auc_score(LABELS, PROBABILITIES, multi_class="ovr", average="macro")
    assert value("roc_auc", PROBABILITIES, LABELS) == pytest.approx(expected, abs=1e-9)
    assert value("roc_auc", LOGITS, LABELS, from_logits=True) == pytest.approx(expected, abs=1e-9)
    expected = sk.average_precision_score(np.eye(4)[LABELS], PROBABILITIES, average="macro")
    assert value("average_precision", PROBABILITIES, LABELS) == pytest.approx(expected, abs=1e-9)
    expected = sk.roc_auc_score(LABELS == 2, PROBABILITIES[:, 2])
    assert value("roc_auc_2", PROBABILITIES, LABELS) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", AREAS)
def test_logits_that_differ_by_a_constant_are_ranked_as_equal(name: str) -> None:
    # As int8 outputs are, with many equal probabilities; in tenths these come out of rounding.
    logits = np.round(LOGITS * 2) / 10
    moved = logits + np.round(RANDOM.normal(size=(400, 1)) * 5) / 10
    first = value(name, logits, LABELS, from_logits=True)
    assert value(name, moved, LABELS, from_logits=True) == pytest.approx(first, abs=1e-12)


@pytest.mark.parametrize("name", AREAS)
def test_several_labels_equal_scikit_learn(name: str) -> None:
    found = value(name, SEVERAL_SCORES, SEVERAL, loss="binary_crossentropy", from_logits=True)
    assert found == pytest.approx(AREAS[name](SEVERAL, SEVERAL_SCORES), abs=1e-9)


@pytest.mark.parametrize("name", AREAS)
def test_weights_count_examples_as_often(name: str) -> None:
    weights = RANDOM.integers(0, 3, (5, 400)).astype(float)
    of = weighted(name, COARSE[:, None], BITS, from_logits=True)
    expected = [
        AREAS[name](np.repeat(BITS, row.astype(int)), np.repeat(COARSE, row.astype(int)))
        for row in weights
    ]
    np.testing.assert_allclose(of.of(weights), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("scores", [SCORES, COARSE])
@pytest.mark.parametrize("max_fpr", [0.05, 0.1, 0.5])
def test_partial_roc_auc_equals_scikit_learn(scores: np.ndarray, max_fpr: float) -> None:
    found = value(f"partial_roc_auc_{max_fpr}", scores[:, None], BITS, from_logits=True)
    assert found == pytest.approx(sk.roc_auc_score(BITS, scores, max_fpr=max_fpr), abs=1e-9)


@pytest.mark.parametrize("scores", [SCORES, COARSE])
@pytest.mark.parametrize("miss_rate", [0.01, 0.05, 0.3])
def test_false_accepts_per_hour_count_negatives_above_the_threshold(
    scores: np.ndarray, miss_rate: float
) -> None:
    thresholds = [t for t in np.unique(scores) if np.mean(scores[BITS == 1] < t) <= miss_rate]
    accepted = np.sum(scores[BITS == 0] >= max(thresholds))
    hours = np.sum(BITS == 0) * 1.5 / 3600
    key = f"false_accepts_per_hour_{miss_rate}_1.5"
    found = value(key, scores[:, None], BITS, from_logits=True)
    assert found == pytest.approx(accepted / hours, rel=1e-12)
