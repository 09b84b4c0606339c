"""What a run took for its task where the recipe left it open; so the resolved recipe says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shrink.contract.details import Task
from shrink.recipe.plan import Plan
from shrink.task.config import TaskConfig


def with_taken_task(plan: Plan, told: Sequence[Task]) -> Plan:
    """Return a plan whose recipe names loss, weights, logits and metrics as they were taken.

    A key stays open where stages took different things for it, such as a student that ends in
    logits and its teacher that does not: each of them follows from its own model.

    Args:
        plan: that was run.
        told: by the stages that finished.
    """
    found = plan.recipe.task.model_dump()
    for key, stated in found.items():
        values = [_taken(one, key) for one in told]
        taken = values[0] if values and all(value == values[0] for value in values) else None
        if stated is None:
            found[key] = taken
        elif isinstance(stated, dict) and isinstance(taken, dict) and stated.keys() <= taken.keys():
            found[key] = {**taken, **stated}
    taken_task = TaskConfig.model_validate(found)
    return replace(plan, recipe=plan.recipe.model_copy(update={"task": taken_task}))


def stated_task(task: Mapping[str, Any], told: Task) -> dict[str, Any]:
    """Return those keys of a resolved recipe's task that the recipe itself stated.

    Args:
        task: of the resolved recipe.
        told: by the stage that a run goes on from.
    """
    by = {
        "loss": {output.loss_by for output in told.outputs},
        "from_logits": {output.from_logits_by for output in told.outputs},
        "metrics": {told.metrics_by},
    }
    by["loss_weights"] = by["loss"]
    return {key: value for key, value in task.items() if "recipe" in by.get(key, {"recipe"})}


def _taken(told: Task, key: str) -> Any:
    """Return what a stage took for a key of `task`, by name of several outputs; None: nothing."""
    outputs = told.outputs
    if key == "metrics":
        return list(told.metrics or ()) or None
    if key == "loss_weights":
        pairs = zip(outputs, told.loss_weights, strict=True)
        return {output.name: weight for output, weight in pairs if weight != 1} or None
    if key not in ("loss", "from_logits"):
        return None
    values = {output.name: getattr(output, key) for output in outputs}
    if len(outputs) == 1:
        return values[outputs[0].name]
    return {name: value for name, value in values.items() if value is not None} or None
