"""What pruned channels cost and are worth: accuracy by file size, and time and memory by MACs.

Run: python -m tests.benchmarks.bench_channels accuracy --model model.h5 --data pictures
         [--epochs 6] [--augment] [--only NAME ...] [--save FOLDER]
     python -m tests.benchmarks.bench_channels speed [--macs 0.5] [--round-to 8] [--only NAME ...]

accuracy: int8 accuracy against file size of a ResNet8 whose channels are pruned by least squares.
`--data` is a folder train/<class>/*.jpg and test/<class>/*.jpg. Without --epochs nothing is
trained. Each line: parameters, accuracy on the validation split, float and int8 accuracy on the
test split, int8 file bytes (scheme static_wi8_ai8, int8 inputs and outputs). What groups cost is
measured once and kept in the store. `--save FOLDER` keeps the pruned models.

speed: what half of the multiply-accumulates is worth in latency, training peak and step.
MobileNetV1-0.25 (visual wake words), DS-CNN (keyword spotting) and the autoencoder of models/, with
random weights, lose channels of every group alike, by their L2 norm, until that part of the MACs is
left. Both models are converted to float32 and int8, and LiteRT runs them by turns, on one thread;
both make training steps of 64 examples, each in a process of its own, on one thread. Times are the
processor's, so that other jobs matter less: the median of an invocation, the least of a step.
`activations` are the bytes of all layers' outputs, which is what a training step holds. Prints
`after / before` of every figure, and both.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from shrink.base.cache import cache_root
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run as prune
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.convert import convert
from tests.benchmarks.harness import ONE_THREAD, accuracy_of, apart, say_json, subcommands
from tests.jobs import context_of

# The groups of MLPerf Tiny's ResNet8, by one layer of each; widths 16, 16, 32, 32, 64, 64.
STREAM_1, INNER_1, INNER_2 = "conv2d", "conv2d_1", "conv2d_3"
STREAM_2, INNER_3, STREAM_3 = "conv2d_4", "conv2d_6", "conv2d_7"
WITHOUT_TRAINING: dict[str, dict[str, Any]] = {
    "inner3-56": {"ratios": {INNER_3: 8 / 64}},
    "inner3-48": {"ratios": {INNER_3: 16 / 64}},
    "inner3-40": {"ratios": {INNER_3: 24 / 64}},
    "everywhere-0.1": {"ratio": 0.1},
}
BY_SENSITIVITY = {"allocation": "sensitivity", "file_precision": "int8"}
WITH_TRAINING: dict[str, dict[str, Any]] = {
    "78KB": {"ratios": {INNER_3: 16 / 64}},
    "60KB": {"file_bytes": 60_000, **BY_SENSITIVITY},
    "60KB-as-found": {"ratios": {STREAM_2: 3 / 32, INNER_3: 29 / 64, STREAM_3: 17 / 64}},
    "60KB-by-hand": {"ratios": {INNER_3: 36 / 64, INNER_2: 4 / 32, STREAM_3: 8 / 64}},
    "40KB": {"file_bytes": 40_000, **BY_SENSITIVITY},
    "40KB-by-hand": {
        "ratios": {INNER_3: 50 / 64, INNER_2: 14 / 32, STREAM_2: 4 / 32, STREAM_3: 24 / 64}
    },
    "40KB-even": {
        "ratios": {INNER_2: 6 / 32, STREAM_2: 8 / 32, INNER_3: 45 / 64, STREAM_3: 30 / 64}
    },
    "half-the-macs-by-hand": {
        "ratios": {
            INNER_1: 7 / 16,
            INNER_2: 16 / 32,
            STREAM_2: 3 / 32,
            INNER_3: 35 / 64,
            STREAM_3: 17 / 64,
        }
    },
    "half-the-macs": {"macs": 0.5, "allocation": "sensitivity"},
}
MODELS = ("mobilenet_v1", "ds_cnn", "autoencoder")
_BATCH, _STEPS_MS, _INVOCATIONS = 64, 3000, 40


def main() -> None:
    """Print what was asked for, in lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(parser, {"accuracy": accuracy, "speed": speed})
    of["accuracy"].add_argument("--model", type=Path, required=True)
    of["accuracy"].add_argument("--data", type=Path, required=True)
    of["accuracy"].add_argument("--epochs", type=int, default=0)
    of["accuracy"].add_argument("--importance", default="least_squares")
    of["accuracy"].add_argument("--learning-rate", type=float, default=1e-3)
    of["accuracy"].add_argument("--alpha", type=float, default=0.5)
    of["accuracy"].add_argument("--samples", type=int, default=400)
    of["accuracy"].add_argument("--steps", type=int, default=1)
    of["accuracy"].add_argument(
        "--augment", action="store_true", help="fine-tune on flips and crops"
    )
    of["accuracy"].add_argument("--batch-size", type=int, default=128)
    of["accuracy"].add_argument("--save", type=Path)
    of["accuracy"].add_argument("--only", nargs="*")
    of["speed"].add_argument("--macs", type=float, default=0.5)
    of["speed"].add_argument("--round-to", type=int, default=1)
    of["speed"].add_argument("--only", nargs="*", default=MODELS)
    options = parser.parse_args()
    options.run(options)


