"""Checks of examples and task for later stages and gates, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shrink.base.errors import DataError, ModelError, RecipeError, hint_for, listed
from shrink.base.figures import LOSS, target_of
from shrink.base.losses import kind_of_loss
from shrink.base.metrics import metric_of
from shrink.contract.codec import to_plain
from shrink.contract.details import Usage
from shrink.contract.job import Demand
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.slices import Slicing
from shrink.engine.class_weights import class_weights_of
from shrink.task.interface import front_end_of
from shrink.task.task import Task

_MOST_NAMES = 10


def check_demands(
    demands: Iterable[Demand], dataset: Dataset, task: Task, data: DataConfig
) -> None:
    """Raise the errors of later stages before earlier ones are trained.

    Args:
        demands: of this step and the later ones, from `shrink.run.steps`.
        dataset: the examples of all of them.
        task: on these.
        data: the `data` section.

    Raises:
        ModelError: see `check_record`.
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
        for role, usage in demand.records.items():
            check_record(role, usage, dataset, data)


def check_record(role: str, usage: Usage, dataset: Dataset, data: DataConfig) -> None:
    """Raise `ModelError` where a teacher or student takes other inputs or has other classes.

    Args:
        role: of the step's input; `model` is the student.
        usage: its record.
        dataset: the examples.
        data: the `data` section.
    """
    if usage.data is None:
        return
    name = "student" if role == "model" else "teacher"
    own, recorded = to_plain(front_end_of(dataset, data)), to_plain(usage.front_end)
    if own != recorded:
        if isinstance(own, dict) and isinstance(recorded, dict):
            differing = [key for key in recorded if own.get(key) != recorded[key]]
            what = f"was made with other {', '.join(differing)}"
        else:
            what = "was made for inputs of another kind"
        raise ModelError(
            f"the {name} {what} than data.{'tokens' if usage.vocabulary else 'audio'} gives, so it "
            "would not understand these inputs",
            subject=f"distill.{name}",
            hint=f"give the data the vocabulary of the {name}: data.tokens.vocabulary"
            if usage.vocabulary
            else f"name a {name} of this kind of data, or train one",
        )
    names, labels = dataset.class_names, usage.labels or ()
    if not names or not labels or labels[: len(names)] == names or len(usage.outputs or ()) > 1:
        return
    if all(map(str.isdigit, names)) or all(map(str.isdigit, labels)):
        return  # one of them has class numbers for names
    missing = [each for each in names if each not in labels]
    renamed = len(names) == len(labels) and missing  # a student may learn other classes
    if missing if name == "teacher" else not renamed:
        raise ModelError(
            f"the {name} tells {listed(labels, _MOST_NAMES)} apart, and the data has "
            f"{listed(missing or names, _MOST_NAMES)}",
            subject=f"distill.{name}",
            hint=f"name a {name} of these classes"
            + ("" if name == "teacher" else " in this order, or set data.classes to its order"),
        )


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
