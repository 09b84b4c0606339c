"""Ratios of decisions, against scikit-learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import sklearn.metrics as sk

from shrink.base.errors import RecipeError
from shrink.task.resolve import check_classes
from tests.task.metrics.toys import value

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 5, 300)
LOGITS = RANDOM.normal(size=(300, 5)) + 1.5 * np.eye(5)[LABELS]
DECIDED = LOGITS.argmax(1)
BITS = RANDOM.integers(0, 2, 300)
CHANCES = 1 / (1 + np.exp(-(RANDOM.normal(size=300) + 2 * BITS - 1)))
SEVERAL = RANDOM.integers(0, 2, (300, 4))
SEVERAL_CHANCES = np.clip(SEVERAL * 0.4 + RANDOM.uniform(0, 0.6, (300, 4)), 0, 1)
SCORES: dict[str, Callable] = {
    "precision": sk.precision_score,
    "recall": sk.recall_score,
    "f1": sk.f1_score,
}


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("name", SCORES)
def test_averages_equal_scikit_learn(name: str, average: str) -> None:
    key, score = f"{name}_{average}", SCORES[name]
    expected = score(LABELS, DECIDED, average=average)
    assert value(key, LOGITS, LABELS, from_logits=True) == pytest.approx(expected, abs=1e-9)
    assert value(key, LOGITS, np.eye(5)[LABELS]) == pytest.approx(expected, abs=1e-9)
    expected = score(BITS, CHANCES > 0.5, average=average)
    assert value(key, CHANCES[:, None], BITS) == pytest.approx(expected, abs=1e-9)
    several = {"loss": "binary_crossentropy"}
    expected = score(SEVERAL, SEVERAL_CHANCES > 0.5, average=average)
    assert value(key, SEVERAL_CHANCES, SEVERAL, **several) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", SCORES)
def test_a_bare_name_is_the_positive_class_of_one_output_and_the_macro_average_of_several(
    name: str,
) -> None:
    score = SCORES[name]
    expected = score(BITS, CHANCES > 0.5)
    assert value(name, CHANCES[:, None], BITS) == pytest.approx(expected, abs=1e-9)
    logits = np.log(CHANCES / (1 - CHANCES))
    assert value(name, logits, BITS, from_logits=True) == pytest.approx(expected, abs=1e-9)
    expected = score(LABELS, DECIDED, average="macro")
    assert value(name, LOGITS, LABELS) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", SCORES)
def test_a_class_is_named_or_numbered(name: str) -> None:
    expected = SCORES[name](LABELS, DECIDED, labels=[3], average="macro")
    assert value(f"{name}_3", LOGITS, LABELS) == pytest.approx(expected, abs=1e-9)
    names = ["ant", "bee", "cat", "dog", "elk"]
    assert value(f"{name}_dog", LOGITS, LABELS, classes=names) == pytest.approx(expected, abs=1e-9)
    with pytest.raises(RecipeError, match="there is no class 'dgo'"):
        value(f"{name}_dgo", LOGITS, LABELS, classes=names)


def test_a_metric_misspelt_as_a_class_is_told_by_both() -> None:
    names = ["ant", "bee"]
    for key, meant in (("f1_wieghted", "the metric f1_weighted"), ("f1_ant s", "ant")):
        with pytest.raises(RecipeError) as caught:
            check_classes([key], ["sparse_categorical_crossentropy"], names, [(2,)])
        assert str(caught.value.hint).startswith(f"did you mean {meant}?")


def test_overlaps_of_masks_equal_scikit_learn_over_all_pixels() -> None:
    truth = RANDOM.integers(0, 3, (6, 8, 8))
    scores = RANDOM.normal(size=(6, 8, 8, 3)) + np.eye(3)[truth]
    decided = scores.argmax(-1)
    expected = sk.jaccard_score(truth.ravel(), decided.ravel(), average="macro")
    assert value("mean_iou", scores, truth) == pytest.approx(expected, abs=1e-9)
    expected = sk.f1_score(truth.ravel(), decided.ravel(), average="macro")
    assert value("dice", scores, truth[..., None]) == pytest.approx(expected, abs=1e-9)
    foreground, chance = truth > 0, 1 / (1 + np.exp(-scores[..., :1]))
    over = chance[..., 0] > 0.5
    both = sk.jaccard_score(foreground.ravel(), over.ravel(), average="macro")
    assert value("mean_iou", chance, foreground) == pytest.approx(both, abs=1e-9)
    positive = sk.f1_score(foreground.ravel(), over.ravel())
    assert value("dice", chance, foreground) == pytest.approx(positive, abs=1e-9)


def test_what_a_mask_leaves_out_does_not_count() -> None:
    truth = RANDOM.integers(0, 3, (6, 9))
    scores = RANDOM.normal(size=(6, 9, 3)) + np.eye(3)[truth]
    mask = RANDOM.integers(0, 2, (6, 9)).astype(bool)
    expected = sk.f1_score(truth[mask], scores[mask].argmax(-1), average="macro")
    assert value("f1_macro", scores, truth, mask=mask) == pytest.approx(expected, abs=1e-9)


def test_the_first_of_equal_outputs_is_decided() -> None:
    scores, labels = np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([0, 1])
    assert value("recall_0", scores, labels) == 1.0
    assert value("recall_1", scores, labels) == 0.0
    assert value("precision_0", scores, labels) == 0.5
