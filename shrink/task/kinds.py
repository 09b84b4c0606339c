"""Kinds of tasks, told by the data and by what a model gives, and the metrics that suit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shrink.base.losses import kind_of_loss
from shrink.contract.result import TaskKind
from shrink.data.config import HEARD, IN_TIME, DataConfig
from shrink.task.task import OutputTask

PROPOSED: Mapping[TaskKind, tuple[str, ...]] = {
    "masks": ("mean_iou", "pixel_accuracy"),
    "clips": ("balanced_accuracy", "accuracy"),
    "forecast": ("rmse", "mae", "r2"),
}
"""Metrics of a first recipe, the main one first; other kinds have those of their loss."""


def kind_of_task(data: DataConfig, outputs: Sequence[OutputTask]) -> TaskKind:
    """Return what kind of task it is.

    Args:
        data: the `data` section.
        outputs: what was taken for each output.
    """
    if data.target == "input":
        return "reconstruction"
    if len(outputs) > 1:
        return "several"
    only = outputs[0]
    if kind_of_loss(only.loss) == "classes":
        if len(only.shape) > 1:
            return "masks" if len(only.shape) > 2 else "sequences"
        return "clips" if data.source in HEARD else "classes"
    if kind_of_loss(only.loss) == "labels":
        return "masks" if len(only.shape) > 2 else "labels"
    return "forecast" if data.source in IN_TIME else "values"
