"""Models of Keras 3's `keras.applications`, quantized and pruned as the stages do, and no more.

Run: python -m tests.benchmarks.bench_compressed_applications [NAME ...] [--ratio 0.3]

`bench_keras_applications` takes the same models through `shrink run`, which also measures memory,
latency and each operator's error, and compares the import in float64. Here each model is one
process of about a minute: built by Keras 3 with weights that let the signal through, saved, loaded
by shrink, quantized to int8 with 48 pictures, and 30 % of each group's channels removed by L2 norm,
where the rebuilt model must equal the masked one. `int8 error` is the root of the mean squared
difference of the logits, of their standard deviation, on 16 other pictures; `change` is the same
for a model whose first kernel is 1 % larger, in float32. Prints a row of a Markdown table for each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

_CALIBRATED, _TESTED = 48, 16
_HEADER = (
    "| model | parameters | int8 bytes / float32 | int8 error | change | parameters after pruning "
    "| groups | masked = rebuilt | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def main() -> None:
    """Print the table."""
    from tests.benchmarks.keras3_applications import SMALLEST

    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(SMALLEST))
    parser.add_argument("--ratio", type=float, default=0.3)
    arguments = parser.parse_args()
    _say(_HEADER)
    for name in arguments.names:
        command = [sys.executable, "-m", __spec__.name, "--one", name, str(arguments.ratio)]
        done = subprocess.run(command, capture_output=True, text=True)
        _say(done.stdout.strip() or f"| {name} | {done.stderr.strip()[-600:]} |")


def row(name: str, ratio: float) -> str:
    """Return a row of the table."""
    from shrink.model.load import load_model

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        pictures = _write(Path(folder) / "model.keras", name)
        model = load_model(Path(folder) / "model.keras")
    size, error, change = quantized(model, pictures)
    left, groups, difference = pruned(model, ratio, pictures[_CALIBRATED:])
    seconds = time.perf_counter() - started
    return (
        f"| {name} | {model.count_params():,} | {size:.2f} | {error:.2f} | {change:.2f} "
        f"| {left:.2f} | {groups} | {difference:.1e} | {seconds:.0f} |"
    )


def _write(path: Path, name: str) -> np.ndarray:
    """Write the model; return pictures for it, float32 (48 + 16, side, side, 3)."""
    from tests.benchmarks.keras3_applications import build, pictures_of, randomize

    model = build(name)
    pictures = pictures_of(model, _CALIBRATED + _TESTED)
    randomize(model, pictures[:_CALIBRATED])
    model.save(path)
    return pictures


def quantized(model: Any, pictures: np.ndarray) -> tuple[float, float, float]:
    """Return the int8 file's bytes over the float32 one's, its error, and a small change's."""
    from shrink.quantization.calibration import CalibrationExamples
    from shrink.quantization.source import FloatModel
    from shrink.stages.quantize.config import QuantizeConfig
    from shrink.stages.quantize.schemes import SCHEMES
    from shrink.tflite.interpreter import load
    from tests.unlabelled import UnlabelledExamples

    source, x = FloatModel(model), pictures[_CALIBRATED:]
    examples: Any = UnlabelledExamples(pictures[:_CALIBRATED])
    calibration = CalibrationExamples(examples, _CALIBRATED, 0)
    config = QuantizeConfig.model_validate({"scheme": "static_wi8_ai8"})
    content = SCHEMES[config.scheme](source, calibration, config).content
    wanted = load(source.float32.content).predict(x)[0]
    kernel = next(w for w in model.trainable_weights if "kernel" in w.name)
    before = np.asarray(model(x, training=False))
    kernel.assign(kernel * 1.01)
    after = np.asarray(model(x, training=False))
    kernel.assign(kernel / 1.01)
    size = len(content) / len(source.float32.content)
    return size, _error(load(content).predict(x)[0], wanted), _error(after, before)


def pruned(model: Any, ratio: float, x: np.ndarray) -> tuple[float, int, float]:
    """Return the parameters that are left, the groups, and how far rebuilt is from masked."""
    from shrink.graph.groups import find_groups
    from shrink.graph.rebuild import masked, rebuild, weights_of
    from shrink.pruning.importance import Evidence, l2, least_important
    from shrink.pruning.reconstruct import check_same
    from tests.graph.equivalence import load

    graph = find_groups(model)
    if not graph.groups:
        reasons = {each["reason"] for each in graph.protected}
        raise SystemExit(f"no channels can go: {'; '.join(sorted(reasons))}")
    weights = weights_of(graph)
    evidence = Evidence(weights, dict, dict)
    chosen = [least_important(g, l2(g, evidence), int(ratio * len(g))) for g in graph.groups]
    keep = graph.keep(np.concatenate(chosen))
    smaller = rebuild(graph, keep, weights)
    full = rebuild(graph, graph.keep(np.array([], np.int64)), weights)
    load(full, graph, masked(graph, keep, weights))
    difference = check_same(full, smaller, graph, keep, [x[:8]])
    return smaller.count_params() / model.count_params(), len(graph.groups), difference


def _error(given: np.ndarray, wanted: np.ndarray) -> float:
    deviation = np.sqrt(np.mean((wanted - wanted.mean(axis=0)) ** 2))
    return float(np.sqrt(np.mean((given - wanted) ** 2)) / deviation)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  a benchmark's result


if __name__ == "__main__":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if sys.argv[1:2] == ["--one"]:
        _say(row(sys.argv[2], float(sys.argv[3])))
    else:
        main()
