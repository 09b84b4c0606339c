"""How many small faults the tests find: a fixed sample of mutants of the packages.

    python -m tests.benchmarks.bench_mutants [--mutants 100] [--seed 0] [--packages NAME...]
        [--numbers N...] [--tests CHECKOUT] [--seconds 300] [--list]

A mutant is a copy of this checkout in which one place of `shrink/` is changed: a comparison, a
bound, a number, `and` for `or`, a condition turned round, a statement removed, a return value. The
sample is drawn by statements, so a large module has more of them. The default tests of the
package's folder run, first those that mirror or import the module, until one fails; where nothing
there imports it, tests that do come first. A mutant is
killed when a test fails that passes without it, or when the tests take longer than `--seconds`
after they took less without it; it survives when all of them pass. Where `--seconds` are too few
for the tests as they are, it is `undecided` and does not count.

`--tests` takes the tests of another checkout, to compare two of them on the same mutants. Prints a
line of JSON for each mutant, and the kill rate. A minute of processor time for each, or several.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.harness import say_json

ROOT = Path(__file__).resolve().parents[2]
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE,
    ast.LtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}  # fmt: skip
_ALSO = {
    "base": ["task/metrics"], "contract": ["report"], "detection": ["task/metrics"],
    "distillation": ["stages/distill"], "pruning": ["stages/prune"],
    "quantization": ["stages/quantize"],
}  # fmt: skip
"""Folders of tests beside the package's own: there the stage tests the arithmetic."""


