"""What a detector's outputs score, decoded together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from shrink.base.figures import LOSS
from shrink.base.resampled import Resampled
from shrink.base.types import Array
from shrink.task.detector import Detector
from shrink.task.metrics.whole import WholeSplit
from shrink.task.task import Task

_NO_PLACES = "task.decode has no strides, and nobody knows which candidate stands where"

Batch: TypeAlias = "tuple[Sequence[Array], Sequence[Array], Sequence[Array | None]]"
"""Outputs, targets and masks of some examples."""


@dataclass(frozen=True)
class DetectorScores:
    """Metrics of a detector; see `shrink.task.artifact.Evaluation`."""

    metrics: dict[str, float | None]
    scores: dict[str, Array]
    resampled: dict[str, Resampled]
    undefined: dict[str, str]


def score_detector(
    batches: Iterable[Batch], task: Task, detector: Detector, *, with_intervals: bool
) -> DetectorScores:
    """Return the loss and all metrics over some batches.

    Args:
        batches, task, with_intervals: as in `shrink.task.artifact.evaluate_batches`.
        detector: of the task.
    """
    whole, losses = WholeSplit(task, task.metrics), list[Array]()
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
    return DetectorScores(
        {
            LOSS: float(known[LOSS].mean()) if known else None,
            **values,
        },
        known,
        {name: one for name, one in resampled.items() if one is not None},
        undefined if known else {LOSS: _NO_PLACES, **undefined},
    )
