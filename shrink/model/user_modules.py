"""A user's own modules: found, fingerprinted, and imported only where named.

What its import statements say is read without running it. What it really imported, by changed
search paths or by computed names too, is remembered in the cache folder by the process that ran it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import shrink
from shrink.base import files
from shrink.base.cache import entry_path
from shrink.base.errors import ModelError, ResourceError, first_line
from shrink.contract.model_source import Trust

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras as keras

CustomObject: TypeAlias = "type[keras.layers.Layer] | Callable[..., tf.Tensor]"
"""A class or a function of a user's, by whose name a model file asks for it."""

_LIBRARIES = ("site-packages", "dist-packages")
_MISSING = "missing"


def code_digest(entry: Path) -> str:
    """Return the SHA-256, in hex, of a Python file and of the user's own files that it imports.

    Neither where the files are nor what they read counts, nor what installed packages hold.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        content = entry.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", subject=entry) from error
    own, roots = Path(os.path.realpath(entry)), _roots(entry)
    waiting = [own, *_read_record(own, content)]
    seen = set(waiting)
    while waiting:
        for path in _imported_by(waiting.pop(), roots):
            if path not in seen:
                seen.add(path)
                waiting.append(path)
    # Named by where they are, not by how they were found: what only running shows is then the
    # same digest as what import statements say.
    named = [(_name(path, own), _digest(path)) for path in seen - {own}]
    named.append(("", hashlib.sha256(content).hexdigest()))
    lines = "\n".join(f"{name}\0{digest}" for name, digest in sorted(named))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


@contextlib.contextmanager
def remembering_imports(entry: Path, module: ModuleType | None = None) -> Iterator[None]:
    """Remember for `code_digest` what of the user's own is imported within.

    Args:
        entry: the Python file that is run.
        module: what it became, where it has been imported before: what it refers to counts too,
            though another file may have imported that first.
    """
    before = set(sys.modules)
    try:
        yield
    finally:
        new = {name: m for name, m in list(sys.modules.items()) if name not in before}
        new |= _referred_to(module) if module is not None else {}
        _remember(entry, {file for each in new.values() if (file := users_file(each))})


def import_hint(error: Exception, entry: Path) -> str | None:
    """Return how a module beside a file that is run can be found; None for any other error."""
    name = (
        error.name.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name
        else ""
    )
    if not name or not any(_resolved(name, [entry.resolve().parent])):
        return None
    return f"the file's own folder is not searched: PYTHONPATH={entry.resolve().parent} shrink ..."


def users_file(module: ModuleType | None) -> Path | None:
    """Return the file of a module, None where it is a library's, shrink's or Python's own."""
    text = getattr(module, "__file__", None)
    if not isinstance(text, str):
        return None
    path = Path(os.path.realpath(text))
    return path if is_users(path) and path.is_file() else None


def is_users(path: Path) -> bool:
    """Whether a path is outside of Python, of installed packages and of shrink itself."""
    return not any(name in path.parts for name in _LIBRARIES) and not any(
        path.is_relative_to(folder) for folder in _not_users()
    )


@functools.cache
def _not_users() -> tuple[str, ...]:
    own = sysconfig.get_paths()
    return (os.path.realpath(Path(shrink.__file__).parent), own["stdlib"], own["platstdlib"])


def _referred_to(module: ModuleType) -> dict[str, ModuleType]:
    """Return the user's modules whose objects a module, or one of these, holds by a name."""
    modules: dict[str, ModuleType] = {}
    waiting = [module]
    while waiting:
        for value in list(vars(waiting.pop()).values()):
            is_module = isinstance(value, ModuleType)
            name = value.__name__ if is_module else getattr(value, "__module__", None)
            other = sys.modules.get(name) if isinstance(name, str) else None
            if other is not None and name not in modules and users_file(other):
                modules[str(name)] = other
                waiting.append(other)
    return modules


