"""What `training.recompute` saves and costs: peak memory and time per example, side by side.

Run it with `python -m tests.benchmarks.bench_recompute [--depth 50] [--batch-size 64]` on an idle
machine. Each setting trains the same steps on the same random pictures in a process of its own;
the first step, which builds the graph, is not timed. Weights after the same updates are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from shrink.contract.codec import from_plain

ROOT = Path(__file__).parents[2]
SETTINGS = ("off", "auto")


def main() -> None:
    """Print peak, time and weights of each setting, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=50, help="layers of the residual network")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1, help="alternating; the best time counts")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS))
    parser.add_argument("--measure", help="internal: measure this setting and print JSON")
    given = parser.parse_args()
    if given.measure:
        sys.stdout.write("RESULT" + json.dumps(measure(given.measure, given)) + "\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(given, Path(folder))


def compare(given: Any, folder: Path) -> None:
    """Measure every setting in fresh processes, and print."""
    rounds = [(r, setting) for r in range(given.rounds) for setting in given.settings]
    results: dict[str, dict[str, Any]] = {}
    for _, setting in rounds:
        result = in_fresh_process(setting, given, folder)
        before = results.setdefault(setting, result)
        before["ms_per_example"] = min(before["ms_per_example"], result["ms_per_example"])
    plain = results[given.settings[0]]
    say(f"resnet{given.depth}, batch of {given.batch_size}, load {os.getloadavg()[0]:.1f}")
    say("recompute      peak  ratio  ms/example  ratio  largest weight difference")
    for setting, result in results.items():
        peak, ms = result["peak_bytes"], result["ms_per_example"]
        say(
            f"{setting:<9} {peak / 1e6:6.1f} MB  {peak / plain['peak_bytes']:5.2f}  {ms:10.2f}"
            f"  {ms / plain['ms_per_example']:5.2f}  {distance(folder, setting, given):.1e}"
        )


def in_fresh_process(setting: str, given: Any, folder: Path) -> dict[str, Any]:
    """Return a setting's figures; its weights are left in `folder`."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_recompute", "--measure", setting]
    for name in ("depth", "batch_size", "steps"):
        command += ["--" + name.replace("_", "-"), str(getattr(given, name))]
    settings = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "BENCH": str(folder)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.rsplit("RESULT", 1)[1]))


def measure(setting: str, given: Any) -> dict[str, Any]:
    """Train a few steps, and return the peak in bytes and the time per example."""
    import numpy as np
    import tf_keras as keras

    from models.resnet import build
    from shrink.contract.training import Training
    from shrink.data.dataset import Dataset
    from shrink.engine.devices import open_devices
    from shrink.engine.fit import train
    from shrink.engine.objective import SupervisedObjective
    from tests.engine._scenarios import ArrayExamples

    random, count = np.random.default_rng(0), given.batch_size * given.steps
    part = ArrayExamples(
        random.integers(0, 256, (count, 32, 32, 3), np.uint8), random.integers(0, 10, count)
    )
    rest = ArrayExamples(np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, np.int64))
    config = from_plain(
        Training,
        {
            "global_batch_size": given.batch_size,
            "optimizer": {"name": "sgd", "learning_rate": 1e-3},
            "recompute": int(setting) if setting.isdecimal() else setting,
        },
    )
    keras.utils.set_random_seed(0)
    model = build(depth=given.depth)
    record = train(
        model,
        Dataset(part, validation=rest, test=rest, class_names=(), num_classes=10),
        objective=SupervisedObjective("sparse_categorical_crossentropy", from_logits=True),
        config=config,
        devices=open_devices(config),
        epochs=1,
        metrics=(),
        monitor="loss",
    )
    weights = {str(n): w for n, w in enumerate(model.get_weights())}
    np.savez(weights_path(Path(os.environ["BENCH"]), setting), **weights)
    rate = record.examples_per_s or float("nan")
    return {"peak_bytes": record.training_peak_bytes.value, "ms_per_example": 1000 / rate}


def weights_path(folder: Path, setting: str) -> Path:
    """Return where a setting's weights are left."""
    return folder / f"{setting}.npz"


def distance(folder: Path, setting: str, given: Any) -> float:
    """Return the largest absolute difference of a setting's weights from the first one's."""
    import numpy as np

    one = np.load(weights_path(folder, given.settings[0]))
    other = np.load(weights_path(folder, setting))
    return max(float(np.abs(one[name] - other[name]).max()) for name in one.files)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
