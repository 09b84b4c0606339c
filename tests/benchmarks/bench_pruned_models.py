"""What half of the multiply-accumulates is worth: latency, training peak and step, side by side.

Run: python -m tests.benchmarks.bench_pruned_models [--macs 0.5] [--round-to 8] [--only NAME ...]

MobileNetV1-0.25 (visual wake words), DS-CNN (keyword spotting) and the autoencoder of models/, with
random weights, lose channels of every group alike, by their L2 norm, until that part of the MACs is
left. Both models are converted to float32 and int8, and LiteRT runs them by turns, on one thread;
both make training steps of 64 examples, each in a process of its own, on one thread. Times are the
processor's, so that other jobs matter less: the median of an invocation, the least of a step.
`activations` are the bytes of all layers' outputs, which is what a training step holds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

MODELS = ("mobilenet_v1", "ds_cnn", "autoencoder")
_BATCH, _STEPS_MS, _INVOCATIONS = 64, 3000, 40


def main() -> None:
    """Print a line of JSON for each model: `after / before` of every figure, and both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--macs", type=float, default=0.5)
    parser.add_argument("--round-to", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=MODELS)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        sys.stdout.write(json.dumps(training(arguments.train)) + "\n")
        return
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(name, arguments.macs, arguments.round_to, Path(folder))
        sys.stdout.write(json.dumps({"model": name, **found}) + "\n")
        sys.stdout.flush()


def measure(name: str, macs: float, round_to: int, folder: Path) -> dict[str, Any]:
    """Prune a model of models/ and return all figures before and after."""
    figures, artifacts = prune(name, macs, round_to, folder)
    for kind in ("float32", "int8"):
        times = latencies([one[kind] for one in artifacts])
        for row, content, ms in zip(figures, (one[kind] for one in artifacts), times, strict=True):
            row |= {f"{kind}_bytes": len(content), f"{kind}_ms": ms}
    for n, row in enumerate(figures):
        row |= train(folder / f"{n}.keras")
    before, after = figures
    return {"ratio": {k: round(after[k] / before[k], 3) for k in before}, "figures": figures}


def prune(
    name: str, macs: float, round_to: int, folder: Path
) -> tuple[list[dict[str, Any]], list[dict[str, bytes]]]:
    """Save the model and the smaller one, and convert both."""
    from shrink.graph.groups import find_groups
    from shrink.graph.rebuild import masked, rebuild, weights_of
    from shrink.pruning.allocation import by_budget, uniform
    from shrink.pruning.importance import Evidence, l2, least_important
    from shrink.pruning.reconstruct import check_same
    from tests.graph.equivalence import load, randomise

    original = importlib.import_module(f"models.{name}").build()
    randomise(original)
    graph = find_groups(original)
    everything, weights = graph.keep(np.array([])), weights_of(graph)
    budget = macs * graph.macs(everything)
    counts = by_budget(graph, graph.macs, budget, "macs", uniform(graph.groups, round_to))
    evidence = Evidence(weights, dict, dict)
    removed = [
        least_important(group, l2(group, evidence), count)
        for group, count in zip(graph.groups, counts, strict=True)
    ]
    keep = graph.keep(np.concatenate(removed))
    full, small = rebuild(graph, everything, weights), rebuild(graph, keep, weights)
    same = rebuild(graph, everything, weights)
    load(same, graph, masked(graph, keep, weights))
    x = np.random.default_rng(0).random((100, *original.input_shape[1:]), dtype=np.float32)
    check_same(same, small, graph, keep, [x[:8]])
    rows = []
    for n, (model, labels) in enumerate(((full, everything), (small, keep))):
        model.save(folder / f"{n}.keras")
        cost = {"macs": graph.macs(labels), "parameters": graph.parameters(labels)}
        rows.append({**cost, "activations_mb": activations_mb(model)})
    return rows, [artifacts_of(model, x) for model in (full, small)]


def activations_mb(model: Any) -> float:
    """Return the outputs of all layers for one batch."""
    from shrink.tools.profile import layer_memory

    return sum(row["activation_bytes"] for row in layer_memory(model, _BATCH)) / 1e6


def artifacts_of(model: Any, x: np.ndarray) -> dict[str, bytes]:
    """Convert to float32 and int8."""
    from shrink.tflite.convert import convert

    samples = [{"x": row[None]} for row in x]
    int8 = convert(model, "static_int8", samples, "int8", "int8").content
    return {"float32": convert(model, "float32").content, "int8": int8}


def latencies(contents: list[bytes]) -> list[float]:
    """Return the median processor time of one invocation of each, in ms, taken by turns."""
    from ai_edge_litert.interpreter import Interpreter

    interpreters = [Interpreter(model_content=content, num_threads=1) for content in contents]
    for one in interpreters:
        one.allocate_tensors()
        one.invoke()
    times: list[list[float]] = [[] for _ in interpreters]
    for _ in range(_INVOCATIONS):
        for one, found in zip(interpreters, times, strict=True):
            started = time.thread_time()
            for _ in range(20):
                one.invoke()
            found.append((time.thread_time() - started) * 1e3 / 20)
    return [float(np.median(found)) for found in times]


def train(model: Path) -> dict[str, float]:
    """Return what `training` finds out in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_pruned_models", "--train", str(model)]
    # Threads that wait for work spin, which would count as time where other jobs run, too; and
    # TensorFlow's usual allocator on CPUs does not count tensors below 256 KiB.
    settings = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    settings |= {"TF_CPU_ALLOCATOR_USE_BFC": "true", **os.environ}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=settings).stdout
    return dict(json.loads(found.splitlines()[-1]))


def training(path: Path) -> dict[str, float]:
    """Return peak and least processor time of a training step on 64 examples."""
    import tf_keras as keras

    from shrink.contract.training import Training
    from shrink.engine.devices import open_devices
    from shrink.engine.objective import SupervisedObjective
    from shrink.engine.probe import TrainingStep
    from shrink.tools.profile import zeros_for

    config = Training(global_batch_size=_BATCH)
    devices = open_devices(config)
    with devices.scope():
        model = keras.models.load_model(path, compile=False)
    objective = SupervisedObjective("mean_squared_error", from_logits=True)
    step = TrainingStep(model, zeros_for(model, _BATCH), objective, config, devices)
    step.use_no_loop()
    batches = step.batches(_BATCH)
    step.make_update(batches)
    peak = step.peak_of(lambda: step.make_update(batches))
    times: list[float] = []
    while sum(times) < _STEPS_MS:
        started = time.process_time()
        step.make_update(batches)
        times.append((time.process_time() - started) * 1e3)
    return {"training_peak_mb": peak / 1e6, "step_ms": min(times)}


if __name__ == "__main__":
    main()
