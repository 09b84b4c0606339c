"""User Python files: imported and called only where a recipe or a command names them."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from shrink.base.errors import ModelError, ShrinkError, StageError, first_line
from shrink.contract.model_source import Trust
from shrink.model.user_reads import RECORDER, module_name

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras as keras

CustomObject: TypeAlias = "type[keras.layers.Layer] | Callable[..., tf.Tensor]"
"""A class or a function of a user's, by whose name a model file asks for it."""


def import_hint(error: Exception, entry: Path) -> str | None:
    """Return how a module beside a file that is run can be found; None for any other error."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    folder = entry.resolve().parent
    beside = (folder / name).is_dir() or (folder / f"{name}.py").is_file()
    if not isinstance(error, ModuleNotFoundError) or not name or not beside:
        return None
    return f"the file's own folder is not searched: PYTHONPATH={folder} shrink ..."


@functools.cache
def imported(path: Path) -> ModuleType:
    """Return the module of a Python file, whose code runs here, once in a process.

    A second run would register its custom objects again, which Keras refuses.

    Raises:
        ModelError: no Python file, or it cannot be imported.
    """
    spec = importlib.util.spec_from_file_location(module_name(path), path)
    if spec is None or spec.loader is None:
        raise ModelError("not a Python file", subject=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with RECORDER.running(path):
            spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(
            f"this file cannot be imported: {type(error).__name__}: {first_line(error)}",
            subject=path,
            hint=import_hint(error, path),
        ) from error
    return module


def function_of(path: Path, name: str) -> Callable[..., object]:
    """Return a function of a Python file.

    Raises:
        ModelError: there is none of that name, or it is a model.
    """
    module = imported(path)
    function: Callable[..., object] | None = getattr(module, name, None)
    if function is None or not callable(function):
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ModelError(
            f"it has no function {name!r}; there are {', '.join(public) or 'none'}", subject=path
        )
    if "Layer" in {each.__name__ for each in type(function).__mro__}:
        raise ModelError(
            f"{name} is a model, not a function that builds one",
            subject=path,
            hint=f"add `def build(): return {name}` and name build, or save the model",
        )
    named = function

    @functools.wraps(named)
    def remembered(*arguments: object, **named_arguments: object) -> object:
        with RECORDER.running(path, module):
            return named(*arguments, **named_arguments)

    return remembered


@contextlib.contextmanager
def blaming(
    what: str, subject: str | Path, hint: str | None, kind: type[ShrinkError] = StageError
) -> Iterator[None]:
    """Turn what a user's function raises in the block into an error that names its line.

    Args:
        what: begins the message, such as `the metric f: `.
        subject: names the file, maybe with `:function`.
        hint: what the function takes and returns.
        kind: of the error.
    """
    try:
        yield
    except ShrinkError:
        raise
    except Exception as error:
        passed = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in passed if frame.filename in str(subject)]
        where = f" (line {lines[-1]})" if lines else ""
        text = ": ".join(filter(None, (type(error).__name__, first_line(error))))
        raise kind(f"{what}{text}{where}", subject=subject, hint=hint) from error


def custom_objects(path: Path | None) -> dict[str, CustomObject]:
    """Return the classes and functions of a file by every name that Keras may ask for.

    Every name that the scan let pass is among them, so that Keras looks nowhere else.

    Raises:
        ModelError: the file cannot be imported, or a name has gone when it has run.
    """
    if path is None:
        return {}
    module = imported(path)
    objects: dict[str, CustomObject] = {}
    for stored, name in declared_objects(path).items():
        item = getattr(module, name, None)
        if not callable(item):
            raise ModelError(f"{name} is not defined by the file", subject=path)
        objects[stored] = item
    return objects


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
            f"the file of custom_objects is not valid Python: {str(error)[:200]}", subject=path
        ) from error
    names: dict[str, str] = {}
    for item in tree.body:
        if isinstance(item, ast.ClassDef | ast.FunctionDef) and not item.name.startswith("_"):
            names[item.name] = item.name
            names |= dict.fromkeys(_registered(item), item.name)
    return names


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
        arguments: dict[str | None, ast.expr] = dict(
            zip(("package", "name"), decorator.args, strict=False)
        )
        arguments |= {keyword.arg: keyword.value for keyword in decorator.keywords}
        package = _text(arguments.get("package"), _DEFAULT_PACKAGE)
        yield f"{package}>{_text(arguments.get('name'), item.name)}"


def _text(node: ast.expr | None, default: str) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else default