def _record(content: bytes) -> Path:
    return entry_path("imports", hashlib.sha256(content).hexdigest(), ".json")


def _remember(entry: Path, modules: Iterable[Path]) -> None:
    """Add to what a file is known to import: another function of it may import other modules."""
    with contextlib.suppress(OSError, ResourceError):  # then what the statements say has to do
        content, own = entry.read_bytes(), Path(os.path.realpath(entry))
        known = _read_names(content)
        names = known | {str(_below(path, own.parent)) for path in modules if path != own}
        if names != known:
            files.write_json(_record(content), sorted(names))


def _read_names(content: bytes) -> set[str]:
    try:
        names = json.loads(_record(content).read_text("utf-8", "surrogateescape"))
    except (OSError, ValueError):
        return set()
    return set(map(str, names)) if isinstance(names, list) else set()


def _read_record(own: Path, content: bytes) -> list[Path]:
    """Return the files that this content is known to import; names are relative to its folder."""
    return [own.parent / name for name in sorted(_read_names(content))]


def _below(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _name(path: Path, own: Path) -> str:
    """Return a module's place: in the folder of the file that imports it, or in its own."""
    inside = path.is_relative_to(own.parent)
    return str(path.relative_to(own.parent)) if inside else "/".join(path.parts[-2:])


def _digest(path: Path) -> str:
    try:
        return files.sha256(path)
    except OSError:
        return _MISSING


def _roots(entry: Path) -> list[Path]:
    """Return the folders in which modules are looked for, those of libraries left out."""
    # The first entry of a search path that is not safe is the folder of whoever calls shrink.
    searched = sys.path if sys.flags.safe_path else sys.path[1:]
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [entry.parent, *(Path(text) for text in (*named, *searched) if text)]
    resolved = [Path(os.path.realpath(folder)) for folder in folders]
    return [folder for folder in dict.fromkeys(resolved) if is_users(folder) and folder.is_dir()]


def _imported_by(file: Path, roots: list[Path]) -> Iterator[Path]:
    """Yield the user's modules that the import statements of a file name, wherever they stand."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _resolved(alias.name, roots)
        elif isinstance(node, ast.ImportFrom):
            base, folders = node.module or "", roots
            if node.level:
                folders = [file.parents[min(node.level, len(file.parents)) - 1]]
            for alias in node.names:
                yield from _resolved(f"{base}.{alias.name}".lstrip("."), folders)


def _resolved(dotted: str, roots: list[Path]) -> Iterator[Path]:
    """Yield the files that importing a dotted name runs: its packages, and itself if a module."""
    for root in roots:
        folder, is_there = root, False
        for name in dotted.split("."):
            folder = folder / name
            for path in (folder / "__init__.py", folder.with_name(f"{name}.py")):
                if path.is_file() and is_users(path):
                    is_there = True
                    yield Path(os.path.realpath(path))
        if is_there:
            return


@functools.cache
def imported(path: Path) -> ModuleType:
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
        raise ModelError(
            f"this file cannot be imported: {type(error).__name__}: {first_line(error)}",
            subject=path,
            hint=import_hint(error, path),
        ) from error
    return module


def function_of(path: Path, name: str) -> Callable[..., object]:
    """Return a function of a Python file.

    Raises:
        ModelError: there is none of that name.
    """
    module = imported(path)
    function: Callable[..., object] | None = getattr(module, name, None)
    if function is None or not callable(function):
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ModelError(
            f"it has no function {name!r}; there are {', '.join(public) or 'none'}", subject=path
        )
    named = function

    @functools.wraps(named)
    def remembered(*arguments: object, **named_arguments: object) -> object:
        with remembering_imports(path, module):  # it may import more than its module did
            return named(*arguments, **named_arguments)

    return remembered


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
            raise ModelError(f"{name} is not there once the file has run", subject=path)
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
            f"the file of custom_objects is no Python: {str(error)[:200]}", subject=path
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
