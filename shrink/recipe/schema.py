"""The JSON Schema of recipes and the words of its keys.

Pydantic could read them whenever a class is made; that costs every command what only the JSON
Schema and the flags have a use for.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, Field, SerializeAsAny

from shrink.base.fields import Config
from shrink.base.foreign import Json, JsonObject
from shrink.data.config import DataConfig, Names
from shrink.engine.config import TrainingConfig
from shrink.recipe.search_config import SearchConfig
from shrink.report.config import Gate, gates_json_schema
from shrink.stages import STAGES
from shrink.stages.base import StageConfig
from shrink.task.config import TaskConfig

ValidName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"


class Recipe(Config):
    """A model, its data, the stages to run and the limits of the result."""

    name: ValidName
    """Name of the recipe; its run folder is `runs/<name>` by default."""
    model: str
    """A `.keras` or `.h5` file, a SavedModel, a run folder, or `file.py:function`."""
    custom_objects: Annotated[str, Field(pattern=r"\.py$")] | None = None
    """A Python file whose classes and functions the model files name; its code runs."""
    depends: Names | None = None
    """More files and folders that the recipe's Python code reads (relative to the recipe), and
    environment variables as $NAME. If they change, the stages are computed again. Files read by
    Python's `open` are tracked automatically."""
    data: DataConfig
    """The examples."""
    task: TaskConfig = TaskConfig()
    """Loss and metrics."""
    training: TrainingConfig = TrainingConfig()
    """How every training stage trains."""
    stages: tuple[SerializeAsAny[StageConfig], ...] = ()
    """The stages in order."""
    gates: dict[str, Gate] = Field(default_factory=dict)
    """Limits that the result must keep; a missed one is exit code 1."""


def dump_recipe(recipe: Recipe) -> JsonObject:
    """Return the recipe as the mapping that a recipe file would hold, defaults spelled out."""
    value = recipe.model_dump(mode="json", exclude={"stages"}, by_alias=True)
    value["stages"] = [
        {stage.kind: stage.model_dump(mode="json", by_alias=True, exclude_none=True)}
        for stage in recipe.stages
    ]
    order = ("name", "model", "custom_objects", "depends", "data", "task", "training", "stages")
    return {key: _without_none(value[key]) for key in (*order, "gates") if value[key] is not None}


def recipe_json_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of a recipe file, for editors."""
    describe_fields()
    definitions: JsonObject = {}
    stages = {kind: _stage_schema(config, definitions) for kind, config in STAGES.items()}
    schema = Recipe.model_json_schema(ref_template="#/$defs/{model}")
    definitions.update(schema.pop("$defs", {}))
    for unused in ("Gate", "StageConfig"):
        definitions.pop(unused, None)
    schema["properties"]["stages"] = {
        "description": "The stages in order.",
        "type": "array",
        "items": {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
            "properties": stages,
        },
    }
    gates = gates_json_schema()
    definitions.update(gates.pop("$defs"))
    schema["properties"]["gates"] = gates
    schema["properties"]["extends"] = {
        "description": "Another recipe; its keys apply unless this recipe sets them.",
        "type": "string",
    }
    search = SearchConfig.model_json_schema(ref_template="#/$defs/{model}")
    definitions.update(search.pop("$defs", {}))
    definitions["SearchConfig"] = search
    about = "What `shrink search` varies and optimises, and within which limits."
    schema["properties"]["search"] = {"$ref": "#/$defs/SearchConfig", "description": about}
    schema["properties"] |= _SWEEPING
    # With `extends`, any of the required keys may come from the other recipe.
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["extends"]}]
    return {
        "$schema": SCHEMA_ID,
        "title": "shrink recipe",
        **{key: value for key, value in schema.items() if key != "title"},
        "$defs": definitions,
    }


_SWEEPING: JsonObject = {
    "matrix": {
        "description": "Keys with lists of values: a run for every combination.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "array", "minItems": 1},
    },
    "repeat": {
        "description": "Runs of each combination, with the seeds from `training.seed` upwards.",
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
    },
}
"""Keys that make several runs of a recipe; see `shrink.recipe.matrix`."""


def recipe_json_schema_text() -> str:
    """Return the JSON Schema as the text of recipes/recipe.schema.json."""
    return json.dumps(recipe_json_schema(), indent=2) + "\n"


def _stage_schema(config: type[StageConfig], definitions: JsonObject) -> JsonObject:
    schema = config.model_json_schema(ref_template="#/$defs/{model}")
    definitions.update(schema.pop("$defs", {}))
    definitions[config.__name__] = schema
    return {"anyOf": [{"$ref": f"#/$defs/{config.__name__}"}, {"type": "null"}]}


def _without_none(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def describe_fields() -> None:
    """Give every field of every section that was imported its docstring as description."""
    sections = list(dict.fromkeys(_subclasses(Config)))
    for section in sections:
        descriptions = field_docstrings(section)
        for name, field in section.model_fields.items():
            field.description = descriptions.get(name, field.description)
    for _ in range(2):  # a section copies what the sections inside it were built as before
        for section in sections:
            section.model_rebuild(force=True)


def field_docstrings(section: type[BaseModel]) -> dict[str, str]:
    """Return the docstring under each field, of the class and of those that it derives from."""
    docstrings: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, Config):
            docstrings |= _docstrings(base.__module__).get(base.__name__, {})
    return docstrings


@functools.cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstring under each field of each top-level class of a module."""
    classes = ast.parse(inspect.getsource(sys.modules[module])).body
    return {
        definition.name: {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in itertools.pairwise(definition.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for definition in classes
        if isinstance(definition, ast.ClassDef)
    }


def _subclasses(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for child in section.__subclasses__():
        yield from _subclasses(child)
        yield child
