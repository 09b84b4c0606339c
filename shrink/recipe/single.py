"""Recipes written for the user: by a verb, or by `shrink init`."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shrink.base import yaml
from shrink.base.cache import RESOLVED_NAME
from shrink.base.errors import RecipeError
from shrink.base.foreign import Json, JsonObject
from shrink.base.metrics import metric_of
from shrink.base.yaml import parse_scalar
from shrink.contract.model_source import Trust
from shrink.contract.result import FirstLook
from shrink.contract.usage import read_usage
from shrink.data.config import NO_DATA, DataConfig
from shrink.model.reference import (
    ModelReference,
    looks_like_model,
    near_path,
    parse_model_reference,
    refuse_idle_trust,
)
from shrink.recipe.data_reference import (
    NAME_DATA,
    NamedData,
    data_of_none,
    only_measures,
    parse_named_data,
    without_targets,
)
from shrink.recipe.load import validate_section
from shrink.recipe.resolution import named_files, recipe_text, stated_task
from shrink.stages import STAGES
from shrink.task.config import TaskConfig

_ROOM = 10
"""A tenth: fine-tuning and other calibration examples move a size by a few percent."""


def first_recipe(
    name: str,
    model: ModelReference,
    named: NamedData,
    look: FirstLook,
    folder: Path,
) -> str:
    """Return the recipe as commented YAML.

    Args:
        name: of the recipe.
        model: the model; a builder is trained first.
        named: the `data` section, its path absolute, and what it says of the task.
        look: what was seen of both.
        folder: where the recipe will lie; paths below it become relative.
    """
    from jinja2 import Environment, FileSystemLoader  # only this command needs it

    section = dict(named.data)
    if isinstance(section.get("path"), str):
        section["path"] = near_path(Path(section["path"]), folder)
    model_name = near_path(model.path, folder) + (f":{model.function}" if model.function else "")
    stated: JsonObject = {} if look.decode is None else {"decode": look.decode}
    stated |= {"metrics": list(look.metrics)} if look.metrics else {}
    task = {"task": {**named.task, **stated}} if named.task or stated else {}
    head = recipe_text({"name": name, "model": model_name, "data": section, **task}).rstrip()
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent))
    environment.filters["with_room"] = lambda size: _rounded_up(size + size // _ROOM)
    template = environment.get_template("first_recipe.yaml.jinja")
    metric = metric_of(look.metric)
    info = None if metric is None else metric.info
    return template.render(look=look, model=model, head=head, kind=_kind(look), metric=info) + "\n"


def _kind(look: FirstLook) -> str:
    """Return what the targets are, in words."""
    if look.kind == "masks":
        count = len(look.class_names)
        return f"a class for each pixel{f', of {count}' if count else ''}"
    if look.kind == "boxes":
        return f"boxes of {len(look.class_names)} classes"
    if look.kind == "forecast":
        return "future values of a time series"
    if look.kind == "reconstruction":
        return "the input itself (an autoencoder)"
    metric = metric_of(look.metric)
    real = metric is not None and metric.info.is_of_real_targets
    other = "real targets" if real else "several labels for each example"
    of_what = {"clips": " of sounds", "texts": " of texts"}.get(look.kind, "")
    classes = f"{look.classes} classes{of_what}"
    return classes if look.classes else other


def _rounded_up(size_bytes: float) -> str:
    """Return a size of two digits as a recipe has it, such as 34KB or 1.2MB; never less."""
    unit, name = (1e6, "MB") if size_bytes >= 1e6 else (1e3, "KB")
    tenths = -(-size_bytes * 10 // unit)
    number = tenths / 10 if size_bytes < 10 * unit else -(-size_bytes // unit)
    return f"{number:g}{name}"


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Sections:
    """What a verb's flags say, by the section of the recipe that they belong to."""

    stage: JsonObject = field(default_factory=dict)
    training: JsonObject = field(default_factory=dict)
    data: JsonObject = field(default_factory=dict)
    task: JsonObject = field(default_factory=dict)
    gates: JsonObject = field(default_factory=dict)

    @classmethod
    def of(cls, kind: str, values: Mapping[tuple[str, ...], Json]) -> Sections:
        """Return the values of a verb by section.

        Args:
            kind: of the stage; `evaluate` has none.
            values: by the path of each key: those of data and task begin with the section's name,
                all others with a key of the stage or of `training`.
        """
        found = cls()
        own = STAGES[kind].model_fields if kind in STAGES else {}
        for (first, *rest), value in values.items():
            keys, target = [first, *rest], found.stage if first in own else found.training
            if first in ("data", "task"):
                keys, target = rest, found.data if first == "data" else found.task
            for key in keys[:-1]:
                target = target.setdefault(key, {})
            target[keys[-1]] = value
        return found


