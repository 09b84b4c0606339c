"""Loss and metrics from outputs and targets, in float64, example by example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.oracle.losses import LOSSES as LOSSES_OF
from tests.oracle.truth import Output, Truth
from tests.oracle.whole import WHOLE, Whole, compute_whole

EPSILON = 1e-7
"""Keras clips probabilities to this and to 1 minus this."""
NOISE = 2e-5
"""Outputs that differ by less, relative to the largest, may change places between kernels."""

CLASSES = (
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
)
LABELS = ("binary_crossentropy", "binary_focal_crossentropy")
REAL = ("mean_squared_error", "mean_absolute_error", "huber")


@dataclass(frozen=True)
class Scores:
    """A metric of one output, by example.

    Attributes:
        sums: (n,) over the example's elements that count.
        counts: (n,) how many these are.
        weight: of this output in the metric.
        low, high: (n,) what `sums` may be where outputs are as good as equal.
    """

    sums: np.ndarray
    counts: np.ndarray
    weight: float
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Metric:
    """A metric over all outputs that it goes with."""

    parts: list[Scores]

    def value(self, weights: np.ndarray | None = None, which: str = "sums") -> np.ndarray:
        """Return the metric, or one for each row of `weights` (B, n), the examples' multiplicity.

        Elements of all examples are pooled, as Keras' `evaluate` does over masked outputs.
        """
        n = len(self.parts[0].counts)
        rows = np.ones((1, n)) if weights is None else weights
        each = [p.weight * (rows @ getattr(p, which)) / (rows @ p.counts) for p in self.parts]
        return np.sum(each, axis=0)

    @property
    def examples(self) -> int:
        """How many there are."""
        return len(self.parts[0].counts)

    def influence(self) -> np.ndarray:
        """Return what each example adds to the metric, to first order, (n,); the mean is 0."""
        parts = (
            p.weight * (p.sums - p.counts * p.sums.sum() / p.counts.sum()) / p.counts.mean()
            for p in self.parts
        )
        return np.asarray(np.sum(list(parts), axis=0))

    def defined(self, rows: np.ndarray) -> np.ndarray:
        """Return which rows of multiplicities leave something to measure, bool (B,)."""
        return np.all([(rows @ p.counts) > 0 for p in self.parts], axis=0)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that the value may be."""
        return float(self.value(which="low")[0]), float(self.value(which="high")[0])


Elements = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The score of each element, the least and the most that it may be."""
Rule = Callable[[np.ndarray, np.ndarray, Output], Elements]
"""(outputs, targets, meaning) -> scores."""


def compute(outputs: Sequence[np.ndarray], truth: Truth) -> dict[str, Metric | Whole]:
    """Return every metric of the truth, and the loss.

    Args:
        outputs: dequantized, (n, ...), in the order of the truth's outputs.
        truth: targets and meaning.
    """
    pairs = list(zip(truth.outputs, outputs, strict=True))
    found: dict[str, Metric | Whole] = {
        "loss": Metric([_scores(y, o, o.loss, truth, o.weight) for o, y in pairs])
    }
    for name in truth.metrics:
        if name in WHOLE:
            whole = compute_whole(name, pairs, truth)
            found |= {} if whole is None else {name: whole}
            continue
        chosen = [(o, y) for o, y in pairs if goes_with(name, o.loss)]
        if name == "accuracy":  # several labels decide for no class
            chosen = [(o, y) for o, y in chosen if o.loss not in LABELS or y.shape[-1] == 1]
        parts = [_scores(y, o, name, truth, 1 / len(chosen)) for o, y in chosen]
        if parts:
            found[name] = Metric(parts)
    return found


def goes_with(metric: str, loss: str) -> bool:
    """Tell whether a metric is measured on an output with this loss."""
    if metric in ("accuracy", "top5_accuracy"):
        return loss in CLASSES or (metric == "accuracy" and loss in LABELS)
    if metric == "binary_accuracy":
        return loss in LABELS
    if metric in ("mean_squared_error", "mean_absolute_error"):
        return loss in REAL
    return metric == loss


def _scores(values: np.ndarray, output: Output, name: str, truth: Truth, weight: float) -> Scores:
    target = truth.targets[output.name]
    rule = _with_arguments(name) if name == output.loss and output.arguments else RULES[name]
    elements, low, high = rule(np.asarray(values, np.float64), target, output)
    n = len(elements)
    mask = truth.masks.get(output.name)
    counted = np.ones(elements.shape) if mask is None else mask.astype(float)
    counted = np.broadcast_to(
        counted.reshape(counted.shape + (1,) * (elements.ndim - counted.ndim)), elements.shape
    )
    sums = ((e * counted).reshape(n, -1).sum(1) for e in (elements, low, high))
    counts = counted.reshape(n, -1).sum(1)
    first, least, most = sums
    return Scores(first, counts, weight, least, most)


def _with_arguments(name: str) -> Rule:
    def rule(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
        return _exact(LOSSES_OF[name](values, target, output.from_logits, output.arguments))

    return rule


def _exact(elements: np.ndarray) -> Elements:
    return elements, elements, elements


def _log_softmax(values: np.ndarray) -> np.ndarray:
    shifted = values - values.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _log_probabilities(values: np.ndarray, output: Output) -> np.ndarray:
    if output.from_logits:
        return _log_softmax(values)
    if output.loss == "categorical_crossentropy":
        scaled = values / values.sum(-1, keepdims=True)
        return np.log(np.clip(scaled, EPSILON, 1 - EPSILON))
    return _log_softmax(np.log(np.clip(values, EPSILON, 1 - EPSILON)))


def _classes(target: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return class numbers, of one-hot targets too."""
    if target.shape == values.shape and target.shape[-1] > 1:
        return target.argmax(-1)
    return target.reshape(values.shape[:-1]).astype(int)


