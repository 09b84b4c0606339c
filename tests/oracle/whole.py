"""Metrics that are no means over examples: by scikit-learn, and in numpy for many weights at once.

scikit-learn takes milliseconds for each draw of a bootstrap, which a report has thousands of; that
both agree is tested.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import sklearn.metrics as sk
from scipy.special import log_softmax
from sklearn.exceptions import UndefinedMetricWarning

from tests.oracle.truth import Output, Truth

LEFT_OUT = 60
"""Blocks of examples whose influence is looked at."""
DIGITS = 12
"""Of logarithms of probabilities: those that differ by rounding alone are equal."""
NOISE = 2e-5
"""Outputs that differ by less, relative to the largest, may change places between kernels."""

Elements = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Outputs (m, k) and targets of the elements that count, and the example of each."""


def _macro_f1(values: np.ndarray, target: np.ndarray, weight: np.ndarray, output: Output) -> float:
    if values.shape[1] == 1:
        above = values[:, 0] > (0 if output.from_logits else 0.5)
        return float(sk.f1_score(target > 0.5, above, average="macro", sample_weight=weight))
    decided = values.argmax(1)
    kept = weight > 0
    return float(
        sk.f1_score(target[kept], decided[kept], average="macro", sample_weight=weight[kept])
    )


def _roc_auc(values: np.ndarray, target: np.ndarray, weight: np.ndarray, output: Output) -> float:
    if values.shape[1] == 1:
        return float(sk.roc_auc_score(target > 0.5, values[:, 0], sample_weight=weight))
    if output.from_logits:
        values = np.round(log_softmax(values, axis=1), DIGITS)
    every = [
        sk.roc_auc_score(target == c, values[:, c], sample_weight=weight)
        for c in range(values.shape[1])
    ]
    return float(np.mean(every))


def _rmse(values: np.ndarray, target: np.ndarray, weight: np.ndarray, output: Output) -> float:
    return float(np.sqrt(sk.mean_squared_error(target, values, sample_weight=weight)))


def _r2(values: np.ndarray, target: np.ndarray, weight: np.ndarray, output: Output) -> float:
    return float(sk.r2_score(target, values, sample_weight=weight))


def _macro_f1_of_rows(
    values: np.ndarray, target: np.ndarray, weights: np.ndarray, output: Output
) -> np.ndarray:
    if values.shape[1] == 1:
        decided = np.eye(2)[(values[:, 0] > (0 if output.from_logits else 0.5)).astype(int)]
        true = np.eye(2)[(target.reshape(-1) > 0.5).astype(int)]
    else:
        decided = np.eye(values.shape[1])[values.argmax(1)]
        true = np.eye(values.shape[1])[target.astype(int)]
    hits, of_true, of_decided = (weights @ part for part in (decided * true, true, decided))
    there = (of_true > 0) | (of_decided > 0)
    each = np.divide(2 * hits, of_true + of_decided, out=np.zeros(hits.shape), where=there)
    with np.errstate(invalid="ignore"):
        return np.asarray(each.sum(1) / there.sum(1))


def _roc_auc_of_rows(
    values: np.ndarray, target: np.ndarray, weights: np.ndarray, output: Output
) -> np.ndarray:
    """Return the share of pairs in which the positive is ranked higher (Mann and Whitney)."""
    if values.shape[1] == 1:
        return _pairs_in_order(values[:, 0], target.reshape(-1) > 0.5, weights)
    if output.from_logits:
        values = np.round(log_softmax(values, axis=1), DIGITS)
    columns = range(values.shape[1])
    return np.asarray(
        np.mean([_pairs_in_order(values[:, c], target == c, weights) for c in columns], axis=0)
    )


def _pairs_in_order(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    ranked, wanted = weights[:, order], positive[order]
    above = np.add.reduceat(ranked * wanted, starts, axis=1)
    below = np.add.reduceat(ranked * ~wanted, starts, axis=1)
    lower = np.cumsum(below, axis=1) - below / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((above * lower).sum(1) / (above.sum(1) * below.sum(1)))


def _rmse_of_rows(
    values: np.ndarray, target: np.ndarray, weights: np.ndarray, output: Output
) -> np.ndarray:
    squares = ((target - values) ** 2).mean(1)
    return np.asarray(np.sqrt(weights @ squares / weights.sum(1)))


def _r2_of_rows(
    values: np.ndarray, target: np.ndarray, weights: np.ndarray, output: Output
) -> np.ndarray:
    total = weights.sum(1, keepdims=True)
    left = weights @ (target - values) ** 2
    middle = weights @ target / total
    spread = np.stack([row @ (target - m) ** 2 for row, m in zip(weights, middle, strict=True)])
    share = np.divide(left, spread, out=np.where(left > 0, 1.0, 0.0), where=spread > 0)
    return np.asarray((1 - share).mean(1))


WEIGHTED: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, Output], np.ndarray]] = {
    "f1_macro": _macro_f1_of_rows,
    "roc_auc": _roc_auc_of_rows,
    "rmse": _rmse_of_rows,
    "r2": _r2_of_rows,
}
"""The same for many weights of elements, (B, m), at once: (B,)."""

