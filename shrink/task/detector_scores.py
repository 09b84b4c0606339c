"""Scores of a detector's outputs, decoded together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from shrink.base.bootstrap import Resampled
from shrink.base.figures import LOSS
from shrink.base.scores.output import Pooled
from shrink.base.types import Array
from shrink.contract.slices import BY_CLASS, MeasuredSlice, MeasuredSlicing, slice_evidence
from shrink.data.slices import Slicing
from shrink.task.detector import Decoder
from shrink.task.evaluation import Evaluation
from shrink.task.metrics.detection import RULES, UNDEFINED, holders, of_class
from shrink.task.metrics.resample import resample
from shrink.task.metrics.whole import WholeSplit
from shrink.task.slices import MOST_SLICES, Sliced, groups_of, measure_slicing
from shrink.task.task import Task

Batch: TypeAlias = "tuple[Sequence[Array], Sequence[Array], Sequence[Array | None]]"
"""Outputs, targets and masks of some examples."""


def score_detector(
    batches: Iterable[Batch],
    examples: int,
    task: Task,
    detector: Decoder,
    slicings: Sequence[Slicing] | None = None,
    *,
    with_intervals: bool,
) -> Evaluation:
    """Return the loss and all metrics over some batches.

    Args:
        batches, examples, task, slicings, with_intervals: as `evaluate_batches` of
            `shrink.task.artifact` takes them.
        detector: of the task.
    """
    whole, losses = WholeSplit(task, task.metrics), list[Array]()
    whole.groups = groups_of(slicings or ())
    for outputs, targets, present in batches:
        whole.add(outputs, targets, present)
        scores = detector.scores(outputs, targets[0])
        losses += [] if scores is None else [scores]
    known = {LOSS: np.concatenate(losses)} if losses else {}
    resampled: dict[str, Resampled | None] = {}
    if with_intervals:
        resampled = whole.resampled()
        values = {name: None if one is None else one.value for name, one in resampled.items()}
    else:
        values = whole.values()
    undefined = {name: whole.undefined(name) for name, value in values.items() if value is None}
    return Evaluation(
        {
            LOSS: float(known[LOSS].mean()) if known else None,
            **values,
        },
        known,
        examples,
        {name: one for name, one in resampled.items() if one is not None},
        undefined if known else {LOSS: detector.no_loss or "", **undefined},
        Sliced() if slicings is None else _slices(task, slicings, whole, known),
    )


def _slices(
    task: Task, slicings: Sequence[Slicing], whole: WholeSplit, known: dict[str, Array]
) -> Sliced:
    """Return what slices score: every class by itself, and pictures by what the recipe names."""
    sliced = Sliced()
    by_class = next((name for name in task.metrics if name in RULES), None)
    if by_class is not None:
        _measure_classes(by_class, task.classes, whole, sliced)

    def means(chosen: Array) -> dict[str, Pooled | None]:
        return {
            name: Pooled(float(scores[chosen].mean()), scores[chosen])
            for name, scores in known.items()
        }

    main = next(iter(task.metrics), LOSS)
    if main != LOSS or known:
        for slicing in slicings:
            measure_slicing(slicing, main, means, whole, sliced, len(slicings))
    return sliced


def _measure_classes(metric: str, classes: Sequence[str], whole: WholeSplit, into: Sliced) -> None:
    """Add a metric of each class; resamples are of all pictures."""
    rows, examples = whole.kept(metric), whole.examples
    counts = np.array([holders(rows, label, examples) for label in range(len(classes))])
    listed = sorted(np.argsort(-counts, kind="stable")[:MOST_SLICES].tolist())
    found = resample([of_class(metric, label, rows, examples) for label in listed], examples)
    slices = []
    for label, one in zip(listed, found, strict=True):
        name = classes[label]
        if one is not None:
            into.evidence[slice_evidence(BY_CLASS, name)] = one
        slices.append(
            MeasuredSlice(
                name=name,
                examples=int(counts[label]),
                metrics={metric: None if one is None else one.value},
                undefined={metric: UNDEFINED} if one is None else None,
            )
        )
    unlisted = len(classes) - len(listed)
    into.slicings.append(
        MeasuredSlicing(by=BY_CLASS, metric=metric, slices=tuple(slices), unlisted=unlisted)
    )