def single_recipe(
    verb: str,
    model: str,
    data: str | NamedData | None,
    stages: list[JsonObject],
    sections: Sections,
    folder: Path,
    custom_objects: Path | None = None,
    named_code: Callable[[Path], Collection[str]] = lambda artifact: (),
) -> JsonObject:
    """Return the recipe, as a mapping, that a verb with its flags stands for.

    Args:
        verb: its name, which begins the recipe's name.
        model: the model as the command line gives it.
        data: the data as the command line gives it, `none` for no data, or what it stands for;
            None where a run folder, or the one that the model's file is in, brings its own, or
            the stages need none.
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
    refuse_idle_trust(Trust(custom_objects), [reference])
    before = _resolved_recipe(reference.path)
    code: object = custom_objects
    if code is None and reference.kind != "tflite":
        code = before.get("custom_objects")
    recipe: JsonObject = {
        "name": f"{verb}-{recipe_name(model)}"[:100],
        "model": str(reference),
    }
    usage = read_usage(reference.path) if reference.trained else None
    recorded = ((usage and usage.data) or {}).get("source")
    if isinstance(data, str) and data != NO_DATA:
        data = parse_named_data(data, folder, recorded)
    named, same = _data(data, before, stages, sections)
    recipe["data"] = without_targets({**named.data, **sections.data}, stages)
    if only_measures(stages) and reference.trained and recipe["data"]["source"] != NO_DATA:
        recipe["data"].setdefault("test_split", 1)
    if task := {**named.task, **sections.task}:
        recipe["task"] = task
    training = sections.training
    if code is not None:
        recipe["custom_objects"] = str(code)
        if before.get("depends") and code == before.get("custom_objects"):
            recipe["depends"] = before["depends"]
    inherited = [] if custom_objects else [("--custom-objects", code)]
    if same:
        inherited += _inherited_code(before, data is None)
    _check_named(inherited, named_code(reference.path))
    if same and "seed" in before.get("training", {}):
        # The same examples are held out again: what the run trained on is not tested on.
        training = {"seed": before["training"]["seed"], **training}
    if training:
        recipe["training"] = training
    if sections.gates:
        recipe["gates"] = sections.gates
    return {**recipe, "stages": stages}


def _inherited_code(before: JsonObject, with_source: bool) -> list[tuple[str, str]]:
    """Return the Python files that a run's `data` and `task` name, each with what names it."""
    data = validate_section(DataConfig, before["data"], RESOLVED_NAME)
    task = validate_section(TaskConfig, before.get("task") or {}, RESOLVED_NAME)
    found = [("--data", str(data.path))] if with_source and data.source == "python" else []
    found += [("data.slices", str(one.file)) for one in data.slices or () if one.file]
    if data.augment is not None and data.augment.file is not None:
        found.append(("data.augment", str(data.augment.file)))
    return [*found, *(("task", file) for file in task.files())]


def _check_named(inherited: Iterable[tuple[str, object]], named: Collection[str]) -> None:
    """Raise `RecipeError` for Python code that only a run folder names, not its user."""
    for flag, file in inherited:
        if file is not None and file not in named:
            # A run folder may be anybody's: that it names a Python file is no reason to run it.
            raise RecipeError(
                f"the run that made this model used Python code, which would run: {file}",
                subject=flag,
                hint=f"name it yourself if you trust it: {flag} {file}"
                if flag.startswith("--")
                else f"if you trust it, run a recipe that names it under {flag}",
            )