WHOLE: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, Output], float]] = {
    "f1_macro": _macro_f1,
    "roc_auc": _roc_auc,
    "rmse": _rmse,
    "r2": _r2,
}
OF_REAL = ("rmse", "r2")
"""Those of real targets; the others are of classes."""


@dataclass(frozen=True)
class Whole:
    """A metric of all examples, the mean over outputs."""

    name: str
    outputs: Sequence[Output]
    elements: Sequence[Elements]
    examples: int

    def value(self, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the metric, or one for each row of `weights` (B, n); NaN where it is none."""
        if weights is None:
            return np.array([self.by_scikit_learn(np.ones(self.examples))])
        each = [
            WEIGHTED[self.name](values, target, weights[:, example].astype(float), output)
            for output, (values, target, example) in zip(self.outputs, self.elements, strict=True)
        ]
        return np.asarray(np.mean(each, axis=0))

    def by_scikit_learn(self, row: np.ndarray) -> float:
        """Return the metric of weighted examples, (n,)."""
        found = []
        for output, (values, target, example) in zip(self.outputs, self.elements, strict=True):
            weight = row[example]
            kept = weight > 0
            with warnings.catch_warnings():  # it has no such figure of one class, and gives NaN
                warnings.simplefilter("ignore", UndefinedMetricWarning)
                found.append(WHOLE[self.name](values[kept], target[kept], weight[kept], output))
        return float(np.mean(found))

    def defined(self, rows: np.ndarray) -> np.ndarray:
        """Return which rows of multiplicities have a figure, bool (B,)."""
        return ~np.isnan(self.value(rows))

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that the value may be, where outputs are as good as equal."""
        value = float(self.value()[0])
        close = [
            self._close(output, part[0])
            for output, part in zip(self.outputs, self.elements, strict=True)
        ]
        slack = 1e-5 + 1e-3 * abs(value) + 4 * float(np.max(close))
        return value - slack, value + slack

    def _close(self, output: Output, values: np.ndarray) -> float:
        """Return the share of elements whose two largest outputs are nearly, not quite, equal."""
        if self.name != "f1_macro":
            return 0.0
        scale = NOISE * np.maximum(np.abs(values).max(1), 1e-12)
        if values.shape[1] == 1:
            middle = 0 if output.from_logits else 0.5
            apart = np.abs(values[:, 0] - middle)
        else:
            apart = np.diff(np.sort(values, axis=1)[:, -2:], axis=1)[:, 0]
        return float(np.mean((apart > 0) & (apart < scale)))

    def influence(self) -> np.ndarray:
        """Return what blocks of examples add to the metric, (blocks,); the mean is 0."""
        count = min(self.examples, LEFT_OUT)
        block = np.arange(self.examples) % count
        without = self.value((block[None, :] != np.arange(count)[:, None]).astype(float))
        left = np.where(np.isnan(without), np.nanmean(without), without)
        return (count - 1) * (left.mean() - left)


def is_real(output: Output) -> bool:
    """Tell whether an output's targets are real numbers."""
    return output.loss.startswith("mean") or output.loss == "huber"


def compute_whole(
    name: str, pairs: Sequence[tuple[Output, np.ndarray]], truth: Truth
) -> Whole | None:
    """Return a metric over the outputs that it goes with, None without any.

    Args:
        name: a key of `WHOLE`.
        pairs: each output with what the artifact gave, (n, ...).
        truth: targets and masks.
    """
    real = name in OF_REAL
    chosen = [(o, y) for o, y in pairs if is_real(o) == real]
    if not chosen:
        return None
    elements = [_elements(np.asarray(y, np.float64), o, truth) for o, y in chosen]
    return Whole(name, [o for o, _ in chosen], elements, len(truth))


def _elements(values: np.ndarray, output: Output, truth: Truth) -> Elements:
    n, k = len(values), values.shape[-1]
    target, mask = truth.targets[output.name], truth.masks.get(output.name)
    rows = values.reshape(n, -1, k)
    if is_real(output):
        wanted = target.reshape(rows.shape)
    elif target.shape == values.shape and k > 1:
        wanted = target.argmax(-1).reshape(rows.shape[:2])
    else:
        wanted = target.reshape(rows.shape[:2])
    counted = np.ones(rows.shape[:2], bool)
    if mask is not None:
        counted &= mask.reshape(n, -1).astype(bool)
    return rows[counted], wanted[counted], np.nonzero(counted)[0]
