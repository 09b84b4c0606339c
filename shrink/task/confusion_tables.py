"""Confusion matrices of an artifact, output by output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.base.losses import kind_of_loss
from shrink.base.scores.confusion import decisions
from shrink.base.scores.output import output_of
from shrink.base.types import Array
from shrink.contract.details import Confused, Confusion
from shrink.task.task import Task

_MOST_CLASSES = 1_000
"""Beyond it a matrix takes more memory than it tells."""
_MOST_KEPT = 100
"""Classes up to which the report has the whole matrix."""
_MOST_PAIRS = 50


class ConfusionTables:
    """Counts of true and predicted classes over all examples, by output.

    Outputs of real targets and of several labels have none.

    Args:
        task: losses, logits, classes and outputs.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._counts: dict[int, Array] = {}

    def add(
        self, outputs: Sequence[Array], targets: Sequence[Array], masks: Sequence[Array | None]
    ) -> None:
        """Count a batch; arrays are by output."""
        task = self._task
        for index, loss in enumerate(task.losses):
            kind, width = kind_of_loss(loss), _width(outputs[index])
            if kind == "values" or (kind == "labels" and width > 1) or width > _MOST_CLASSES:
                continue
            logits = task.from_logits[index]
            one = output_of(
                outputs[index], targets[index], mask=masks[index], from_logits=logits, loss=loss
            )
            decided, true = decisions(one)
            self._counts[index] = self._counts.get(index, 0.0) + true.T @ decided

    def described(self) -> tuple[Confusion, ...]:
        """Return the matrix of each output, as a report keeps it."""
        return tuple(self._described(index, counts) for index, counts in self._counts.items())

    def _described(self, index: int, counts: Array) -> Confusion:
        task, k = self._task, len(counts)
        named = task.classes[:k] if len(task.losses) == 1 else ()
        labels = (*named, *map(str, range(len(named), k)))
        rows = tuple(tuple(float(one) for one in row) for row in counts)
        return Confusion(
            output=task.outputs[index].name if task.outputs else "",
            labels=labels if k <= _MOST_KEPT else (),
            counts=rows if k <= _MOST_KEPT else (),
            confused=tuple(
                Confused(true=labels[t], decided=labels[d], count=float(counts[t, d]))
                for t, d in _most_confused(counts)
            ),
        )


def _width(outputs: Array) -> int:
    return outputs.shape[-1] if outputs.ndim > 1 else 1


def _most_confused(counts: Array) -> list[tuple[int, int]]:
    """Return true and predicted class of what is confused most, the commonest first."""
    wrong = counts * (1 - np.eye(len(counts)))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_PAIRS]
    pairs = (divmod(int(place), len(counts)) for place in order)
    return [(t, d) for t, d in pairs if wrong[t, d] > 0]
