"""Print what the sources look like: sizes of files and functions, `Any`, types, docstrings.

Run with `python -m docs.house`. Imports that point up are counted by `lint-imports`.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef
MOST_LINES, MOST_OF_FUNCTION, MOST_PARAMETERS = 450, 60, 8


def main() -> int:
    """Print a line for each figure, and return 1 where one is beyond its bound."""
    texts = {path: path.read_text(encoding="utf-8") for path in sources()}
    lines = [len(text.splitlines()) for text in texts.values()]
    functions = [each for text in texts.values() for each in functions_of(ast.parse(text))]
    lengths = [one.end_lineno - one.lineno + 1 for one in functions if one.end_lineno]
    parameters = [len([*one.args.posonlyargs, *one.args.args]) for one in functions]
    public = [one for one in functions if not one.name.startswith("_")]
    figures = {
        "files": len(lines),
        "lines": sum(lines),
        "lines of a file": spread([count for count in lines if count > 1]),
        "functions": len(functions),
        "lines of a function": spread(lengths),
        "functions above 60 lines": sum(length > MOST_OF_FUNCTION for length in lengths),
        "functions above 8 positional parameters": sum(
            count > MOST_PARAMETERS for count in parameters
        ),
        "the word Any": sum(len(re.findall(r"\bAny\b", text)) for text in texts.values()),
        "typed returns": share(one.returns is not None for one in functions),
        "public docstrings": share(ast.get_docstring(one) is not None for one in public),
    }
    for name, value in figures.items():
        sys.stdout.write(f"{name}: {value}\n")
    bounded = {
        f"a file has more than {MOST_LINES} lines": max(lines) > MOST_LINES,
        f"a function has more than {MOST_OF_FUNCTION} lines": max(lengths) > MOST_OF_FUNCTION,
        f"a function has more than {MOST_PARAMETERS} parameters": max(parameters) > MOST_PARAMETERS,
        "a function does not say what it returns": any(one.returns is None for one in functions),
        "a public function has no docstring": not all(map(ast.get_docstring, public)),
    }
    beyond = [what for what, is_so in bounded.items() if is_so]
    sys.stdout.write("".join(f"BEYOND: {what}\n" for what in beyond))
    return int(bool(beyond))


def sources() -> list[Path]:
    """Return every Python file of the package."""
    return sorted((ROOT / "shrink").rglob("*.py"))


def functions_of(tree: ast.AST) -> Iterator[Function]:
    """Yield functions and methods at any depth but those inside other functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield node
        else:
            yield from functions_of(node)


def spread(counts: Sequence[int]) -> str:
    """Return the middle, the ninth tenth and the largest of some counts."""
    tenth = statistics.quantiles(counts, n=10)[-1]
    return f"median {statistics.median(counts):.0f}, p90 {tenth:.0f}, largest {max(counts)}"


def share(answers: Iterator[bool]) -> str:
    """Return how many of some answers are yes, in percent."""
    found = list(answers)
    return f"{100 * sum(found) / len(found):.1f} %"


if __name__ == "__main__":
    sys.exit(main())