def _sparse(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
    logs = _log_probabilities(values, output)
    labels = _classes(target, values)
    return _exact(-np.take_along_axis(logs, labels[..., None], -1)[..., 0])


def _categorical(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
    return _exact(-(target * _log_probabilities(values, output)).sum(-1))


def _binary(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
    wanted = target.reshape(values.shape).astype(float)
    if output.from_logits:
        losses = np.logaddexp(0, values) - wanted * values
    else:
        p = np.clip(values, EPSILON, 1 - EPSILON)
        losses = -(wanted * np.log(p + EPSILON) + (1 - wanted) * np.log(1 - p + EPSILON))
    return _exact(losses.mean(-1))


def _squared(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
    return _exact(((values - target.reshape(values.shape)) ** 2).mean(-1))


def _absolute(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
    return _exact(np.abs(values - target.reshape(values.shape)).mean(-1))


def _argmax(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
    """Whether the label is the class that argmax decides: the first of equal outputs."""
    if values.shape[-1] == 1:
        return _on_the_right_side(values, target, output)
    labels = _classes(target, values)
    own = np.take_along_axis(values, labels[..., None], -1)[..., 0]
    rest = np.where(np.arange(values.shape[-1]) == labels[..., None], -np.inf, values).max(-1)
    hit = (values.argmax(-1) == labels).astype(float)
    apart = np.abs(own - rest)
    unsure = (apart > 0) & (apart <= NOISE * np.abs(values).max(-1))  # an equal output is a tie
    return hit, np.where(unsure, 0.0, hit), np.where(unsure, 1.0, hit)


def _among_best(k: int) -> Rule:
    """Whether the label is among the k largest outputs; ties count as if broken at random."""

    def rule(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
        if values.shape[-1] == 1:
            return _on_the_right_side(values, target, output)
        labels = _classes(target, values)
        own = np.take_along_axis(values, labels[..., None], -1)
        noise = NOISE * np.abs(values).max(-1, keepdims=True)
        above = (values > own).sum(-1)
        equal = (values == own).sum(-1)
        surely_above = (values > own + noise).sum(-1)
        perhaps_above = (values >= own - noise).sum(-1) - 1
        expected = np.clip((k - above) / equal, 0, 1)
        low, high = (perhaps_above < k).astype(float), (surely_above < k).astype(float)
        tied = equal > 1  # exactly equal is a tie, which has an expectation; nearly equal is noise
        return expected, np.where(tied, expected, low), np.where(tied, expected, high)

    return rule


def _on_the_right_side(values: np.ndarray, target: np.ndarray, output: Output) -> Elements:
    wanted = target.reshape(values.shape) > 0.5
    middle = 0.0 if output.from_logits else 0.5
    hits = ((values > middle) == wanted).mean(-1)
    noise = NOISE * max(1.0, float(np.abs(values).max()))
    close = np.abs(values - middle) <= noise
    sure = (~close & ((values > middle) == wanted)).mean(-1)
    return hits, sure, sure + close.mean(-1)


RULES: dict[str, Rule] = {
    "sparse_categorical_crossentropy": _sparse,
    "categorical_crossentropy": _categorical,
    "binary_crossentropy": _binary,
    "mean_squared_error": _squared,
    "mean_absolute_error": _absolute,
    "accuracy": _argmax,
    "top5_accuracy": _among_best(5),
    "binary_accuracy": _on_the_right_side,
}
