"""Descriptions come from the docstrings under fields, and reach the schema."""

from __future__ import annotations

from typing import Any

from shrink.recipe.schema import field_docstrings, recipe_json_schema
from shrink.stages.distill.config import DistillConfig


def test_field_docstrings_holds_inherited_fields_too() -> None:
    found = field_docstrings(DistillConfig)
    assert found["temperature"].startswith("T, by which both models' logits are divided")
    assert found["from_"].startswith("The earlier stage to start from")


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
