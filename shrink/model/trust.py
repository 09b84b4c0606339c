"""The custom objects that a user vouches for, read from their Python file without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shrink.base.errors import ModelError
from shrink.contract.model_source import Trust

_REGISTER = "register_keras_serializable"
_DEFAULT_PACKAGE = "Custom"


def trusted_names(trust: Trust) -> frozenset[str]:
    """Return the names under which a model file may ask for the custom objects."""
    path = trust.custom_objects
    return frozenset(() if path is None else declared_objects(path))


def declared_objects(path: Path) -> dict[str, str]:
    """Return the top-level classes and functions of a Python file, which is read and not run.

    Returns:
        The name in the file, by each name under which Keras may store it: that name itself,
        and `package>name` where it is registered with `register_keras_serializable`.

    Raises:
        ModelError: the file is missing, or is no Python.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except OSError as error:
        raise ModelError(
            f"the file of custom_objects cannot be read: {error.strerror}", subject=path
        ) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(
            f"the file of custom_objects is no Python: {str(error)[:200]}", subject=path
        ) from error
    found: dict[str, str] = {}
    for item in tree.body:
        if isinstance(item, ast.ClassDef | ast.FunctionDef) and not item.name.startswith("_"):
            found[item.name] = item.name
            found |= dict.fromkeys(_registered(item), item.name)
    return found


def _registered(item: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
    """Yield the `package>name` that each decorator gives an object."""
    for decorator in item.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        called = decorator.func
        if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) != (
            _REGISTER
        ):
            continue
        given: dict[str | None, Any] = dict(zip(("package", "name"), decorator.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in decorator.keywords}
        package = _text(given.get("package"), _DEFAULT_PACKAGE)
        yield f"{package}>{_text(given.get('name'), item.name)}"


def _text(node: ast.expr | None, default: str) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else default
