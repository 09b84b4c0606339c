"""The oracle is worth what it does not share: it imports nothing of shrink."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
STARTS_SHRINK = {"drive.py", "conftest.py"}
MODULES = sorted(
    path
    for path in FOLDER.glob("*.py")
    if not path.name.startswith("test_") and path.name not in STARTS_SHRINK
)


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_module_names_nothing_of_shrink(path: Path) -> None:
    names = _imported(path)
    assert not [n for n in names if n.split(".")[0] in ("shrink", "models")]
    assert not [n for n in names if n.startswith("tests.") and not n.startswith("tests.oracle")]
    assert "importlib" not in names
    assert "__import__" not in path.read_text(encoding="utf-8")
