"""What later stages and gates ask of examples and task, looked at before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable

from shrink.base.errors import DataError, RecipeError
from shrink.base.figures import LOSS, target_of
from shrink.base.losses import kind_of_loss
from shrink.contract.job import Demand
from shrink.data.dataset import Dataset
from shrink.engine.class_weights import class_weights_of
from shrink.task.task import Task


def check_demands(demands: Iterable[Demand], dataset: Dataset, task: Task) -> None:
    """Raise what a step would be refused for once it begins, after the training of others.

    Args:
        demands: of this step and the later ones, from `shrink.run.steps`.
        dataset: the examples of all of them.
        task: on these.

    Raises:
        DataError: there are no classes to measure an accuracy of, or to weigh.
        RecipeError: there is no class of a name that is to be weighted.
    """
    for demand in demands:
        if demand.classes and not task.has_accuracy:
            kinds = map(kind_of_loss, task.losses)
            several = " of several labels at once" if "labels" in kinds else ""
            raise DataError(
                f"accuracy_drop needs classes, and the loss is "
                f"{' and '.join(dict.fromkeys(task.losses))}{several}",
                subject=demand.stage,
                hint="give metric_drop or file_bytes instead",
            )
        if demand.class_weights is not None:
            class_weights_of(demand.class_weights, dataset)


def check_gated(gates: Iterable[str], task: Task) -> None:
    """Raise `RecipeError` where a gate looks at a metric that is not among the task's own."""
    for gate in gates:
        target = target_of(gate)
        if target is None or target.figure.group != "metrics":
            continue
        name, measured = target.figure.name, (*task.metrics, LOSS)
        if name not in measured:
            raise RecipeError(
                f"gate {gate}: no stage measures {name}; without task.metrics these are "
                f"{', '.join(measured)}",
                subject="gates",
                hint=f"name it: task: {{metrics: [{', '.join((*task.metrics, name))}]}}",
            )
