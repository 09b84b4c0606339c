"""Descriptions come from the docstrings under fields, and reach the schema."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shrink.base import yaml
from shrink.base.errors import RecipeError
from shrink.recipe.bundle import bundled_recipes, bundled_root
from shrink.recipe.load import load_recipe, recipe_from_mapping
from shrink.recipe.resolution import recipe_text
from shrink.recipe.schema import (
    dump_recipe,
    recipe_json_schema,
    recipe_json_schema_text,
)


def test_every_key_of_the_schema_is_described() -> None:
    schema = recipe_json_schema()

    def undescribed(section: dict[str, Any], name: str) -> list[str]:
        properties = section.get("properties", {})
        return [f"{name}.{key}" for key, value in properties.items() if not described(value)]

    def described(value: dict[str, Any]) -> bool:
        return "description" in value or "$ref" in value

    sections = {k: v for k, v in schema["$defs"].items() if not k.startswith("Gate")}
    missing = [key for name, section in sections.items() for key in undescribed(section, name)]
    # `x * scale + offset` says what the two are.
    assert [key for key in missing if not key.startswith("NormalizeConfig")] == []


MINIMAL: dict[str, Any] = {
    "name": "r",
    "model": "m.keras",
    "data": {"source": "digits"},
    "stages": [{"quantize": {}}],
}


def test_schema_file_is_current() -> None:
    written = (bundled_root() / "recipes" / "recipe.schema.json").read_text(encoding="utf-8")
    assert written == recipe_json_schema_text()


@functools.cache
def the_validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(recipe_json_schema())


def test_schema_is_valid_and_accepts_bundled_recipes() -> None:
    validator = the_validator()
    validator.check_schema(recipe_json_schema())
    assert bundled_recipes()
    for recipe in bundled_recipes():
        validator.validate(yaml.load(recipe.path).value)


@pytest.mark.parametrize(
    "change",
    [
        {"nane": "r"},
        {"stages": [{"quantise": {}}]},
        {"stages": [{"quantize": {"scheme": "int9"}}]},
        {"stages": [{"train": {"epochs": 0}}]},
        {"gates": {"accuracy_dorp": 0.1}},
        {"training": {"global_batch_size": "64"}},
        {"training": {"memory_limit": "2gb"}},
        {"data": {"source": "nowhere"}},
    ],
)
def test_schema_and_reader_refuse_the_same(change: dict[str, Any]) -> None:
    value = {**MINIMAL, **change}
    with pytest.raises(jsonschema.ValidationError):
        the_validator().validate(value)
    with pytest.raises(RecipeError):
        recipe_from_mapping(value, "test")


def test_dump_recipe_loads_again_unchanged(tmp_path: Path) -> None:
    for bundled in bundled_recipes():
        loaded = load_recipe(bundled.path)
        copy = tmp_path / bundled.path.name
        copy.write_text(recipe_text(dump_recipe(loaded.recipe)), encoding="utf-8")
        assert load_recipe(copy).recipe == loaded.recipe
