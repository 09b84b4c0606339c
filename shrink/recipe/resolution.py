"""The resolved recipe: defaults, `extends`, paths and the task spelled out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shrink.base import files
from shrink.base.foreign import Json, JsonObject
from shrink.base.losses import DETECTION
from shrink.contract.details import Task
from shrink.recipe.plan import Plan, Step
from shrink.recipe.schema import dump_recipe
from shrink.task.config import TaskConfig


def with_taken_task(plan: Plan, tasks: Sequence[Task]) -> Plan:
    """Return a plan whose recipe names loss, weights, logits and metrics as they were taken.

    A key stays open where stages took different things for it, such as a student that ends in
    logits and its teacher that does not: each of them follows from its own model.

    Args:
        plan: that was run.
        tasks: by the stages that finished.
    """
    section = plan.recipe.task.model_dump()
    for key, stated in section.items():
        values = [_taken(one, key) for one in tasks]
        taken = values[0] if values and all(value == values[0] for value in values) else None
        if stated is None:
            section[key] = taken
        elif isinstance(stated, dict) and isinstance(taken, dict) and stated.keys() <= taken.keys():
            section[key] = {**taken, **stated}
    taken_task = TaskConfig.model_validate(section)
    return replace(plan, recipe=plan.recipe.model_copy(update={"task": taken_task}))


def stated_task(task: Mapping[str, Json], taken: Task) -> JsonObject:
    """Return those keys of a resolved recipe's task that the recipe itself stated.

    Args:
        task: of the resolved recipe.
        taken: by the stage that a run goes on from.
    """
    by = {
        "loss": {output.loss_by for output in taken.outputs},
        "from_logits": {output.from_logits_by for output in taken.outputs},
        "metrics": {taken.metrics_by},
    }
    by["loss_weights"] = by["loss"]
    return {key: value for key, value in task.items() if "recipe" in by.get(key, {"recipe"})}


def _taken(task: Task, key: str) -> object:
    """Return what a stage took for a key of `task`, by name of several outputs; None: nothing."""
    outputs = task.outputs
    if key == "metrics":
        return list(task.metrics or ()) or None
    if key == "loss_weights":
        pairs = zip(outputs, task.loss_weights, strict=True)
        return {output.name: weight for output, weight in pairs if weight != 1} or None
    if key not in ("loss", "from_logits"):
        return None
    if key == "loss" and any(output.loss == DETECTION for output in outputs):
        return None  # `task.decode` says it
    values = {output.name: getattr(output, key) for output in outputs}
    if len(outputs) == 1:
        return values[outputs[0].name]
    return {name: value for name, value in values.items() if value is not None} or None


_MODEL_KEYS = ("teacher", "student")
"""Keys of a stage that can name a model."""


def resolved_recipe(plan: Plan) -> JsonObject:
    """Return the recipe as a mapping that runs the same from any folder."""
    value = dump_recipe(plan.recipe)
    reference = plan.steps[0].inputs["model"].reference
    value["model"] = str(reference) if reference else value["model"]
    stage_steps = [step for step in plan.steps if step.config is not None]
    for entry, step in zip(value["stages"], stage_steps, strict=True):
        settings = entry[step.kind]
        _make_absolute(settings, step)
    return value


def named_files(recipe: JsonObject) -> list[tuple[JsonObject, str]]:
    """Return the sections of a recipe that may name files a run reads, each with the key."""
    stages = (settings for entry in recipe["stages"] for settings in entry.values())
    own = [(recipe, "model"), (recipe, "custom_objects"), (recipe, "depends")]
    own += [(recipe["data"], "path")]
    slices = recipe["data"].get("slices") or ()
    own += [(one, "function") for one in slices if isinstance(one, dict)]
    own += [(recipe["data"].get("tokens") or {}, "vocabulary")]
    own += [(recipe["data"].get("augment") or {}, "function")]
    return [*own, *((settings, key) for settings in stages for key in _MODEL_KEYS)]


def resolved_recipe_text(plan: Plan) -> str:
    """Return the resolved recipe as YAML."""
    return recipe_text(resolved_recipe(plan))


def recipe_text(value: Mapping[str, Json]) -> str:
    """Return a recipe's mapping as YAML that the strict reader takes back unchanged."""
    import yaml

    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=100)


def recipe_sha256(plan: Plan) -> str:
    """Return a hash of what the recipe says, the same for every way of writing it.

    Of models and data only the last part of the path counts, so that a resolved recipe, or one in
    another folder, is the same recipe.
    """
    value = resolved_recipe(plan)
    task = plan.recipe.task.with_files(lambda file: Path(file).name)
    named = {"loss": task.loss, "metrics": task.metrics and list(task.metrics)}
    value["task"] |= {key: one for key, one in named.items() if one is not None}
    compared = [(gate, "against") for gate in value.get("gates", {}).values()]
    for section, key in [*named_files(value), *compared]:
        if isinstance(section.get(key), str):
            section[key] = Path(section[key]).name
        elif isinstance(section.get(key), list):
            section[key] = [Path(name).name for name in section[key]]
    return files.json_sha256(value)


def _make_absolute(settings: JsonObject, step: Step) -> None:
    """Replace the models that a stage names by where they are; names of stages stay."""
    references = {role: str(s.reference) for role, s in step.inputs.items() if s.reference}
    if isinstance(settings.get("student"), str):
        settings["student"] = references.get("model", settings["student"])
    teachers = settings.get("teacher")
    if isinstance(teachers, str):
        settings["teacher"] = references.get("teacher", teachers)
    elif teachers:
        roles = ("teacher", *(f"teacher-{n}" for n in range(2, len(teachers) + 1)))
        pairs = zip(roles, teachers, strict=True)
        settings["teacher"] = [references.get(role, name) for role, name in pairs]
