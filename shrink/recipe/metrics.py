"""The metrics that a recipe can name; `shrink.measure.accuracy` computes each of them."""

from __future__ import annotations

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
