"""The recipe that a single verb stands for."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shrink.base.errors import RecipeError
from shrink.base.yaml import reader as yaml
from shrink.base.yaml.reader import parse_scalar
from shrink.data.config import NO_DATA
from shrink.model.reference import looks_like_model, near_path, parse_model_reference, report_of
from shrink.recipe.data_reference import NamedData, parse_named_data
from shrink.recipe.examples import data_of_none
from shrink.recipe.resolved import MODEL_KEYS
from shrink.recipe.taken import stated_task

RESOLVED_NAME = "recipe.resolved.yaml"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Sections:
    """What a verb's flags say, by the section of the recipe that they belong to."""

    stage: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)


def single_recipe(
    verb: str,
    model: str,
    data: str | None,
    stages: list[dict[str, Any]],
    sections: Sections,
    folder: Path,
    custom_objects: Path | None = None,
    named_code: Callable[[Path], Collection[str]] = lambda artifact: (),
) -> dict[str, Any]:
    """Return the recipe, as a mapping, that a verb with its flags stands for.

    Args:
        verb: its name, which begins the recipe's name.
        model: the model as the command line gives it.
        data: the data as the command line gives it, `none` for no data; None where a run folder,
            or the one that the model's file is in, brings its own, or the stages need none.
        stages: the stages; none to evaluate only.
        sections: what the flags say.
        folder: the folder that relative paths start from.
        custom_objects: the Python file that the command line names.
        named_code: returns the Python files that the user named for the run that made an artifact.

    Raises:
        RecipeError: no data is named, and a stage needs examples; or the run folder names Python
            code that nobody named on this machine.
    """
    reference = parse_model_reference(model, folder)
    before = _resolved_recipe(reference.path)
    code = custom_objects or before.get("custom_objects")
    recipe: dict[str, Any] = {
        "name": f"{verb}-{recipe_name(model)}"[:100],
        "model": str(reference),
    }
    named = _data(data, before, stages, sections, folder)
    recipe["data"] = {**named.data, **sections.data}
    if task := {**named.task, **sections.task}:
        recipe["task"] = task
    training = sections.training
    if code is not None:
        recipe["custom_objects"] = str(code)
    inherited = {} if custom_objects else {"--custom-objects": code}
    if data is None and recipe["data"].get("source") == "python":
        inherited["--data"] = recipe["data"].get("path")
    for flag, file in inherited.items():
        if file is not None and file not in named_code(reference.path):
            # A run folder may be anybody's: that it names a Python file is no reason to run it.
            raise RecipeError(
                f"the run that made this model used Python code, which would run: {file}",
                subject=flag,
                hint=f"name it yourself if you trust it: {flag} {file}",
            )
    if data is None and "seed" in before.get("training", {}):
        # The same examples are held out again: what the run trained on is not tested on.
        training = {"seed": before["training"]["seed"], **training}
    if training:
        recipe["training"] = training
    return {**recipe, "stages": stages}


def portable(recipe: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a recipe whose paths are relative to a folder where they are near it.

    It can be committed: absolute paths would be those of one machine.

    Args:
        recipe: as `single_recipe` returns it.
        folder: where the recipe will lie.
    """
    value = copy.deepcopy(recipe)
    places = [(value, "model"), (value, "custom_objects"), (value["data"], "path")]
    places += [(s, key) for e in value["stages"] for s in e.values() for key in MODEL_KEYS]
    for section, key in places:
        text = section.get(key)
        if isinstance(text, str) and Path(text).is_absolute():
            section[key] = near_path(Path(text), folder)
    return value


def recipe_name(model: str) -> str:
    """Return the name of a recipe for a model, from the name of its file."""
    return _NOT_IN_NAMES.sub("-", Path(model.partition(":")[0]).stem).strip("-.") or "model"


def student_value(text: str, folder: Path) -> str | dict[str, Any]:
    """Return a student as a recipe has it, from `width=0.5,inherit=true` or a model's name."""
    if "=" not in text or looks_like_model(text):
        return str(parse_model_reference(text, folder))
    scale: dict[str, Any] = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator:
            raise RecipeError(f"--student: {part!r} is not width=F, depth=F or inherit=true")
        scale[key.strip()] = parse_scalar(value)
    return scale


def _resolved_recipe(artifact: Path) -> dict[str, Any]:
    """Return the recipe of the run that made an artifact; nothing where none is known to."""
    path = artifact.parent.parent / RESOLVED_NAME
    known = report_of(artifact) if path.is_file() else None
    value = yaml.load(path).value if known else {}
    if not isinstance(value, dict):
        return {}
    task, told = value.get("task"), known[1].told.task if known else None
    if isinstance(task, dict) and told is not None:
        # What was taken from model and data is found out anew: another model may be another.
        value["task"] = stated_task(task, told)
    return value


def _data(
    text: str | None,
    before: dict[str, Any],
    stages: list[dict[str, Any]],
    sections: Sections,
    folder: Path,
) -> NamedData:
    if text is not None and text != NO_DATA:
        return parse_named_data(text, folder)
    known = before.get("data")
    if text is None and isinstance(known, dict) and known.get("source") != NO_DATA:
        task = before.get("task")
        return NamedData(dict(known), dict(task) if isinstance(task, dict) else {})
    if sections.data:
        raise RecipeError(
            f"no data was named, and {', '.join(sections.data)} is about examples",
            subject="--data",
            hint="add --data with a source, a path or a YAML file, for example --data digits",
        )
    return NamedData(data_of_none(stages), {})
