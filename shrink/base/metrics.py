"""The metrics that a recipe can name; `shrink.task.accuracy` computes each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

TaskKind = Literal["classification", "regression"]


@dataclass(frozen=True)
class MetricInfo:
    """What is known of a metric before any data is seen.

    Attributes:
        higher_is_better: whether a drop is a loss.
        task_kinds: the tasks that it makes sense for.
    """

    higher_is_better: bool
    task_kinds: frozenset[TaskKind]


_CLASSIFICATION: frozenset[TaskKind] = frozenset({"classification"})
_REGRESSION: frozenset[TaskKind] = frozenset({"regression"})

METRICS: dict[str, MetricInfo] = {
    "accuracy": MetricInfo(True, _CLASSIFICATION),
    "binary_accuracy": MetricInfo(True, _CLASSIFICATION),
    "top5_accuracy": MetricInfo(True, _CLASSIFICATION),
    "sparse_categorical_crossentropy": MetricInfo(False, _CLASSIFICATION),
    "categorical_crossentropy": MetricInfo(False, _CLASSIFICATION),
    "binary_crossentropy": MetricInfo(False, _CLASSIFICATION),
    "mean_squared_error": MetricInfo(False, _REGRESSION),
    "mean_absolute_error": MetricInfo(False, _REGRESSION),
}

_REAL = frozenset({"mean_squared_error", "mean_absolute_error"})
_BINARY = frozenset({"binary_crossentropy"})
_CLASSES = frozenset({"sparse_categorical_crossentropy", "categorical_crossentropy"})
_LOSSES: dict[str, frozenset[str]] = {
    "accuracy": _CLASSES | _BINARY,
    "binary_accuracy": _BINARY,
    "binary_crossentropy": _BINARY,
    "top5_accuracy": _CLASSES,
    "sparse_categorical_crossentropy": _CLASSES,
    "categorical_crossentropy": _CLASSES,
    "mean_squared_error": _REAL,
    "mean_absolute_error": _REAL,
}
"""The losses of the outputs that a metric makes sense for."""


def measured_outputs(metric: str, losses: Sequence[str]) -> list[int]:
    """Return the outputs over which a metric is averaged: an accuracy says nothing of an angle.

    Args:
        metric: a key of `METRICS`.
        losses: the loss of each output.

    Returns:
        Places of outputs; all of them where the metric goes with none, or with each.
    """
    fitting = [i for i, loss in enumerate(losses) if loss in _LOSSES[metric]]
    return fitting or list(range(len(losses)))
