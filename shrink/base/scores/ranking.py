"""Metrics of a ranking: areas under curves, from the score of every element.

Each class is ranked against all others; several classes or labels are averaged, as scikit-learn's
`multi_class="ovr", average="macro"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shrink.base.arguments import Argument
from shrink.base.errors import DataError
from shrink.base.lazy import np
from shrink.base.scores.info import LABELS, OF_CLASS, POSITIVE, REAL, UNIT, MetricInfo
from shrink.base.scores.output import Output, class_number, log_softmax
from shrink.base.scores.rule import (
    MakeRule,
    Rows,
    Rule,
    Sums,
    Weighted,
    divided,
    largest_share,
)
from shrink.base.types import Array

Area = Callable[[Array, Array], Array]
"""Weights of positives and of negatives by descending score, (b, g) each, equal scores together,
to the area, (b,)."""
_DIGITS = 12
"""Of logarithms of probabilities, by which logits of several classes are ranked."""


def scores_and_truth(output: Output) -> tuple[Array, Array]:
    """Return the score of each class of each element that counts, and whether it is that class.

    Float64 and bool, (m, c); one number ranks one class, probabilities rank several.
    """
    outputs = output.elements()
    if output.is_single or output.several_labels:
        return outputs, output.element_targets() > 0.5
    classes = outputs.shape[-1]
    # Logits that differ by a constant have one probability, which rounding would tell apart.
    ranked = np.round(log_softmax(outputs), _DIGITS) if output.from_logits else outputs
    return ranked, np.eye(classes, dtype=bool)[output.element_classes()]


class _Ranked:
    def __init__(self, wanted: object) -> None:
        self.wanted = wanted

    def keep(self, output: Output) -> Rows:
        """Return scores and truth of each element, (m, classes), or of the wanted class alone."""
        scores, truth = scores_and_truth(output)
        if self.wanted is not None:
            count = 2 if output.is_single else scores.shape[1]
            index = class_number(str(self.wanted), output.classes, count)
            if output.is_single:
                sign = 1 if index else -1
                scores, truth = sign * scores, truth if sign > 0 else ~truth
            else:
                scores, truth = scores[:, [index]], truth[:, [index]]
        return Rows(output.example, (scores, truth))


class _Reconstructed:
    """Examples by the mean squared error of what a model makes of them; anomalies are positive.

    Logits become what their loss compares with the targets.
    """

    def __init__(self, normal: object) -> None:
        self.normal = str(normal)

    def keep(self, output: Output) -> Rows:
        """Return error and truth of each example, (n, 1).

        Raises:
            DataError: the examples have no slices.
        """
        if output.groups is None:
            raise DataError(
                "data.slices says which examples are normal, but these examples have no slices",
                subject="task.metrics",
                hint="measure another metric here: task.monitor",
            )
        valid = output.valid
        shape = (output.count, valid.shape[1], -1)
        squares = np.square(output.reconstruction - output.values).reshape(shape).mean(axis=2)
        counted = np.maximum(valid.sum(axis=1), 1)
        errors = np.where(valid, squares, 0.0).sum(axis=1) / counted
        is_normal = (output.groups.reshape(output.count, -1) == self.normal).any(axis=1)
        return Rows(np.arange(output.count), (errors[:, None], ~is_normal[:, None]))


class Ranking:
    """Elements by descending score, in groups that are ranked as one.

    Equal scores are one group, and so is NaN, which ranks below all of them. So are neighbours that
    are all negative, for no positive is between them; areas are the same.

    Args:
        scores: float64 (m,).
        truth: bool (m,).
        example: of each element, int64 (m,).
    """

    def __init__(self, scores: Array, truth: Array, example: Array) -> None:
        scores = np.where(np.isnan(scores), -np.inf, scores)
        order = np.argsort(-scores, kind="stable")
        ranked, positive = scores[order], truth[order].astype(bool)
        starts = np.r_[True, ranked[1:] != ranked[:-1]][: len(order)]
        begins = np.flatnonzero(starts)
        any_positive = np.logical_or.reduceat(positive, begins) if len(begins) else positive
        # A group of negatives goes with the group of negatives before it.
        kept = np.r_[True, any_positive[1:] | any_positive[:-1]][: len(begins)]
        group = np.repeat(np.cumsum(kept) - 1, np.diff(np.r_[begins, len(order)]))
        self.count = int(group[-1]) + 1 if len(group) else 0
        self.rows = np.where(positive, group, group + self.count)
        self.example = example[order]


def _sums(rankings: Sequence[Ranking], examples: int) -> Sums:
    """Return the weights of each ranking's groups: of the g positives', then of the negatives'."""
    starts = np.cumsum([0, *(2 * one.count for one in rankings)])
    columns = np.concatenate([one.rows + at for one, at in zip(rankings, starts, strict=False)])
    example = np.concatenate([one.example for one in rankings])
    return Sums(example, columns, np.ones(len(columns)), (examples, int(starts[-1])))


