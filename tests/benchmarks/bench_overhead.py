"""What shrink itself costs: the start of its light commands, and its share of each stage.

Run it with `python -m tests.benchmarks.bench_overhead [--light]` on an idle machine. The share of
a stage is its wall time without what its worker says it used and without the imports of the
libraries, which are timed alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import say

ROOT = Path(__file__).parents[2]
RECIPE = str(ROOT / "recipes" / "digits.yaml")
SHRINK = [sys.executable, "-P", "-m", "shrink"]
LIGHT = (["--help"], ["validate", RECIPE], ["schema"], ["recipes"])
OF_A_RUN = (["diff", "out", "out"], ["report", "out"])
IMPORTS = "import tensorflow, tf_keras, ai_edge_litert.interpreter, sklearn.datasets, pydantic"
ROUNDS, IMPORT_ROUNDS = 5, 3
MOST_LIGHT_S, MOST_CACHED_S, MOST_OVERHEAD_S = 0.3, 2.0, 1.0


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--light", action="store_true", help="only the light commands")
    only_light = parser.parse_args().light
    load = os.getloadavg()[0]
    say(f"load average at the start: {load:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(prefix="bench-overhead-") as folder:
        cwd = Path(folder)
        bare = median_s([sys.executable, "-c", "pass"], cwd)
        say(f"{'python -c pass':<28} {1000 * bare:6.0f} ms")
        for words in LIGHT:
            show_light(" ".join(Path(word).name for word in words), [*SHRINK, *words], bare, cwd)
        if not only_light:
            run = [*SHRINK, "run", RECIPE, "--output", "out", "--quiet"]
            wall_s = timed(run, cwd)
            for words in OF_A_RUN:
                show_light(" ".join(words), [*SHRINK, *words], bare, cwd)
            show_light("run digits.yaml, all cached", run, bare, cwd, MOST_CACHED_S)
            show_stages(wall_s, cwd)


def show_light(
    name: str, command: Sequence[str], bare: float, cwd: Path, most_s: float = MOST_LIGHT_S
) -> None:
    """Print a command's median and its ratio to Python alone."""
    seconds = median_s(command, cwd)
    verdict = "ok" if seconds <= most_s else f"above {1000 * most_s:.0f} ms"
    say(f"{name:<28} {1000 * seconds:6.0f} ms  {seconds / bare:5.1f}x  {verdict}")


def show_stages(wall_s: float, cwd: Path) -> None:
    """Print each stage of the run in `cwd`: wall time, what it is made of, what is left."""
    imports_s = statistics.median(
        timed([sys.executable, "-c", IMPORTS], cwd) for _ in range(IMPORT_ROUNDS)
    )
    say(f"\nimports alone: {imports_s:.2f} s\nstage      wall  worker imports overhead, s")
    results = stored_results(cwd / "store")
    report = json.loads((cwd / "out" / "report.json").read_text(encoding="utf-8"))
    for stage in report["stages"]:
        result = results[stage["sha256"]]
        used_s = sum(result["timing"].values())
        left_s = result["duration_s"] - used_s - imports_s
        verdict = "ok" if left_s <= MOST_OVERHEAD_S else f"above {MOST_OVERHEAD_S} s"
        figures = f"{result['duration_s']:6.2f} {used_s:6.2f} {imports_s:6.2f} {left_s:8.2f}"
        say(f"{stage['name']:<9} {figures}  {verdict}")
    around_s = wall_s - sum(result["duration_s"] for result in results.values())
    say(f"around the stages: {around_s:.2f} s for the whole run")


def stored_results(store: Path) -> dict[str, dict[str, Any]]:
    """Return the workers' results by their artifacts' hashes.

    What was measured of an artifact is kept once more for runs that go on from it, without the
    time of the stage: the entry of longest duration is the stage's.
    """
    entries = [json.loads(p.read_text(encoding="utf-8")) for p in (store / "steps").glob("*.json")]
    entries.sort(key=lambda entry: float(entry["result"]["duration_s"]))
    return {entry["files"]["artifact"]["sha256"]: entry["result"] for entry in entries}


def median_s(command: Sequence[str], cwd: Path) -> float:
    """Return the median of a command's wall time in seconds, after one run that warms up."""
    timed(command, cwd)
    return statistics.median(timed(command, cwd) for _ in range(ROUNDS))


def timed(command: Sequence[str], cwd: Path) -> float:
    """Return a command's wall time in seconds; exit codes other than 0 and 1 are errors."""
    settings = {"PYTHONPATH": str(ROOT), "SHRINK_CACHE_DIR": str(cwd / "store")}
    environment = {**os.environ, **settings}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed shrink is compiled
    started = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr!r}")
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
