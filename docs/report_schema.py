"""Makes docs/report.schema.json and compare.schema.json from the types that read these files.

Run: python -m docs.refresh schema
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from shrink.base.measurement import Note
from shrink.contract.comparison import Comparison
from shrink.contract.report import Report

_NAMES = {type(None): "null", bool: "boolean", int: "integer", float: "number"}
_NAMES |= {str: "string", Note: "string"}
_ATTRIBUTE = re.compile(r"^    ([a-z]\w*(?:, \w+)*): (.*(?:\n        .*)*)", re.MULTILINE)


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of report.json.

    Keys that no type knows are allowed: a later version may write them.
    """
    return _document(Report, "shrink report")


def compare_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of compare.json."""
    return _document(Comparison, "shrink comparison")


def compare_schema_text() -> str:
    """Return the schema as the text of docs/compare.schema.json."""
    return json.dumps(compare_schema(), indent=2) + "\n"


def _document(kind: Any, title: str) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    schema = _object(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schema,
        "$defs": dict(sorted(definitions.items())),
    }


def report_schema_text() -> str:
    """Return the schema as the text of docs/report.schema.json."""
    return json.dumps(report_schema(), indent=2) + "\n"


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    kinds, told = typing.get_type_hints(kind), _descriptions(kind)
    properties, required = {}, []
    for one in dataclasses.fields(kind):
        described = {"description": told[one.name]} if one.name in told else {}
        properties[one.name] = {**described, **_schema(kinds[one.name], definitions)}
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
            required.append(one.name)
    found = {"description": inspect.getdoc(kind).partition("\n\n")[0].replace("\n", " ")}  # type: ignore[union-attr]
    found |= {"type": "object", "properties": properties}
    return found | ({"required": required} if required else {})


def _descriptions(kind: Any) -> dict[str, str]:
    """Return what the docstring of a class says of its attributes."""
    text = inspect.getdoc(kind) or ""
    found = {}
    for names, told in _ATTRIBUTE.findall(text.partition("Attributes:")[2]):
        found |= dict.fromkeys(names.split(", "), " ".join(told.split()))
    return found


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in (object, Any):
        return {}
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        found = [_schema(one, definitions) for one in arguments]
        if all(one.keys() == {"type"} for one in found):
            return {"type": [one["type"] for one in found]}
        return {"anyOf": found}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # its place, should it hold itself
        definitions[kind.__name__] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}
