"""Kinds of tasks, inferred from data and model outputs, with their default metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shrink.base.losses import DETECTION, kind_of_loss
from shrink.contract.result import TaskKind
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.slices import slicings_of
from shrink.task.task import OutputTask

PROPOSED: Mapping[TaskKind, tuple[str, ...]] = {
    "masks": ("mean_iou", "pixel_accuracy"),
    "clips": ("balanced_accuracy", "accuracy"),
    "texts": ("accuracy", "f1_macro"),
    "forecast": ("rmse", "mae", "r2"),
    "boxes": ("map", "map_50"),
}
"""Metrics of a first recipe, the main one first; other kinds have those of their loss."""


def proposed_metrics(kind: TaskKind, data: DataConfig, dataset: Dataset) -> tuple[str, ...]:
    """Return the metrics of a first recipe; none where those of the loss will do.

    Of an autoencoder it is the ranking of anomalies, where a slicing tells them: where all training
    examples are in one slice, and test examples in others too.
    """
    if kind != "reconstruction":
        return PROPOSED.get(kind, ())
    trained, tested = (slicings_of(dataset, split, data) for split in ("train", "test"))
    for train, test in zip(trained, tested, strict=True):
        if len(train.names) == 1 and set(train.names) < set(test.names):
            return (f"anomaly_roc_auc_{train.names[0]}", "mean_squared_error")
    return ()


def kind_of_task(data: DataConfig, outputs: Sequence[OutputTask]) -> TaskKind:
    """Return what kind of task it is.

    Args:
        data: the `data` section.
        outputs: what was taken for each output.
    """
    if data.target == "input":
        return "reconstruction"
    if outputs[0].loss == DETECTION:
        return "boxes"
    if len(outputs) > 1:
        return "several"
    only = outputs[0]
    if kind_of_loss(only.loss) == "classes":
        if len(only.shape) > 1:
            return "masks" if len(only.shape) > 2 else "sequences"
        if data.source == "text":
            return "texts"
        return "clips" if data.clips else "classes"
    if kind_of_loss(only.loss) == "labels":
        return "masks" if len(only.shape) > 2 else "labels"
    return "forecast" if data.source == "series" else "values"
