"""Scores of an artifact on slices of the examples: by class, and as the recipe divides them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from shrink.base.figures import LOSS
from shrink.base.losses import kind_of_loss
from shrink.base.scores.confusion import decisions
from shrink.base.scores.output import Pooled, Sums, output_of, pool
from shrink.base.types import Array
from shrink.contract.result import Evidence
from shrink.contract.slices import (
    BY_CLASS,
    FEWEST_EXAMPLES,
    RECALL,
    MeasuredSlice,
    MeasuredSlicing,
    slice_evidence,
)
from shrink.data.slices import Slicing
from shrink.task.combination import MeansWithin
from shrink.task.metrics.user import MOST_IN_SLICES
from shrink.task.metrics.whole import WholeSplit
from shrink.task.task import Task

MOST_SLICES = 200
"""Slices of one slicing that are listed; of more, those with the most examples."""


@dataclass
class Sliced:
    """What slices score.

    Attributes:
        slicings: as a report takes them.
        evidence: what intervals are computed from, by `slice_evidence`.
    """

    slicings: list[MeasuredSlicing] = field(default_factory=list)
    evidence: dict[str, Evidence] = field(default_factory=dict)


class ClassCounts:
    """Counts, example by example, elements of each class and those of them that are found.

    The metric within a class is its recall: the share of the elements which are truly of the class
    that are decided to be. Of one class an example these are the examples of the class; of several
    labels an example each label is a class; of pixels and steps the elements of an example are
    pooled as `pool` does. Ties are broken at random, by their expected value.

    Args:
        task: of one output; of others there are no classes.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self.applies = len(task.losses) == 1 and kind_of_loss(task.losses[0]) != "values"
        self._rows: list[tuple[Array, Array, Array, Array]] = []
        self._examples = 0
        self.classes = 0

    def add(
        self, outputs: Sequence[Array], targets: Sequence[Array], masks: Sequence[Array | None]
    ) -> None:
        """Count what a batch has; arrays are by output."""
        if not self.applies:
            return
        task = self._task
        one = output_of(
            outputs[0],
            targets[0],
            mask=masks[0],
            from_logits=task.from_logits[0],
            loss=task.losses[0],
        )
        decided, true = decisions(one)
        place, own = np.nonzero(true)
        found, example, self.classes = decided[place, own], one.example[place], true.shape[1]
        # Example, class, found and number of elements, a row for each class of an example.
        keys, inverse, counts = np.unique(
            example * self.classes + own, return_inverse=True, return_counts=True
        )
        hits = np.bincount(inverse, weights=found, minlength=len(keys))
        example, own = keys // self.classes + self._examples, keys % self.classes
        self._rows.append((example, own, hits, counts.astype(np.float64)))
        self._examples += one.count

    def sums(self) -> Iterator[tuple[int, Sums]]:
        """Yield each class with the sums of the examples that have it."""
        example, own, found, count = (
            np.concatenate(column) for column in zip(*self._rows, strict=True)
        )
        order = np.lexsort((example, own))
        starts = np.searchsorted(own[order], np.arange(self.classes + 1))
        for index in range(self.classes):
            rows = order[starts[index] : starts[index + 1]]
            yield index, Sums(found[rows], count[rows])


def groups_of(slicings: Sequence[Slicing]) -> Array | None:
    """Return the slices of each example by name, (n,), of several slicings (n, slicings).

    None without any.
    """
    if not slicings:
        return None
    columns = [np.asarray(one.labels) for one in slicings]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def measure_slices(
    task: Task,
    slicings: Sequence[Slicing],
    counts: ClassCounts,
    means: MeansWithin,
    whole: WholeSplit,
) -> Sliced:
    """Return what slices score, by class and by each slicing.

    Args:
        task: of the artifact.
        slicings: of all examples, in their order.
        counts: of the classes of all examples.
        means: of the metrics that are means.
        whole: of the others.
    """
    sliced = Sliced()
    measure_classes(counts, task.classes, sliced)
    for slicing in slicings:
        measure_slicing(
            slicing, next(iter(task.metrics), LOSS), means, whole, sliced, len(slicings)
        )
    return sliced


def measure_classes(counts: ClassCounts, names: Sequence[str], into: Sliced) -> None:
    """Add the recall of each class.

    Args:
        counts: of all examples.
        names: of the classes by index; numbers stand for those that have none.
        into: receives it.
    """
    if not counts.applies:
        return
    every = sorted(counts.sums(), key=lambda one: (-len(one[1].values), one[0]))
    listed = sorted(every[:MOST_SLICES], key=lambda one: one[0])
    slices = []
    for index, sums in listed:
        name = names[index] if index < len(names) else str(index)
        if not len(sums.values):
            why = {RECALL: "no test example has this class"}
            slices.append(
                MeasuredSlice(name=name, examples=0, metrics={RECALL: None}, undefined=why)
            )
            continue
        pooled = pool([sums])
        into.evidence[slice_evidence(BY_CLASS, name)] = pooled.scores.tolist()
        metrics = {RECALL: pooled.value}
        slices.append(MeasuredSlice(name=name, examples=len(sums.values), metrics=metrics))
    unlisted = len(every) - len(listed)
    into.slicings.append(
        MeasuredSlicing(by=BY_CLASS, metric=RECALL, slices=tuple(slices), unlisted=unlisted)
    )


def measure_slicing(
    slicing: Slicing,
    main: str,
    means: MeansWithin,
    whole: WholeSplit,
    into: Sliced,
    slicings: int,
) -> None:
    """Add what the slices of one slicing score: every metric, and evidence of the main one.

    Args:
        slicing: of all examples, in their order.
        main: the main metric.
        means: of the metrics that are means.
        whole: of the others.
        into: receives it.
        slicings: how many there are, which share the time for a user's metric.
    """
    sizes = np.bincount(slicing.index, minlength=len(slicing.names))
    largest = np.argsort(-sizes, kind="stable")[:MOST_SLICES]
    slices, seconds = [], MOST_IN_SLICES / slicings / len(largest)
    for place in sorted(largest.tolist()):
        name, chosen = slicing.names[place], np.flatnonzero(slicing.index == place)
        found, part = means(chosen), whole.within(chosen)
        metrics = {key: None if one is None else one.value for key, one in found.items()}
        metrics |= part.values()
        undefined = {
            key: "no element of any example counts" if key in found else whole.undefined(key)
            for key, value in metrics.items()
            if value is None
        }
        evidence = _evidence(main, found, part, seconds, whole.examples)
        if evidence is not None:
            into.evidence[slice_evidence(slicing.by, name)] = evidence
        slices.append(
            MeasuredSlice(
                name=name,
                examples=len(chosen),
                metrics={main: metrics[main], **metrics},
                undefined=undefined or None,
            )
        )
    unlisted = len(slicing.names) - len(slices)
    into.slicings.append(
        MeasuredSlicing(by=slicing.by, metric=main, slices=tuple(slices), unlisted=unlisted)
    )


def _evidence(
    main: str,
    means: dict[str, Pooled | None],
    part: WholeSplit,
    most_seconds: float,
    slice_of: int,
) -> Evidence | None:
    """Return what the interval of the main metric is computed from; None where there is none."""
    if main in means:
        pooled = means[main]
        return None if pooled is None else pooled.scores.tolist()
    if part.examples < FEWEST_EXAMPLES:
        return None
    return part.only(main).resampled(most_seconds, slice_of)[main]
