"""What the package imports is declared, and what is declared is imported."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_INSTALLED = {
    "ethosu": "ethos-u-vela",
    "mlflow": "mlflow-skinny",
    "pynvml": "nvidia-ml-py",
    "tensorflow_datasets": "tensorflow-datasets",
}
"""Distributions of extras that the tests can do without, by import."""
NOT_IMPORTED = {
    "array-record": "tensorflow-datasets reads with it",
    "imagecodecs": "tifffile decompresses with it",
}


def test_every_import_is_declared_and_every_declared_package_is_imported() -> None:
    extras = PROJECT["optional-dependencies"]
    lines = {*PROJECT["dependencies"]}.union(
        *(extras[name] for name in {*extras} - {"docs", "test"})
    )
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    imported = {_distribution(name) for name in _imports(ROOT / "shrink")}
    assert imported - declared == set()
    assert declared - imported == set(NOT_IMPORTED)


def test_a_search_needs_no_extra() -> None:
    installed = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert {_distribution(name) for name in _imports(ROOT / "shrink" / "search")} <= installed


def _imports(package: Path) -> set[str]:
    """Return the top-level modules that sources import, in functions too, or name as a string."""
    found: set[str] = set()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                found |= {str(one.value) for one in node.args if isinstance(one, ast.Constant)}
    names = {name.partition(".")[0] for name in found}
    return names - sys.stdlib_module_names - {"shrink"}


def _distribution(module: str) -> str:
    return canonicalize_name(NOT_INSTALLED.get(module) or _known().get(module, [module])[0])


@functools.cache
def _known() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()
