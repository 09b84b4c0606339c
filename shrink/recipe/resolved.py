"""A recipe with everything spelled out: defaults, `extends` merged, paths absolute."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shrink.recipe.plan import Plan, Step
from shrink.recipe.schema import dump_recipe

MODEL_KEYS = ("teacher", "student")
"""Keys of a stage that can name a model."""


def resolved_recipe(plan: Plan) -> dict[str, Any]:
    """Return the recipe as a mapping that runs the same from any folder."""
    value = dump_recipe(plan.recipe)
    reference = plan.steps[0].inputs["model"].reference
    value["model"] = str(reference) if reference else value["model"]
    if plan.custom_objects is not None:
        value["custom_objects"] = str(plan.custom_objects)
    if plan.data_path is not None:
        value["data"]["path"] = str(plan.data_path)
    stage_steps = [step for step in plan.steps if step.config is not None]
    for entry, step in zip(value["stages"], stage_steps, strict=True):
        settings = entry[step.kind]
        _make_absolute(settings, step)
    return value


def resolved_recipe_text(plan: Plan) -> str:
    """Return the resolved recipe as YAML."""
    return recipe_text(resolved_recipe(plan))


def recipe_text(value: Mapping[str, Any]) -> str:
    """Return a recipe's mapping as YAML that the strict reader takes back unchanged."""
    import yaml

    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=100)


def recipe_sha256(plan: Plan) -> str:
    """Return a hash of what the recipe says, the same for every way of writing it.

    Of models and data only the last part of the path counts, so that a resolved recipe, or one in
    another folder, is the same recipe.
    """
    value = resolved_recipe(plan)
    places = [(value, "model"), (value, "custom_objects"), (value["data"], "path")]
    places += [(s, key) for e in value["stages"] for s in e.values() for key in MODEL_KEYS]
    places += [(gate, "against") for gate in value.get("gates", {}).values()]
    for section, key in places:
        if isinstance(section.get(key), str):
            section[key] = Path(section[key]).name
        elif isinstance(section.get(key), list):
            section[key] = [Path(name).name for name in section[key]]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _make_absolute(settings: dict[str, Any], step: Step) -> None:
    """Replace the models that a stage names by where they are; names of stages stay."""
    found = {role: str(s.reference) for role, s in step.inputs.items() if s.reference}
    if isinstance(settings.get("student"), str):
        settings["student"] = found.get("model", settings["student"])
    teachers = settings.get("teacher")
    if isinstance(teachers, str):
        settings["teacher"] = found.get("teacher", teachers)
    elif teachers:
        roles = ("teacher", *(f"teacher-{n}" for n in range(2, len(teachers) + 1)))
        pairs = zip(roles, teachers, strict=True)
        settings["teacher"] = [found.get(role, name) for role, name in pairs]
