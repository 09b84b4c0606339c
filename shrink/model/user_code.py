"""Python files that the recipe or the command names: functions that build, and custom objects."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shrink.base.errors import ModelError
from shrink.model.trust import declared_objects
from shrink.model.user_modules import import_hint, remembering_imports


@functools.cache
def imported(path: Path) -> Any:
    """Return the module of a Python file, whose code runs here, once in a process.

    A second run would register its custom objects again, which Keras refuses.

    Raises:
        ModelError: no Python file, or it cannot be imported.
    """
    spec = importlib.util.spec_from_file_location(f"shrink_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ModelError("not a Python file", subject=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with remembering_imports(path, module):
            spec.loader.exec_module(module)
    except Exception as error:
        text = str(error).strip().splitlines()[:1]
        raise ModelError(
            f"this file cannot be imported: {type(error).__name__}: {''.join(text)[:300]}",
            subject=path,
            hint=import_hint(error, path),
        ) from error
    return module


def function_of(path: Path, name: str) -> Callable[..., Any]:
    """Return a function of a Python file.

    Raises:
        ModelError: there is none of that name.
    """
    module = imported(path)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None or not callable(function):
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ModelError(
            f"it has no function {name!r}; there are {', '.join(public) or 'none'}", subject=path
        )
    named = function

    @functools.wraps(named)
    def remembered(*arguments: Any, **named_arguments: Any) -> Any:
        with remembering_imports(path, module):  # it may import more than its module did
            return named(*arguments, **named_arguments)

    return remembered


def custom_objects(path: Path | None) -> dict[str, Any]:
    """Return the classes and functions of a file by every name that Keras may ask for.

    Every name that the scan let pass is among them, so that Keras looks nowhere else.

    Raises:
        ModelError: the file cannot be imported, or a name has gone when it has run.
    """
    if path is None:
        return {}
    module, found = imported(path), {}
    for stored, name in declared_objects(path).items():
        found[stored] = getattr(module, name, None)
        if not callable(found[stored]):
            raise ModelError(f"{name} is not there once the file has run", subject=path)
    return found
