"""What later stages and gates ask of examples and task, looked at before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shrink.base.errors import DataError, RecipeError, hint_for
from shrink.base.figures import LOSS, target_of
from shrink.base.losses import kind_of_loss
from shrink.base.metrics import metric_of
from shrink.contract.job import Demand
from shrink.data.dataset import Dataset
from shrink.data.slices import Slicing
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
        if target is None or target.kind == "slice" or target.figure.group != "metrics":
            continue
        name, measured = target.figure.name, (*task.metrics, LOSS)
        if name not in measured:
            raise RecipeError(
                f"gate {gate}: no stage measures {name}; without task.metrics these are "
                f"{', '.join(measured)}",
                subject="gates",
                hint=f"name it: task: {{metrics: [{', '.join((*task.metrics, name))}]}}",
            )


def check_normal(metrics: Iterable[str], slicings: Callable[[], Sequence[Slicing]]) -> None:
    """Raise `RecipeError` where the slice of the normal examples is in no slicing, or in two.

    Args:
        metrics: keys.
        slicings: gives those of the test examples, where a metric asks for them.
    """
    for key in metrics:
        metric = metric_of(key)
        normal = None if metric is None else metric.arguments.get("normal")
        if normal is None:
            continue
        found = [one.by for one in slicings() if str(normal) in one.names]
        if not found:
            names = [name for one in slicings() for name in one.names]
            raise RecipeError(
                f"metric {key}: no test example is in a slice {str(normal)!r}",
                subject="task.metrics",
                hint=hint_for(str(normal), names),
            )
        if len(found) > 1:
            raise RecipeError(
                f"metric {key}: there is a slice {str(normal)!r} of {' and of '.join(found)}, so "
                "which examples are normal is not clear",
                subject="task.metrics",
                hint="leave one of them out of data.slices, or give its slices other names",
            )
