"""How many more points two workers on one storage train than one, where points use one thread.

    python -m tests.benchmarks.bench_search_workers [--time 150] [--workers 2] [--epochs 20]

One worker has the time, then so many have it together, on a storage that is new, by the same
command as on several machines. All begin with a baseline that the store has, and nothing else.
Points differ in the temperature of a distillation alone, so each takes as long. A rate is that of
points finished between the start of the first and the end of the last one of a worker. Needs a core
for each worker, with nothing else on them: the load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
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


def main() -> None:
    """Print the points per hour of one worker, of several, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--time", type=float, default=150.0, help="seconds of each")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20, help="of the distillation")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-workers-") as name:
        folder = Path(name)
        text = RECIPE.replace("EPOCHS", str(chosen.epochs))
        (folder / "workers.yaml").write_text(text, encoding="utf-8")
        first = [*_command(folder, "first"), "--trials", "1"]
        subprocess.run(first, cwd=folder, env=_environment(folder, "begun"), check=True)
        rates = {}
        for count in (1, chosen.workers):
            shutil.copytree(folder / "begun", folder / f"store{count}")
            say(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
            rows = _searched(folder, count, chosen.time)
            rates[count] = sum(row["per_hour"] for row in rows)
            for row in rows:
                say_json({"workers": count, **row})
        ratio = rates[chosen.workers] / rates[1] if rates[1] else float("nan")
        told = ", ".join(f"{count}: {rate:.0f}" for count, rate in rates.items())
        say(f"points per hour by workers: {told}; {ratio:.2f} times")


def _command(folder: Path, output: str) -> list[str]:
    recipe = str(folder / "workers.yaml")
    return [sys.executable, "-m", "shrink", "search", recipe, "--quiet", "--output", output]


def _environment(folder: Path, store: str) -> dict[str, str]:
    return {**os.environ, **ONE_THREAD, "SHRINK_CACHE_DIR": str(folder / store)}


def _searched(folder: Path, count: int, time_s: float) -> list[dict[str, Any]]:
    """Have workers search together, and return what each finished."""
    names = [f"of{count}-{index}" for index in range(count)]
    storage = ["--storage", f"of{count}.journal", "--time", f"{time_s:g}s"]
    begun = [
        subprocess.Popen(
            [*_command(folder, name), *storage, "--seed", str(index)],
            cwd=folder,
            env=_environment(folder, f"store{count}"),
        )
        for index, name in enumerate(names)
    ]
    for one in begun:
        if one.wait() != 0:
            raise SystemExit(f"a worker ended with exit code {one.returncode}")
    rows = [_row(folder / name) for name in names]
    points = [number for row in rows for number in row["points"]]
    assert len(points) == len(set(points)), "a point was trained twice"
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
