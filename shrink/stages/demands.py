"""What a run's steps need of its examples, looked at before the first of them begins."""

from __future__ import annotations

from collections.abc import Iterable

from shrink.base.errors import DataError
from shrink.contract.job import Demand
from shrink.data.dataset import Dataset
from shrink.engine.class_weights import class_weights_of
from shrink.task.task import Task


def check_demands(demands: Iterable[Demand], dataset: Dataset, task: Task) -> None:
    """Raise what a step would be refused for once it begins, after the training of others.

    Args:
        demands: of this step and the later ones, from `shrink.run.demands`.
        dataset: the examples of all of them.
        task: on these.

    Raises:
        DataError: there are no classes to measure an accuracy of, or to weigh.
        RecipeError: there is no class of a name that is to be weighted.
    """
    for demand in demands:
        if demand.classes and not task.has_accuracy:
            several = " of several labels at once" if "binary_crossentropy" in task.losses else ""
            raise DataError(
                f"accuracy_drop needs classes, and the loss is "
                f"{' and '.join(dict.fromkeys(task.losses))}{several}",
                subject=demand.stage,
                hint="give file_bytes instead",
            )
        if demand.class_weights is not None:
            class_weights_of(demand.class_weights, dataset)
