"""Metrics of decisions, from what was decided and what is true, class by class.

Precision, recall and F of classes, labels and pixels; balanced accuracy; overlap of masks. They are
ratios of sums over all elements of all examples. A single number above 1/2 (a logit above 0)
decides for the second of two classes; of several labels each is decided for itself. Confusion
matrices count the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, get_args

from shrink.base.lazy import np
from shrink.base.scores.info import OF_CLASS, MetricInfo, share
from shrink.base.scores.output import Output, class_number
from shrink.base.scores.rule import (
    MakeRule,
    Rows,
    Rule,
    Sums,
    Weighted,
    decided_class,
    divided,
    largest_share,
    mean_where,
)
from shrink.base.types import Array

Average = Literal["macro", "micro", "weighted"]
Ratio = Callable[[Array, Array, Array], tuple[Array, Array]]
"""Hits, decided and true of classes, (b, c) each, to numerator and denominator."""
OfCounts = Callable[[Array, Array, Array], Array]
"""Hits, decided and true of classes, (b, c) each, to a metric, (b,), or to parts of it, (b, k)."""


def decisions(output: Output) -> tuple[Array, Array]:
    """Return what was decided for each element that counts, and what is true, float64 (m, c).

    Of one number there are two classes.
    """
    outputs = output.elements()
    if output.is_single or output.several_labels:
        middle = 0.0 if output.from_logits else 0.5
        decided = (outputs > middle).astype(np.float64)
        true = (output.element_targets() > 0.5).astype(np.float64)
        if output.is_single:
            absent = np.where(np.isnan(outputs), 0.0, 1 - decided)
            return np.hstack([absent, decided]), np.hstack([1 - true, true])
        return decided, true
    classes = outputs.shape[-1]
    return decided_class(outputs), np.eye(classes)[output.element_classes()]


class _Chosen:
    """Keeps hits, decided and true, and remembers what the classes of the output are."""

    def __init__(self, wanted: object) -> None:
        self.wanted = wanted
        self.classes, self.single, self.labels = 0, False, False
        self.index: int | None = None

    def keep(self, output: Output) -> Rows:
        """Return hits, decided and true of each example, side by side, (n, 3 classes)."""
        decided, true = decisions(output)
        self.classes, self.single = decided.shape[1], output.is_single
        self.labels = output.several_labels
        if self.wanted is not None:
            self.index = class_number(str(self.wanted), output.classes, self.classes)
        example, count = output.example, output.count
        per_example = [
            _by_example(values, example, count) for values in (decided * true, decided, true)
        ]
        return Rows(np.arange(count), (np.hstack(per_example),))

    def weighted(
        self,
        rows: Rows,
        examples: int,
        ratio: OfCounts,
        denominators: OfCounts,
        of_class: Ratio | None = None,
        present: OfCounts | None = None,
    ) -> Weighted:
        """Return a metric of the sums of these over weighted examples.

        Args:
            rows: as kept of all examples.
            examples: how many there are.
            ratio: the metric of hits, decided and true, (resamples, classes) each.
            denominators: of the ratios that it is the mean of, (examples, ratios), from the same
                of each example.
            of_class: the ratio of each class, if the metric is their plain mean.
            present: above 0 for the classes that the mean is over.
        """
        sums = Sums.of_rows(rows, rows.values[0], examples)

        def of(counts: Array) -> Array:
            hits, decided, true = np.split(counts, 3, axis=1)
            return ratio(hits, decided, true)

        counts = np.split(rows.values[0], 3, axis=1)
        found = Weighted.by(sums, of, share=largest_share(denominators(*counts)))
        if of_class is None or present is None:
            return found
        totals = [part.sum(axis=0) for part in counts]
        there = present(*totals) > 0
        values, defined = divided(*of_class(*totals)), of_class(*totals)[1] > 0
        sizes = np.where(
            defined,
            np.count_nonzero(of_class(*counts)[1], axis=0),
            np.count_nonzero(present(*counts), axis=0),
        )

        def smallest(where: Array) -> int:
            return int(sizes[where].min()) if where.any() else 0

        right, wrong = smallest(values == 1), smallest(there & ((values == 0) | ~defined))
        part = 1 / max(1, int(np.count_nonzero(there)))
        return replace(found, part=part, right=right, wrong=wrong)


def _by_example(values: Array, example: Array, count: int) -> Array:
    """Return the sums of elements by example, (m, c) to (n, c)."""
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, example, values)
    return sums


def _precision(hits: Array, decided: Array, true: Array) -> tuple[Array, Array]:
    return hits, decided


def _recall(hits: Array, decided: Array, true: Array) -> tuple[Array, Array]:
    return hits, true


def _f1(hits: Array, decided: Array, true: Array) -> tuple[Array, Array]:
    return 2 * hits, decided + true


def _overlap(hits: Array, decided: Array, true: Array) -> tuple[Array, Array]:
    return hits, decided + true - hits


_RATIOS: dict[str, Ratio] = {"precision": _precision, "recall": _recall, "f1": _f1}
_UNDEFINED: dict[Ratio, str] = {
    _precision: "no element was predicted to be of the class",
    _recall: "no element is of the class",
    _f1: "no element is of the class, and none was predicted to be",
    _overlap: "no element is of the class, and none was predicted to be",
}


def _of_class(ratio: Ratio, average: Average | None, both: bool = False) -> MakeRule:
    """Return the rules of a ratio: of a class, of the positive one, or an average over classes.

    Args:
        ratio: of one class.
        average: over the classes; None for that of the positive class of one number, and the
            macro average of several.
        both: whether one number has two classes to average over.
    """

    def make(arguments: dict[str, object]) -> Rule:
        chosen = _Chosen(arguments.get("class"))

        def over(rows: Rows, examples: int) -> Weighted:
            alone = chosen.index
            if alone is None and average is None and chosen.single and not both:
                alone = 1

            def of(*counts: Array) -> Array:
                if alone is not None:
                    return divided(*ratio(*(part[:, alone] for part in counts)))
                return _averaged(ratio, average or "macro", *counts)

            def denominators(*counts: Array) -> Array:
                _, each = ratio(*counts)
                if alone is not None:
                    return each[:, [alone]]
                return each if average in (None, "macro") else each.sum(axis=1, keepdims=True)

            is_mean = alone is None and average in (None, "macro")
            each = ratio if is_mean else None
            return chosen.weighted(rows, examples, of, denominators, each, _present)

        return Rule(chosen.keep, over, _UNDEFINED[ratio])

    return make


def _averaged(ratio: Ratio, average: Average, hits: Array, decided: Array, true: Array) -> Array:
    """Return an average over classes, as scikit-learn has it.

    A class that is neither true nor decided anywhere does not count; one whose ratio is not
    defined counts as 0.
    """
    if average == "micro":
        return divided(*ratio(*(part.sum(axis=1) for part in (hits, decided, true))))
    each = np.nan_to_num(divided(*ratio(hits, decided, true)))
    if average == "weighted":
        return divided((each * true).sum(axis=1), true.sum(axis=1))
    return mean_where(each, _present(hits, decided, true) > 0)


def _present(hits: Array, decided: Array, true: Array) -> Array:
    return decided + true


def _true(hits: Array, decided: Array, true: Array) -> Array:
    return true


def _balanced_accuracy(arguments: dict[str, object]) -> Rule:
    """Return the mean recall over the classes that there are (Brodersen et al. 2010)."""
    chosen = _Chosen(None)

    def over(rows: Rows, examples: int) -> Weighted:
        def of(hits: Array, decided: Array, true: Array) -> Array:
            value = mean_where(divided(hits, true), true > 0)
            several = (true > 0).sum(axis=1) > 1
            return np.where(several & (not chosen.labels), value, np.nan)

        return chosen.weighted(rows, examples, of, _true, _recall, _true)

    return Rule(chosen.keep, over, "it needs elements of two classes, one label each")


METRICS: Mapping[str, MetricInfo] = {
    "balanced_accuracy": share(rule=_balanced_accuracy),
    **{name: share(OF_CLASS, rule=_of_class(ratio, None)) for name, ratio in _RATIOS.items()},
    **{
        f"{name}_{average}": share(rule=_of_class(ratio, average))
        for name, ratio in _RATIOS.items()
        for average in get_args(Average)
    },
    "mean_iou": share(OF_CLASS, rule=_of_class(_overlap, None, both=True)),
    "dice": share(OF_CLASS, rule=_of_class(_f1, None)),
}
