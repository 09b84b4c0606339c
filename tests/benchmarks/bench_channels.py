"""Accuracy by file size of a ResNet8 whose channels are pruned by least squares.

Run: python -m tests.benchmarks.bench_channels --model model.h5 --data pictures
         [--epochs 6] [--augment] [--only NAME ...] [--save FOLDER]

`--data` is a folder train/<class>/*.jpg and test/<class>/*.jpg. Without --epochs nothing is
trained. Each line: parameters, accuracy on the validation split, float and int8 accuracy on the
test split, int8 file bytes (scheme static_wi8_ai8, int8 inputs and outputs). What groups cost is
measured once and kept in the store. `--save FOLDER` keeps the pruned models.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from shrink.base.cache import cache_root
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext, StageResult
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run as prune
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.convert import convert
from tests.benchmarks.harness import accuracy_of, say_json
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


def main() -> None:
    """Print sizes and accuracies for each set of widths, in lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--importance", default="least_squares")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--augment", action="store_true", help="fine-tune on flips and crops")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
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


if __name__ == "__main__":
    main()