def portable(recipe: JsonObject, folder: Path) -> JsonObject:
    """Return a recipe whose paths are relative to a folder where they are near it.

    It can be committed: absolute paths would be those of one machine.

    Args:
        recipe: as `single_recipe` returns it.
        folder: where the recipe will lie.
    """
    value = copy.deepcopy(recipe)

    def near(text: Json) -> Json:
        is_path = isinstance(text, str) and Path(text).is_absolute()
        return near_path(Path(str(text)), folder) if is_path else text

    for section, key in named_files(value):
        if isinstance(named := section.get(key), list):  # several teachers
            section[key] = [near(text) for text in named]
        elif named is not None:
            section[key] = near(named)
    return value


def recipe_name(model: str) -> str:
    """Return the name of a recipe for a model, from the name of its file."""
    return _NOT_IN_NAMES.sub("-", Path(model.partition(":")[0]).stem).strip("-.") or "model"


def student_value(text: str, folder: Path) -> str | JsonObject:
    """Return a student as a recipe has it, from `width=0.5,inherit=true` or a model's name."""
    if "=" not in text or looks_like_model(text):
        return str(parse_model_reference(text, folder))
    scale: JsonObject = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator:
            raise RecipeError(f"--student: {part!r} is not width=F, depth=F or inherit=true")
        scale[key.strip()] = parse_scalar(value, "--student")
    return scale


def _resolved_recipe(artifact: Path) -> JsonObject:
    """Return the recipe of the run that made an artifact; nothing where none is known to."""
    path = artifact.parent.parent / RESOLVED_NAME
    usage = read_usage(artifact) if path.is_file() else None
    value = {} if usage is None else yaml.load(path).value
    if not isinstance(value, dict):
        return {}
    if isinstance(task := value.get("task"), dict) and usage and usage.task is not None:
        # What followed from model and data is found anew: another model may differ.
        value["task"] = stated_task(task, usage.task)
    return value


def _data(
    given: str | NamedData | None,
    before: JsonObject,
    stages: list[JsonObject],
    sections: Sections,
) -> tuple[NamedData, bool]:
    """Return the data and whether they are those of the run that made the model."""
    known, task = (before.get(key) for key in ("data", "task"))
    known, task = (one if isinstance(one, dict) else {} for one in (known, task))
    has_data = known.get("source", NO_DATA) != NO_DATA
    own = given.data if isinstance(given, NamedData) else {}
    if only_measures(stages) and "test_split" not in {*own, *sections.data}:
        # Where the data is still that of the run, its lineage brings the fractions back.
        known = {k: v for k, v in known.items() if k not in ("validation_split", "test_split")}
    elif known.get("test_split") == 1:  # of a run that only evaluated; this one may train
        del known["test_split"]
    if isinstance(given, NamedData):
        if not has_data or not _same_place(known, given.data):
            return given, False
        return NamedData({**known, **given.data}, {**task, **given.task}), True
    if given is None and has_data:
        return NamedData(known, task), True
    about = [*sections.data, *sections.task]
    if stages and not any("epochs" in STAGES[k].model_fields for one in stages for k in one):
        about += sections.training  # the seed of a stage that trains decides more
    if about:
        raise RecipeError(
            f"no data was named, and {', '.join(about)} is about examples",
            subject="--data",
            hint=NAME_DATA,
        )
    return NamedData(data_of_none(stages, bool(sections.gates)), {}), False


def _same_place(one: JsonObject, other: JsonObject) -> bool:
    """Whether two `data` sections name the same source at the same place."""
    places = [section.get("path") for section in (one, other)]
    resolved = [None if place is None else os.path.realpath(place) for place in places]
    return one.get("source") == other.get("source") and resolved[0] == resolved[1]
