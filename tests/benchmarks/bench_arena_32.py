"""Arenas of 32-bit builds of TFLite Micro against shrink's estimates, and outputs in these builds.

    python -m tests.benchmarks.bench_arena_32 --reference RUNNER --cmsis-nn RUNNER
        [--models NAME...] [--random 40] [--folder DIR] [--files FILE...]
        [--record FILE --provenance TEXT]

A runner is a program of TFLite Micro for a target of 32 bits, with reference kernels or CMSIS-NN;
`qemu-arm PROGRAM` is one, too. Called in two ways:

    RUNNER info MODEL ARENA                         prints {"min_arena": the smallest arena, in
                                                    multiples of 16 bytes, that allocates, ...}
    RUNNER run MODEL ARENA INPUTS OUTPUTS COUNT     reads COUNT examples of all inputs, as stored
                                                    and one after the other, and writes the outputs

Each model is taken as made and as `shrink compact` leaves it: models of compact_models.py, random
graphs (as they are, with a plan of some of their tensors, and in random bands) and other files.
Prints a line of JSON for each file: the smallest arena of each build, what shrink estimates, and
the error; of a compacted one, whether its outputs and last feature map are equal to the byte in
both builds, in the smallest arena of each. Then the largest errors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.base import files
from shrink.compact.compact import compact
from shrink.compact.graph import Graph, write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.verify import random_examples, with_output
from shrink.tflite.arena import ArenaFigure, arena_of, roomy_arena
from tests.benchmarks.compact_models import MODELS, stored_file
from tests.benchmarks.harness import say_json
from tests.compact.random_tilings import half_planned_file, tiled_file
from tests.compact.toys import random_net

KERNELS = ("reference", "cmsis_nn")
_EXAMPLES, _SHARE = 20, 0.05


class Runner:
    """A program that runs files in TFLite Micro on 32 bits.

    Args:
        command: the program, and perhaps what it runs in.
    """

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)

    def smallest_arena(self, model: Path) -> int:
        """Return the bytes of the smallest arena in which it allocates a file."""
        room = str(roomy_arena(model))
        run = self._run("info", str(model), room)
        return int(json.loads(run.stdout)["min_arena"])

    def outputs(self, model: Path, arena: int, inputs: bytes, count: int) -> bytes:
        """Return what it computes from `count` examples, all outputs one after the other."""
        with tempfile.TemporaryDirectory() as folder:
            given, found = Path(folder) / "given", Path(folder) / "found"
            given.write_bytes(inputs)
            self._run("run", str(model), str(arena), str(given), str(found), str(count))
            return found.read_bytes()

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self._command, *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            words = f"{shlex.join(command)}: exit code {run.returncode} {run.stderr[-300:]}"
            raise RuntimeError(words)
        return run


@dataclass(frozen=True)
class Pair:
    """A file, and what came of it; None where it was left as it is."""

    name: str
    before: bytes
    after: bytes | None
    how: str = "compacted"


def pairs(options: argparse.Namespace) -> Iterator[Pair]:
    """Yield the models of the table, other files and random graphs."""
    given = [(name, stored_file(options.folder, name)) for name in options.models]
    given += [(path.stem, path.read_bytes()) for path in options.files]
    for name, content in given:
        found = compact(content, max_extra_macs=_SHARE)
        yield Pair(name, content, found.content if found.changed else None)
    for seed in range(options.random):
        yield Pair(f"random {seed}", random_net(seed), tiled_file(seed), "in bands")
        yield Pair(f"random {seed}, planned", half_planned_file(seed), None)


def estimates(figure: ArenaFigure) -> dict[str, int | None]:
    """Return shrink's figures by kernels."""
    return {
        "reference": figure.estimate_32_reference.value,
        "cmsis_nn": figure.estimate_32.value,
    }


def digest(content: bytes) -> str:
    """Return what says that a file is the one that was recorded."""
    return hashlib.sha256(content).hexdigest()


