"""How many more points two workers on one storage train than one, where points use one thread.

    python -m tests.benchmarks.bench_search_workers [--time 150] [--workers 2] [--epochs 20] [--pin]

One worker has the time, then so many have it together, on a storage that is new, by the same
command as on several machines, then so many searches that share nothing but the machine: what is
the most that workers could reach on it. A point is trained on one thread, and yet a worker alone
takes a part of a second core, for what goes on beside the training; `--pin` leaves each worker one
core, as if it were a machine of its own. All begin with a baseline that the store has, and nothing
else. Points differ in the temperature of a distillation alone, so each takes as long. A rate is
that of points finished between the start of the first and the end of the last one of a worker.
Needs a core for each worker, with nothing else on them: the load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import ONE_THREAD, say, say_json

ROOT = Path(__file__).parents[2]
RECIPE = f"""
name: workers
model: {ROOT / "models" / "digits_cnn.py"}:build
data: {{source: digits}}
training:
  global_batch_size: 64
  optimizer: {{name: adam, learning_rate: 1e-3, schedule: cosine}}
stages:
  - train: {{epochs: 5}}
  - distill: {{student: {{width: 0.5}}, temperature: 4, epochs: EPOCHS}}
  - quantize: {{}}
search:
  space: {{distill.temperature: {{low: 2.0, high: 8.0}}}}
  sampler: random
  rungs: []
"""


@dataclass(frozen=True)
class Way:
    """How workers share a search: all of them one storage, or each with a search of its own.

    Attributes:
        name: of its folders.
        workers: how many.
        together: whether they have one storage.
    """

    name: str
    workers: int
    together: bool = True


def main() -> None:
    """Print the points per hour of one worker, of several, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--time", type=float, default=150.0, help="seconds of each")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20, help="of the distillation")
    parser.add_argument("--pin", action="store_true", help="each worker to a core of its own")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-workers-") as temporary:
        folder = Path(temporary)
        text = RECIPE.replace("EPOCHS", str(chosen.epochs))
        (folder / "workers.yaml").write_text(text, encoding="utf-8")
        first = [*_command(folder, "first"), "--trials", "1"]
        subprocess.run(first, cwd=folder, env=_environment(folder, "begun"), check=True)
        rates = {}
        ways = {
            "one worker": Way("alone", 1),
            "together": Way("together", chosen.workers),
            "apart": Way("apart", chosen.workers, together=False),
        }
        for name, way in ways.items():
            say(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
            rows = _searched(folder, way, chosen.time, pin=chosen.pin)
            rates[name] = sum(row["per_hour"] for row in rows)
            for row in rows:
                say_json({"way": name, "workers": way.workers, **row})
        one = rates["one worker"] or float("nan")
        for name, rate in rates.items():
            say(f"{name}: {rate:.0f} points per hour, {rate / one:.2f} times one")


def _command(folder: Path, output: str) -> list[str]:
    recipe = str(folder / "workers.yaml")
    return [sys.executable, "-m", "shrink", "search", recipe, "--quiet", "--output", output]


def _environment(folder: Path, store: str) -> dict[str, str]:
    return {**os.environ, **ONE_THREAD, "SHRINK_CACHE_DIR": str(folder / store)}


def _searched(folder: Path, way: Way, time_s: float, *, pin: bool) -> list[dict[str, Any]]:
    """Have workers search together, or apart, and return what each finished."""
    names = [f"{way.name}-{index}" for index in range(way.workers)]
    stores = [way.name] * way.workers if way.together else names
    for store in set(stores):
        shutil.copytree(folder / "begun", folder / f"store-{store}")
    begun, cores = [], sorted(os.sched_getaffinity(0))
    for index, (name, store) in enumerate(zip(names, stores, strict=True)):
        storage = ["--storage", f"{store}.journal", "--time", f"{time_s:g}s", "--seed", str(index)]
        pinned = ["taskset", "--cpu-list", str(cores[index])] if pin else []
        begun.append(
            subprocess.Popen(
                [*pinned, *_command(folder, name), *storage],
                cwd=folder,
                env=_environment(folder, f"store-{store}"),
            )
        )
    for one in begun:
        if one.wait() != 0:
            raise SystemExit(f"a worker ended with exit code {one.returncode}")
    rows = [_row(folder / name) for name in names]
    points = [number for row in rows for number in row["points"]]
    assert not way.together or len(points) == len(set(points)), "a point was trained twice"
    return rows


def _row(output: Path) -> dict[str, Any]:
    """Return the points that a worker finished, and how many that is in an hour."""
    found = json.loads((output / "search.json").read_text(encoding="utf-8"))
    took = {
        one["number"]: one["duration_s"]
        for one in found["trials"]
        if one["status"] == "done" and (output / one["run"] / "report.json").is_file()
    }
    ends = [(output / f"trials/{number:04d}" / "report.json").stat().st_mtime for number in took]
    begun = min(ends) - took[min(took)] if took else 0.0
    seconds = max(ends) - begun if took else 0.0
    return {
        "points": sorted(took),
        "seconds": round(seconds, 1),
        "per_hour": 3600 * len(took) / seconds if seconds else 0.0,
    }


if __name__ == "__main__":
    main()