def accuracy(arguments: argparse.Namespace) -> None:
    """Sizes and accuracies for each set of widths."""
    rows = WITH_TRAINING if arguments.epochs else WITHOUT_TRAINING
    for name, target in rows.items():
        if not arguments.only or name in arguments.only:
            say_json({"name": name, **pruned_accuracy(arguments, name, target)})


def pruned_accuracy(
    arguments: argparse.Namespace, name: str, target: dict[str, Any]
) -> dict[str, Any]:
    """Prune, convert to int8, and evaluate both."""
    context = open_context(arguments)
    started = time.perf_counter()
    settings = {"teacher": "self", "alpha": arguments.alpha} if arguments.epochs else {}
    config = PruneConfig(
        method="channels",
        steps=arguments.steps,
        importance=arguments.importance,
        samples=arguments.samples,
        epochs=arguments.epochs,
        **settings,
        **target,
    )
    result = prune(config, context)
    pruned_s = time.perf_counter() - started
    model = result.model
    assert model is not None
    examples = CalibrationExamples(context.dataset.train, 500, 0)
    config8 = QuantizeConfig(input_type="int8", output_type="int8")
    int8 = SCHEMES["static_wi8_ai8"](FloatModel(model), examples, config8).content
    if arguments.save:
        arguments.save.mkdir(parents=True, exist_ok=True)
        model.save(arguments.save / f"{name}.keras")
        (arguments.save / f"{name}.tflite").write_bytes(int8)
    return {
        "parameters": model.count_params(),
        "int8_file_bytes": len(int8),
        "validation_accuracy": validation_accuracy(result),
        "float_accuracy": round(accuracy_of(convert(model, "float32").content, context, model), 4),
        "int8_accuracy": round(accuracy_of(int8, context, model), 4),
        "prune_s": round(pruned_s, 1),
        "notes": list(result.notes),
    }


def validation_accuracy(result: StageResult) -> float | None:
    """Return what the fine-tuned model reaches on the validation split, to choose settings by."""
    if result.training is None:
        return None
    return round(result.training.history["val_accuracy"][-1], 4)


def open_context(arguments: argparse.Namespace) -> StageContext:
    """Return what a stage of a recipe would be given."""
    training = {
        "global_batch_size": arguments.batch_size,
        "optimizer": {
            "name": "adam",
            "learning_rate": arguments.learning_rate,
            "schedule": "cosine",
        },
    }
    data: dict[str, Any] = {"source": "images", "path": str(arguments.data), "cache": "memory"}
    if arguments.augment:
        data["augment"] = {"flip": "horizontal", "crop": 4}
    return context_of(
        Path(),
        kind="prune",
        inputs={"model": Path(arguments.model)},
        data=data,
        training=training,
        sensitivities=cache_root() / "sensitivities",
    )


def speed(options: argparse.Namespace) -> None:
    """Figures of each model before and after."""
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(name, options.macs, options.round_to, Path(folder))
        say_json({"model": name, **found})


def measure(name: str, macs: float, round_to: int, folder: Path) -> dict[str, Any]:
    """Prune a model of models/ and return all figures before and after."""
    figures, artifacts = halved(name, macs, round_to, folder)
    for kind in ("float32", "int8"):
        times = latencies([one[kind] for one in artifacts])
        for row, content, ms in zip(figures, (one[kind] for one in artifacts), times, strict=True):
            row |= {f"{kind}_bytes": len(content), f"{kind}_ms": ms}
    # TensorFlow's usual allocator on CPUs does not count tensors below 256 KiB.
    environment = {**ONE_THREAD, "TF_CPU_ALLOCATOR_USE_BFC": "true"}
    for n, row in enumerate(figures):
        row |= apart(training, environment=environment, path=str(folder / f"{n}.keras"))
    before, after = figures
    return {"ratio": {k: round(after[k] / before[k], 3) for k in before}, "figures": figures}


def halved(
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

    return sum(row.activation_bytes for row in layer_memory(model, _BATCH)) / 1e6


def artifacts_of(model: Any, x: np.ndarray) -> dict[str, bytes]:
    """Convert to float32 and int8."""
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


def training(path: str) -> dict[str, float]:
    """Return peak and least processor time of a training step on 64 examples."""
    import tf_keras as keras

    from shrink.engine.config import TrainingConfig
    from shrink.engine.devices import open_devices
    from shrink.engine.objective import SupervisedObjective
    from shrink.engine.probe import TrainingStep
    from shrink.engine.trainer import TrainingSetup
    from shrink.tools.profile import zeros_for

    config = TrainingConfig(global_batch_size=_BATCH)
    devices = open_devices(config)
    with devices.scope():
        model = keras.models.load_model(path, compile=False)
    objective = SupervisedObjective("mean_squared_error", from_logits=True)
    step = TrainingStep(TrainingSetup(model, objective, config, devices), zeros_for(model, _BATCH))
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
