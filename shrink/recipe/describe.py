"""The docstrings under the fields of a section, as the descriptions that pydantic knows.

Pydantic could read them whenever a class is made; that costs every command what only the JSON
Schema and the flags have a use for.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

from pydantic import BaseModel

from shrink.base.fields import Config


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
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, Config):
            found |= _own_docstrings(base)
    return found


def _own_docstrings(section: type[BaseModel]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    if not isinstance(definition, ast.ClassDef):
        return {}
    pairs = zip(definition.body, definition.body[1:], strict=False)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _subclasses(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for child in section.__subclasses__():
        yield from _subclasses(child)
        yield child