class Mutant(NamedTuple):
    """One change: bytes `start` to `end` of a module become `text`."""

    module: str
    line: int
    kind: str
    start: int
    end: int
    text: str


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module's functions, in order."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def made(node: Any, kind: str, text: str) -> Mutant:
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        return Mutant(module, node.lineno, kind, begin, end, text)

    for node in _nodes(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                for kind, table in (("comparison", _TURNED), ("bound", _BOUNDS)):
                    if type(op) in table:
                        yield made(
                            node, kind, _written(ast.Compare(left, [table[type(op)]()], [right]))
                        )
            case ast.BoolOp(op=op, values=values):
                other = ast.Or() if isinstance(op, ast.And) else ast.And()
                yield made(node, "and/or", _written(ast.BoolOp(other, values)))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                yield made(
                    node, "arithmetic", _written(ast.BinOp(left, _ARITHMETIC[type(op)](), right))
                )
            case ast.Constant(value=bool(value)):
                yield made(node, "constant", str(not value))
            case ast.Constant(value=int(value) | float(value)):
                yield made(node, "constant", f"({value + 1})")
            case ast.If(test=test):
                yield made(test, "condition", f"(not ({ast.unparse(test)}))")
            case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
                yield made(node, "return", "return None")
            case ast.Expr(value=ast.Call()) | ast.Assign() | ast.AugAssign() | ast.Raise():
                yield made(node, "statement", "pass")


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what runs in functions: no annotations, no decorators, no parts of f-strings."""

    def inside(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(
                node, ast.Call
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield from inside(child)

    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    for statement in child.body:
                        yield from inside(statement)


def _written(node: ast.expr) -> str:
    return f"({ast.unparse(node)})".replace("\n", " ")


def sample(count: int, seed: int, packages: Sequence[str]) -> list[Mutant]:
    """Return the mutants of a seed: of places drawn evenly from all modules, one each."""
    drawn = random.Random(seed)
    places: dict[tuple[str, int], list[Mutant]] = {}
    for path in sorted((ROOT / "shrink").rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if not packages or path.relative_to(ROOT / "shrink").parts[0] in packages:
            for mutant in mutants_of(module, path.read_text("utf-8")):
                places.setdefault((module, mutant.line), []).append(mutant)
    chosen = drawn.sample(sorted(places), min(count, len(places)))
    return [drawn.choice(places[place]) for place in chosen]


def tests_of(module: str, tree: Path) -> list[str]:
    """Return the tests of a module's package, those that mirror or import the module first."""
    path = Path(module).relative_to("shrink")
    dotted = ".".join(Path(module).with_suffix("").parts)
    importing = re.compile(
        rf"\b{re.escape(dotted)}\b|from {re.escape(dotted.rpartition('.')[0])} import "
        rf"[^\n]*\b{path.stem}\b"
    )
    nearest = tree / "tests" / path.parent
    folders = [path.parts[0], *_ALSO.get(path.parts[0], [])]
    files = [p for name in folders for p in sorted((tree / "tests" / name).rglob("test_*.py"))]

    def place(test: Path) -> int:
        if test.name == f"test_{path.stem}.py" and test.parent == nearest:
            return 0
        return 1 if importing.search(test.read_text("utf-8")) else 2 + (test.parent != nearest)

    ordered = sorted(files, key=place)
    if not ordered or place(ordered[0]) > 1:  # nothing in the package speaks of it
        outside = (p for p in sorted((tree / "tests").rglob("test_*.py")) if p not in files)
        ordered = [p for p in outside if importing.search(p.read_text("utf-8"))] + ordered
    return [p.relative_to(tree).as_posix() for p in ordered]


def run_tests(tree: Path, tests: Sequence[str], seconds: float) -> tuple[str, str]:
    """Return `passed`, `failed` or `slow`, and the first test that failed."""
    words = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(tree), "SHRINK_CACHE_DIR": str(tree.parent / "store")}
    process = subprocess.Popen(
        [*words, "--durations=0", "--durations-min=1000", *tests],
        cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return "slow", ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", printed, re.MULTILINE)
    if process.returncode in (0, 5):
        return "passed", ""
    return "failed", failed[1] if failed else printed[-300:]


def verdict(mutant: Mutant, tree: Path, seconds: float) -> dict[str, Any]:
    """Run the tests with one mutant, and the test that fails without it, too."""
    path = tree / mutant.module
    original = path.read_bytes()
    changed = original[: mutant.start] + mutant.text.encode() + original[mutant.end :]
    tests = tests_of(mutant.module, tree)
    try:
        path.write_bytes(changed)
        outcome, test = run_tests(tree, tests, seconds)
    finally:
        path.write_bytes(original)
    result = {"passed": "survived", "failed": "killed", "slow": "killed"}[outcome]
    if outcome == "failed" and run_tests(tree, [test], seconds)[0] != "passed":
        result = "undecided"  # it fails without the mutant, too
    if outcome == "slow" and run_tests(tree, tests, seconds)[0] != "passed":
        result = "undecided"
    was = original[mutant.start : mutant.end].decode()
    return {"result": result, "was": was[:100], "text": mutant.text[:100], "test": test}


def copied(target: Path, tests: Path) -> Path:
    """Copy what git tracks of this checkout, with the tests of that one."""
    for root, wanted in ((ROOT, lambda p: not p.startswith("tests/")), (tests, _is_test)):
        listed = subprocess.run(
            ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True
        )
        for name in filter(wanted, listed.stdout.splitlines()):
            if (root / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, target / name)
    return target


def _is_test(name: str) -> bool:
    return name.startswith("tests/")


def main() -> None:
    """Print what became of every mutant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="*", default=[])
    parser.add_argument("--numbers", nargs="*", type=int, help="only these of the sample")
    parser.add_argument("--tests", type=Path, default=ROOT)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    words = parser.parse_args()
    chosen = list(enumerate(sample(words.mutants, words.seed, words.packages)))
    if words.numbers is not None:
        chosen = [chosen[number] for number in words.numbers]
    counts = {"killed": 0, "survived": 0, "undecided": 0}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree") if words.list else copied(Path(folder, "tree"), words.tests)
        for number, mutant in chosen:
            row = {"number": number, "module": mutant.module, "line": mutant.line}
            found = {} if words.list else verdict(mutant, tree, words.seconds)
            say_json({**row, "kind": mutant.kind, **found})
            if found:
                counts[found["result"]] += 1
    decided = counts["killed"] + counts["survived"]
    if decided:
        say_json({**counts, "kill rate": round(counts["killed"] / decided, 3)})


if __name__ == "__main__":
    main()
