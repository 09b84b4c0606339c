"""What slices score, against scikit-learn and against the metric on the slice's examples alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, recall_score, roc_auc_score

from shrink.base.scores.output import Sums
from shrink.contract.slices import MeasuredSlicing, slice_evidence
from shrink.data.slices import divided
from shrink.task.combination import Terms, means_within
from shrink.task.means import sums
from shrink.task.metrics.whole import WholeSplit
from shrink.task.slices import ClassCounts, Sliced, measure_classes, measure_slices
from shrink.task.task import Task

N, K = 301, 5
random = np.random.default_rng(0)
LABELS = random.integers(0, K - 1, N)  # nothing is of the last class
OUTPUTS = random.normal(size=(N, K)) + 1.5 * np.eye(K)[LABELS]
PLACES = np.array([f"p{i}" for i in random.integers(0, 3, N)])


def task(loss: str = "sparse_categorical_crossentropy", *metrics: str, **more: Any) -> Task:
    return Task((loss,), metrics or ("accuracy",), "loss", (True,), ("x",), (1.0,), **more)


def by_class(
    outputs: Any, targets: Any, of: Task, mask: Any = None, batch: int = 100
) -> tuple[MeasuredSlicing, Sliced]:
    counts = ClassCounts(of)
    for start in range(0, len(outputs), batch):
        part = slice(start, start + batch)
        counts.add([outputs[part]], [targets[part]], [None if mask is None else mask[part]])
    sliced = Sliced()
    measure_classes(counts, of.classes, sliced)
    return sliced.slicings[0], sliced


def recalls(found: MeasuredSlicing) -> list[float | None]:
    return [one.metrics["recall"] for one in found.slices]


def test_the_metric_within_a_class_is_its_recall() -> None:
    found, sliced = by_class(OUTPUTS, LABELS, task(classes=("a", "b", "c", "d", "e")))
    wanted = recall_score(LABELS, OUTPUTS.argmax(1), labels=range(K - 1), average=None)
    assert recalls(found)[:-1] == pytest.approx(list(wanted), abs=1e-12)
    assert recalls(found)[-1] is None
    assert found.slices[-1].undefined == {"recall": "no test example has this class"}
    assert [one.examples for one in found.slices] == np.bincount(LABELS, minlength=K).tolist()
    right = (OUTPUTS.argmax(1) == LABELS)[LABELS == 1].astype(float)
    assert sliced.evidence[slice_evidence("class", "b")] == right.tolist()


def test_one_hot_labels_and_a_single_output_have_classes_too() -> None:
    one_hot, _ = by_class(OUTPUTS, np.eye(K)[LABELS], task("categorical_crossentropy"))
    plain, _ = by_class(OUTPUTS, LABELS, task())
    assert recalls(one_hot) == recalls(plain)
    truth = LABELS % 2
    found, _ = by_class(OUTPUTS[:, :1], truth[:, None], task("binary_crossentropy"))
    wanted = recall_score(truth, OUTPUTS[:, 0] > 0, labels=[0, 1], average=None)
    assert recalls(found) == pytest.approx(list(wanted), abs=1e-12)


def test_several_labels_have_a_recall_each() -> None:
    truth = (random.random((N, 3)) < 0.4).astype(float)
    outputs = random.normal(size=(N, 3)) + truth
    found, _ = by_class(outputs, truth, task("binary_crossentropy"))
    wanted = recall_score(truth, outputs > 0, average=None)
    assert recalls(found) == pytest.approx(list(wanted), abs=1e-12)


def test_pixels_are_pooled_over_examples_and_masked_ones_left_out() -> None:
    labels = random.integers(0, K, (40, 6))
    outputs = random.normal(size=(40, 6, K)) + np.eye(K)[labels]
    mask = random.random((40, 6)) < 0.7
    found, sliced = by_class(outputs, labels, task(), mask, batch=7)
    flat, guess = labels[mask], outputs.argmax(-1)[mask]
    wanted = recall_score(flat, guess, labels=range(K), average=None)
    assert recalls(found) == pytest.approx(list(wanted), abs=1e-12)
    scores = sliced.evidence[slice_evidence("class", "0")]
    assert isinstance(scores, list)
    assert np.mean(scores) == pytest.approx(wanted[0])
    assert len(scores) == int(((labels == 0) & mask).any(axis=1).sum())


def test_of_equal_outputs_the_first_class_is_decided() -> None:
    outputs, labels = np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([0, 1])
    found, _ = by_class(outputs, labels, task())
    assert recalls(found) == [1.0, 0.0]


def measured(of: Task, outputs: Any, targets: Any) -> Sliced:
    means = [name for name in ("loss", *of.metrics) if name in ("loss", "accuracy")]
    loss = of.losses[0]
    terms = {name: Terms({(loss if name == "loss" else name, 0): 1.0}) for name in means}
    parts: dict[tuple[str, int], list[Sums]] = {
        (metric, 0): [sums(outputs, targets, metric, from_logits=True, loss=loss)]
        for many in terms.values()
        for metric, _ in many.factors
    }
    whole = WholeSplit(of, [name for name in of.metrics if name not in means])
    for part in (slice(0, 120), slice(120, None)):
        whole.add([outputs[part]], [targets[part]], [None])
    slicing = divided("place", PLACES)
    return measure_slices(
        of, [slicing], ClassCounts(task("mean_squared_error")), means_within(terms, parts), whole
    )


def test_means_and_other_metrics_are_those_of_the_slices_examples_alone() -> None:
    of = task("sparse_categorical_crossentropy", "f1_macro", "accuracy")
    found = measured(of, OUTPUTS, LABELS)
    (slicing,) = found.slicings
    assert (slicing.by, slicing.metric) == ("place", "f1_macro")
    for one in slicing.slices:
        inside = one.name == PLACES
        labels, guess = LABELS[inside], OUTPUTS.argmax(1)[inside]
        log = OUTPUTS[inside] - np.log(np.exp(OUTPUTS[inside]).sum(1, keepdims=True))
        assert one.examples == np.count_nonzero(inside)
        assert one.metrics["accuracy"] == pytest.approx((labels == guess).mean(), abs=1e-12)
        loss = -log[np.arange(len(labels)), labels].mean()
        assert one.metrics["loss"] == pytest.approx(loss, abs=1e-12)
        wanted = f1_score(labels, guess, average="macro", labels=np.unique([*labels, *guess]))
        assert one.metrics["f1_macro"] == pytest.approx(wanted, abs=1e-12)
        assert next(iter(one.metrics)) == "f1_macro"


def test_a_metric_that_is_not_defined_in_a_slice_is_none_with_the_reason() -> None:
    truth = np.where(PLACES == "p1", 0, random.integers(0, 2, N))
    outputs = random.normal(size=(N, 1)) + truth[:, None]
    found = measured(task("binary_crossentropy", "roc_auc"), outputs, truth[:, None])
    values = {one.name: one for one in found.slicings[0].slices}
    assert values["p1"].metrics["roc_auc"] is None
    assert "roc_auc" in (values["p1"].undefined or {})
    inside = PLACES == "p2"
    wanted = roc_auc_score(truth[inside], outputs[inside, 0])
    assert values["p2"].metrics["roc_auc"] == pytest.approx(wanted, abs=1e-12)
    assert slice_evidence("place", "p2") in found.evidence
    assert slice_evidence("place", "p1") not in found.evidence