def measured(runners: Sequence[Runner], content: bytes) -> dict[str, object]:
    """Return the arenas of a file, measured and estimated."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        figure = arena_of(path, timeout_s=120)
        found = {k: r.smallest_arena(path) for k, r in zip(KERNELS, runners, strict=True)}
    return {
        "sha256": digest(content),
        "wheel": figure.value,
        "measured": found,
        "estimated": estimates(figure),
    }


def equal(runners: Sequence[Runner], pair: Pair) -> dict[str, object]:
    """Return in which builds two files give the same bytes, and whether these say something."""
    assert pair.after is not None
    graph, after = read_graph(pair.before), read_graph(pair.after)
    feature, place = _last_feature_map(graph, after)
    shown = with_output(after, place)
    wanted = write_graph(with_output(graph, feature))
    others = (pair.after, write_graph(shown, plan(shown, 1).offsets))
    arrays = random_examples(graph, _EXAMPLES)
    inputs = b"".join(a[row].tobytes() for row in range(_EXAMPLES) for a in arrays)
    rows: dict[str, object] = {}
    for kernels, runner in zip(KERNELS, runners, strict=True):
        first = _rows(runner, wanted, inputs)
        plain, extra = (_rows(runner, other, inputs) for other in others)
        same = extra == first and plain == [row[: len(plain[0])] for row in first]
        rows[kernels] = {"equal": same, "distinct": len(set(first))}
    return rows


def _rows(runner: Runner, content: bytes, inputs: bytes) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        arena = runner.smallest_arena(path)
        found = runner.outputs(path, arena, inputs, _EXAMPLES)
    size = len(found) // _EXAMPLES
    return [found[size * row : size * (row + 1)] for row in range(_EXAMPLES)]


def _last_feature_map(graph: Graph, other: Graph) -> tuple[int | None, int | None]:
    """Return the last tensor of several rows that both write under one name, in each of them."""
    places = {
        name: index
        for operator in other.operators
        for index in operator.outputs
        if (name := other.tensors[index].name)
    }
    for operator in reversed(graph.operators):
        for index in operator.outputs:
            shape, place = graph.tensors[index].shape, places.get(graph.tensors[index].name)
            several = len(shape) == 4 and shape[1] * shape[2] > 1
            if several and place is not None and other.tensors[place].shape == shape:
                return index, place
    return None, None


def main() -> None:
    """Print a line for each file, and write what is recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for kernels in KERNELS:
        parser.add_argument(f"--{kernels.replace('_', '-')}", required=True, metavar="RUNNER")
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    parser.add_argument("--random", type=int, default=40)
    parser.add_argument("--folder", type=Path, default=Path("compact-models"))
    parser.add_argument("--record", type=Path)
    parser.add_argument("--provenance", default="")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    runners = [Runner(getattr(options, kernels)) for kernels in KERNELS]
    rows: dict[str, dict[str, object]] = {}
    for pair in pairs(options):
        rows[pair.name] = measured(runners, pair.before)
        say_json({"file": pair.name, **rows[pair.name]})
        if pair.after is not None:
            name = f"{pair.name}, {pair.how}"
            rows[name] = measured(runners, pair.after) | {"outputs": equal(runners, pair)}
            say_json({"file": name, **rows[name]})
    for kernels in KERNELS:
        say_json({"kernels": kernels, "largest_error": largest_error(rows, kernels)})
    if options.record is not None:
        stored = {"provenance": options.provenance, "files": rows}
        files.write_text(options.record, json.dumps(stored, indent=1) + "\n")


def largest_error(rows: dict[str, dict[str, object]], kernels: str) -> tuple[str, float]:
    """Return the file of the largest relative error of an estimate, and that error."""
    errors: dict[str, float] = {}
    for name, row in rows.items():
        found, wanted = row["estimated"][kernels], row["measured"][kernels]  # type: ignore[index]
        errors[name] = round(found / wanted - 1, 4)
    worst = max(errors, key=lambda name: abs(errors[name]))
    return worst, errors[worst]


if __name__ == "__main__":
    main()