def roc_area(positive: Array, negative: Array) -> Array:
    """Return the area under the ROC curve: the chance to rank a positive above a negative."""
    pairs = (negative * (np.cumsum(positive, axis=1) - positive / 2)).sum(axis=1)
    return divided(pairs, positive.sum(axis=1) * negative.sum(axis=1))


def average_precision(positive: Array, negative: Array) -> Array:
    """Return the mean precision at the positives, with no interpolation, as scikit-learn has it."""
    hits = np.cumsum(positive, axis=1)
    decided = hits + np.cumsum(negative, axis=1)
    precision = hits / np.maximum(decided, np.finfo(float).tiny)
    return divided((positive * precision).sum(axis=1), positive.sum(axis=1))


def anomaly_precision(positive: Array, negative: Array) -> Array:
    """Return the average precision, NaN without a normal example: nothing is ranked then."""
    some = negative.sum(axis=1) > 0
    return np.where(some, average_precision(positive, negative), np.nan)


def partial_roc_area(max_fpr: float) -> Area:
    """Return the area up to a false positive rate, 1/2 for chance and 1 at best (McClish 1989)."""
    least, most = max_fpr**2 / 2, max_fpr

    def area(positive: Array, negative: Array) -> Array:
        hits = divided(np.cumsum(positive, axis=1), positive.sum(axis=1, keepdims=True))
        alarms = divided(np.cumsum(negative, axis=1), negative.sum(axis=1, keepdims=True))
        start = np.zeros((len(hits), 1))
        hits, alarms = np.hstack([start, hits]), np.hstack([start, alarms])
        full = np.diff(alarms, axis=1)
        width = np.diff(np.minimum(alarms, max_fpr), axis=1)
        rise = np.diff(hits, axis=1) * width / np.where(full == 0, 1.0, full)
        part = (width * (hits[:, :-1] + rise / 2)).sum(axis=1)
        return np.asarray((1 + (part - least) / (most - least)) / 2)

    return area


def false_accepts_per_hour(miss_rate: float, seconds: float) -> Area:
    """Return false accepts per hour where at most this share of positives is missed.

    The threshold is the highest score, among those of positives, that misses no more.

    Args:
        miss_rate: of the positives.
        seconds: of each example.
    """

    def rate(positive: Array, negative: Array) -> Array:
        count = positive.sum(axis=1, keepdims=True)
        missed = 1 - divided(np.cumsum(positive, axis=1), count)
        first = np.argmax(missed <= miss_rate + 1e-12, axis=1)[:, None]
        accepted = np.take_along_axis(np.cumsum(negative, axis=1), first, axis=1)[:, 0]
        per_negative = divided(accepted, negative.sum(axis=1))
        return np.where(count[:, 0] > 0, per_negative * 3600 / seconds, np.nan)

    return rate


