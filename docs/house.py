"""Print how many tokens, statements and functions each package has: `python -m docs.house`."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
}
"""Tokens that are not counted."""


def main() -> int:
    """Print a row per package of `shrink/` and one for the whole."""
    packages: dict[str, Counter[str]] = {}
    for path in sorted((ROOT / "shrink").rglob("*.py")):
        parts = path.relative_to(ROOT / "shrink").parts
        counts = packages.setdefault(parts[0] if len(parts) > 1 else "(top)", Counter())
        counts.update(count(path.read_text(encoding="utf-8")))
    packages["total"] = sum(packages.values(), Counter())
    columns = ["tokens", "statements", "functions", "lines", "files"]
    sys.stdout.write(f"{'package':14}" + "".join(f"{name:>12}" for name in columns) + "\n")
    for name, counts in packages.items():
        row = "".join(f"{counts[column]:12,}" for column in columns)
        sys.stdout.write(f"{name:14}{row}\n")
    return 0


def count(text: str) -> Counter[str]:
    """Count the tokens (without layout and comments), statements, functions and lines of a file."""
    nodes = list(ast.walk(ast.parse(text)))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(
        tokens=sum(token.type not in LAYOUT for token in tokens),
        statements=sum(isinstance(node, ast.stmt) for node in nodes),
        functions=sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes),
        lines=len(text.splitlines()),
        files=1,
    )


if __name__ == "__main__":
    sys.exit(main())
