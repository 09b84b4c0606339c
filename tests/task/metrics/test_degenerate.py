"""Every metric against scikit-learn, pycocotools or a closed form, to 1e-9.

On ordinary inputs and degenerate ones: one class, ties, a single example, empty masks, constant
targets, no boxes, boxes without area,
crowds. NaN stands for what is not defined.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk

from shrink.base.metrics import METRICS, metric_of
from shrink.task.means import sums
from tests.oracle.coco import NAMES, coco_stats
from tests.task.metrics.test_calibration import _by_definition
from tests.task.metrics.toys import value

RANDOM = np.random.default_rng(11)
Reference = Callable[[np.ndarray, np.ndarray], float]
NAN = float("nan")


def found(key: str, outputs: np.ndarray, targets: np.ndarray, **settings: Any) -> float:
    """Return a metric of all examples; NaN where it is not defined."""
    metric = metric_of(key)
    assert metric is not None
    if not metric.info.is_mean:
        return value(key, outputs, targets, **settings)
    parts = sums(outputs, targets, key, from_logits=False)
    return float(parts.values.sum() / parts.valid.sum())


def quiet(function: Callable[..., float], *arguments: Any, **named: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(function(*arguments, **named))


def of_both(function: Callable[..., float], **named: Any) -> Reference:
    """Return a reference that needs both classes."""
    return lambda y, p: quiet(function, y, p, **named) if 0 < y.mean() < 1 else NAN


def decided(function: Callable[..., float], **named: Any) -> Reference:
    """Return a reference that looks at what is decided."""
    return lambda y, p: quiet(function, y, (p > 0.5).astype(int), **named)


def false_accepts(y: np.ndarray, p: np.ndarray) -> float:
    if not 0 < y.mean() < 1:
        return NAN
    fitting = [t for t in np.unique(p) if np.mean(p[y == 1] < t) <= 0.25 + 1e-12]
    return float(np.mean(p[y == 0] >= max(fitting)) * 3600 / 2)


def entropy(y: np.ndarray, p: np.ndarray) -> float:
    return quiet(sk.log_loss, y, np.clip(p, 1e-7, 1 - 1e-7), labels=[0, 1])


def calibration(y: np.ndarray, p: np.ndarray) -> float:
    return _by_definition(np.maximum(p, 1 - p), (p > 0.5) == y, 15)


RATIOS = {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score}
BINARY: dict[str, Reference] = {
    **{name: decided(one, zero_division=np.nan) for name, one in RATIOS.items()},
    **{
        f"{name}_{average}": decided(one, average=average, zero_division=0.0)
        for name, one in RATIOS.items()
        for average in ("macro", "micro", "weighted")
    },
    "balanced_accuracy": lambda y, p: of_both(sk.balanced_accuracy_score)(y, (p > 0.5).astype(int)),
    "accuracy": decided(sk.accuracy_score),
    "binary_accuracy": decided(sk.accuracy_score),
    "pixel_accuracy": decided(sk.accuracy_score),
    "sequence_accuracy": decided(sk.accuracy_score),
    "roc_auc": of_both(sk.roc_auc_score),
    "partial_roc_auc_0.1": of_both(sk.roc_auc_score, max_fpr=0.1),
    "average_precision": lambda y, p: quiet(sk.average_precision_score, y, p) if y.any() else NAN,
    "false_accepts_per_hour_0.25_2": false_accepts,
    "log_loss": lambda y, p: quiet(sk.log_loss, y, p, labels=[0, 1]),
    "binary_crossentropy": entropy,
    "brier": lambda y, p: float(np.mean((p - y) ** 2)),
    "expected_calibration_error_15": calibration,
    "mean_iou": decided(sk.jaccard_score, average="macro", zero_division=0.0),
    "dice": decided(sk.f1_score, zero_division=np.nan),
}
TIED = np.round(RANDOM.uniform(size=40), 1)
LABELS = RANDOM.integers(0, 2, 40)
CASES: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "ordinary": (LABELS, np.clip(0.3 * LABELS + RANDOM.uniform(0, 0.7, 40), 0, 1)),
    "ties": (LABELS, TIED),
    "all tied": (LABELS, np.full(40, 0.7)),
    "at the threshold": (LABELS, np.full(40, 0.5)),
    "positives alone": (np.ones(40, int), TIED),
    "negatives alone": (np.zeros(40, int), TIED),
    "nothing decided": (LABELS, np.full(40, 0.1)),
    "never right": (LABELS, 1.0 - LABELS),
    "always right": (LABELS, LABELS.astype(float)),
    "empty and none decided": (np.zeros(5, int), np.zeros(5)),
    "one positive example": (np.ones(1, int), np.array([0.8])),
    "one negative example": (np.zeros(1, int), np.array([0.8])),
    "one positive among many": (np.eye(40, dtype=int)[7], TIED),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("key", BINARY)
def test_one_output_equals_its_reference(key: str, case: str) -> None:
    y, p = CASES[case]
    expected = BINARY[key](y, p)
    assert found(key, p[:, None], y) == pytest.approx(expected, abs=1e-9, nan_ok=True)


THREE = RANDOM.dirichlet(np.ones(3), 40)
SEVERAL: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "ordinary": (RANDOM.integers(0, 3, 40), THREE),
    "one class there": (np.full(40, 1), THREE),
    "a class neither there nor decided": (LABELS, THREE * [1, 1, 0]),
    "a class decided and not there": (LABELS, THREE),
    "a class there and not decided": (RANDOM.integers(0, 3, 40), THREE * [1, 1, 0]),
    "one example": (np.array([2]), THREE[:1]),
}


def of_argmax(function: Callable[..., float], **named: Any) -> Reference:
    return lambda y, p: quiet(function, y, p.argmax(1), **named)


def one_against_rest(function: Callable[..., float]) -> Reference:
    def mean(y: np.ndarray, p: np.ndarray) -> float:
        p = p / p.sum(axis=1, keepdims=True) if function is sk.log_loss else p
        if any(not 0 < np.mean(y == label) < 1 for label in range(3)):
            return NAN
        return float(np.mean([function(y == label, p[:, label]) for label in range(3)]))

    return mean


def normal(p: np.ndarray) -> np.ndarray:
    return np.asarray(p / p.sum(axis=1, keepdims=True))


OF_CLASSES: dict[str, Reference] = {
    **{
        f"{name}_{average}": of_argmax(one, average=average, zero_division=0.0)
        for name, one in RATIOS.items()
        for average in ("macro", "micro", "weighted")
    },
    **{name: of_argmax(one, average="macro", zero_division=0.0) for name, one in RATIOS.items()},
    "recall_2": of_argmax(sk.recall_score, labels=[2], average="macro", zero_division=np.nan),
    "mean_iou": of_argmax(sk.jaccard_score, average="macro", zero_division=0.0),
    "mean_iou_2": lambda y, p: (
        quiet(sk.jaccard_score, y, p.argmax(1), labels=[2], average="macro")
        if np.any((y == 2) | (p.argmax(1) == 2))
        else NAN
    ),
    "dice": of_argmax(sk.f1_score, average="macro", zero_division=0.0),
    "balanced_accuracy": lambda y, p: (
        quiet(sk.balanced_accuracy_score, y, p.argmax(1)) if len(np.unique(y)) > 1 else NAN
    ),
    "accuracy": of_argmax(sk.accuracy_score),
    "top_k_2": lambda y, p: quiet(sk.top_k_accuracy_score, y, p, k=2, labels=[0, 1, 2]),
    "top5_accuracy": lambda y, p: 1.0,
    "roc_auc": one_against_rest(sk.roc_auc_score),
    "log_loss": lambda y, p: quiet(sk.log_loss, y, normal(p), labels=[0, 1, 2]),
    "brier": lambda y, p: float(np.mean(((normal(p) - np.eye(3)[y]) ** 2).sum(1))),
}


@pytest.mark.parametrize("case", SEVERAL)
@pytest.mark.parametrize("key", OF_CLASSES)
def test_several_classes_equal_their_reference(key: str, case: str) -> None:
    y, p = SEVERAL[case]
    expected = OF_CLASSES[key](y, p)
    assert found(key, p, y) == pytest.approx(expected, abs=1e-9, nan_ok=True)


REAL: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "ordinary": (RANDOM.normal(size=30), RANDOM.normal(size=30)),
    "constant outputs": (RANDOM.normal(size=30), np.full(30, 2.0)),
    "constant targets": (np.full(30, 2.0), RANDOM.normal(size=30)),
    "one example": (np.array([3.0]), np.array([2.5])),
    "right throughout": (np.arange(30.0), np.arange(30.0)),
    "far from zero": (1e8 + np.arange(30.0), 1e8 + np.arange(30.0) + RANDOM.normal(size=30)),
    "targets of zero": (np.zeros(30), RANDOM.normal(size=30) * 1e-20),
}
OF_NUMBERS: dict[str, Reference] = {
    "rmse": sk.root_mean_squared_error,
    "mae": sk.mean_absolute_error,
    "mean_absolute_error": sk.mean_absolute_error,
    "mean_squared_error": sk.mean_squared_error,
    "quantile_loss_0.2": lambda y, p: sk.mean_pinball_loss(y, p, alpha=0.2),
    "r2": lambda y, p: sk.r2_score(y, p) if len(np.unique(y)) > 1 else NAN,
}


@pytest.mark.parametrize("case", REAL)
@pytest.mark.parametrize("key", OF_NUMBERS)
def test_numbers_equal_their_reference(key: str, case: str) -> None:
    y, p = REAL[case]
    expected = OF_NUMBERS[key](y, p)
    assert found(key, p[:, None], y) == pytest.approx(expected, abs=1e-9, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("key", ["anomaly_roc_auc_good", "anomaly_average_precision_good"])
@pytest.mark.parametrize("groups", ["good", "bad"])
def test_anomalies_of_one_slice_are_not_defined(key: str, groups: str) -> None:
    x = RANDOM.normal(size=(6, 3))
    assert np.isnan(value(key, x, x + 1, groups=np.full(6, groups)))


def box(*edges: float, label: int = 0, crowd: int = 0) -> list[float]:
    left, top, right, bottom = edges
    return [*edges, label, crowd, (right - left) * (bottom - top)]


NO_BOX, NOTHING = [0.0, 0, 0, 0, -1, 0, 0], [0.0, 0, 0, 0, 0, -1]
A, B = box(0, 0, 40, 40), box(60, 60, 160, 170, label=1)
HIT, TIE = [1.0, 1, 41, 40, 0.5, 0], [60.0, 62, 158, 170, 0.5, 1]
SCENES: Mapping[str, tuple[list[list[list[float]]], list[list[list[float]]]]] = {
    "neither boxes nor detections": ([[NO_BOX]] * 3, [[NOTHING]] * 3),
    "no boxes": ([[NO_BOX]] * 3, [[HIT]] * 3),
    "no detections": ([[A], [B]], [[NOTHING]] * 2),
    "crowds alone": ([[box(0, 0, 40, 40, crowd=1)]] * 2, [[HIT]] * 2),
    "a crowd that takes detections": (
        [[box(0, 0, 80, 80, crowd=1), A], [NO_BOX, A]],
        [[HIT, [50.0, 50, 60, 60, 0.9, 0]]] * 2,
    ),
    "a box without area": ([[box(5, 5, 5, 5), A]] * 2, [[HIT, [5.0, 5, 5, 5, 0.4, 0]]] * 2),
    "a line": ([[box(5, 5, 50, 5), A]], [[[5.0, 5, 50, 5, 0.9, 0], HIT]]),
    "a detection without area": ([[A]], [[[3.0, 3, 3, 9, 0.9, 0], HIT]]),
    "ties": ([[A, B], [B, NO_BOX]], [[HIT, TIE, HIT], [HIT, HIT, TIE]]),
    "of a class that is not there": ([[A]], [[TIE, HIT]]),
}


@pytest.mark.parametrize("case", SCENES)
def test_boxes_equal_pycocotools(case: str, tmp_path: Path) -> None:
    truths, detections = (np.array(one, np.float64) for one in SCENES[case])
    if (detections[..., 5] >= 0).any():
        expected = coco_stats(tmp_path, truths, detections)
    else:  # pycocotools reads no empty list of results: nothing is right where something is there
        real = (truths[..., 4] >= 0) & (truths[..., 5] == 0)
        sides = np.sqrt(truths[..., 6])
        low = {"map_small": 0, "map_medium": 32, "map_large": 96}
        high = {"map_small": 32, "map_medium": 96}
        expected = {
            name: 0.0
            if (real & (sides >= low.get(name, 0)) & (sides <= high.get(name, np.inf))).any()
            else -1.0
            for name in NAMES
        }
    for name in NAMES:
        got = value(name, detections, truths, classes=("a", "b"))
        wanted = expected[name] if expected[name] >= 0 else NAN
        assert got == pytest.approx(wanted, abs=1e-9, nan_ok=True), name


def test_every_metric_is_among_these() -> None:
    keys = [*BINARY, *OF_CLASSES, *OF_NUMBERS, *NAMES]
    names = {metric.name for metric in map(metric_of, keys) if metric is not None}
    elsewhere = {
        "mape": "relative to targets of 0 it follows a constant of scikit-learn: test_means",
        "sparse_categorical_crossentropy": "a loss: test_accuracy",
        "categorical_crossentropy": "a loss: test_accuracy",
        "anomaly_roc_auc": "above",
        "anomaly_average_precision": "above",
        "anomaly_partial_roc_auc": "test_anomaly",
    }
    assert names | set(elsewhere) == set(METRICS)