def ranked_rule(area_of: Callable[[dict[str, object]], Area], undefined: str) -> MakeRule:
    """Return the rules of something of a ranking, averaged over classes.

    Args:
        area_of: makes it of the metric's arguments.
        undefined: when it is not defined.
    """

    def make(arguments: dict[str, object]) -> Rule:
        ranked: _Ranked | _Reconstructed = _Ranked(arguments.get("class"))
        if "normal" in arguments:
            ranked = _Reconstructed(arguments["normal"])
        area = area_of(arguments)

        def over(rows: Rows, examples: int) -> Weighted:
            scores, truth = rows.values
            rankings = [Ranking(*own, rows.example) for own in zip(scores.T, truth.T, strict=True)]
            columns = len(rankings) * max(1, len(scores) // max(examples, 1))
            each = np.zeros((examples, 2 * truth.shape[1]))
            np.add.at(each, rows.example, np.hstack([truth, ~truth]))
            # Each class is ranked by its positives and its negatives, which share nothing.
            share = 2 * largest_share(each)
            return Weighted.by(_sums(rankings, examples), _mean_of(area, rankings), columns, share)

        return Rule(ranked.keep, over, undefined)

    return make


def _mean_of(area: Area, rankings: Sequence[Ranking]) -> Callable[[Array], Array]:
    """Return the mean of areas, from the weights of the rankings' groups, (b, k) to (b,)."""
    ends = np.cumsum([2 * one.count for one in rankings])[:-1]

    def mean(weights: Array) -> Array:
        halves = (np.hsplit(part, 2) for part in np.split(weights, ends, axis=1))
        return np.asarray(np.mean([area(*own) for own in halves], axis=0))

    return mean


_BOTH = "a class has no example, or there is no example of another"
_NORMAL = "no test example is in the slice of the normal ones, or none is outside it"
_MAX_FPR = Argument("max_fpr", 0.1, high=1.0, is_open=True)


def _ranked(
    area_of: Callable[[dict[str, object]], Area], *parameters: Argument, undefined: str = _BOTH
) -> MetricInfo:
    rule = ranked_rule(area_of, undefined)
    return MetricInfo(
        True, LABELS, "none", UNIT, (*parameters, OF_CLASS), needs_logits=True, rule=rule
    )


def _anomaly(area_of: Callable[[dict[str, object]], Area], *parameters: Argument) -> MetricInfo:
    """Return a ranking of examples by how badly they are reconstructed."""
    takes = (*parameters, Argument("normal", form="class", needed=True))
    rule = ranked_rule(area_of, _NORMAL)
    return MetricInfo(True, REAL, "none", UNIT, takes, needs_slices=True, rule=rule)


def _partial(arguments: dict[str, object]) -> Area:
    return partial_roc_area(float(str(arguments["max_fpr"])))


METRICS: Mapping[str, MetricInfo] = {
    "roc_auc": _ranked(lambda _: roc_area),
    "average_precision": _ranked(lambda _: average_precision, undefined="a class has no example"),
    "partial_roc_auc": _ranked(_partial, _MAX_FPR),
    "false_accepts_per_hour": MetricInfo(
        False,
        LABELS,
        "per_hour",
        POSITIVE,
        (
            Argument("miss_rate", high=1.0, is_open=True, needed=True),
            Argument("seconds", is_open=True, needed=True),
            OF_CLASS,
        ),
        needs_logits=True,
        rule=ranked_rule(
            lambda arguments: false_accepts_per_hour(
                float(str(arguments["miss_rate"])), float(str(arguments["seconds"]))
            ),
            _BOTH,
        ),
    ),
    "anomaly_roc_auc": _anomaly(lambda _: roc_area),
    "anomaly_average_precision": _anomaly(lambda _: anomaly_precision),
    "anomaly_partial_roc_auc": _anomaly(_partial, _MAX_FPR),
}
