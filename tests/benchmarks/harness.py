"""What all benchmarks share: processes of their own, runs by turns, lines that appear at once."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.engine._run import run_in_fresh_process

if TYPE_CHECKING:
    from shrink.stages.context import StageContext

T = TypeVar("T")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say_json(row: Mapping[str, Any]) -> None:
    """Print a line of JSON at once."""
    say(json.dumps(row))


def apart(
    function: Callable[..., T], *, environment: Mapping[str, str] | None = None, **arguments: Any
) -> T:
    """Return what a function of a module returns in a process of its own.

    Args:
        function: takes and returns what JSON holds.
        environment: more of it.
        arguments: the function's.

    Raises:
        RuntimeError: the process failed; says what it printed.
    """
    spec = sys.modules[function.__module__].__spec__
    assert spec is not None, "run it as `python -m tests.benchmarks.NAME`"
    found: T = run_in_fresh_process(
        spec.name, function.__name__, environment=environment, timeout_s=None, **arguments
    )
    return found


def by_turns(ways: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Return what each way gives in each round; the order is reversed from round to round.

    So a busy minute, and what one way leaves behind for the next, meet all of them.
    """
    found: dict[str, list[T]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            found[name].append(ways[name]())
    return found


def subcommands(
    parser: argparse.ArgumentParser, commands: Mapping[str, Callable[[argparse.Namespace], None]]
) -> dict[str, argparse.ArgumentParser]:
    """Add a family's benchmarks to its parser; `options.run(options)` runs the chosen one."""
    added = parser.add_subparsers(required=True, metavar="|".join(commands))
    parsers = {}
    for name, run in commands.items():
        parsers[name] = added.add_parser(name, help=(run.__doc__ or "").partition("\n")[0])
        parsers[name].set_defaults(run=run)
    return parsers


def stages_of_run(folder: Path, *, failing: bool = False) -> dict[str, dict[str, Any]]:
    """Run `recipe.yaml` of a folder, with a store of its own; return the report's stages by name.

    Args:
        folder: where the recipe is.
        failing: whether stages may fail, as long as there is a report.

    Raises:
        SystemExit: the run left no report; says why.
    """
    command = [sys.executable, "-m", "shrink", "run", "recipe.yaml", "--output", "out", "--quiet"]
    environment = {**os.environ, "SHRINK_CACHE_DIR": str(folder / "store")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    report = folder / "out" / "report.json"
    if not report.is_file() or (done.returncode and not failing):
        raise SystemExit(done.stderr)
    return {s["name"]: s for s in json.loads(report.read_text("utf-8"))["stages"]}


def accuracy_of(artifact: bytes, context: StageContext, model: Any) -> float:
    """Return the accuracy of a .tflite file on all test examples, through LiteRT."""
    from shrink.task.artifact import evaluate_artifact

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(artifact)
        found = evaluate_artifact(path, context.dataset.test, context.task(model))
    return found.defined("accuracy")
