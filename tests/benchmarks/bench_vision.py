"""A detector and a U-Net that others designed, through prune and int8.

Run: python -m tests.benchmarks.bench_vision detector [--epochs 40] [--batches 16 32] [--folder F]
     python -m tests.benchmarks.bench_vision segmenter [--epochs 28] [--batches 8 16] [--folder F]

detector: YOLOv3-tiny of a quarter of the width, on the scenes of `digit_boxes` (96 by 96 pixels).
segmenter: the U-Net of 2015 of 3/32 of the width, on scenes of 96 by 96 pixels, each four of
`digit_scenes` side by side: 300 to train on, 60 for validation, 150 to test on.

Each is trained from random weights with every batch of `--batches`; the one whose float model has
the best metric on the validation scenes goes on, whatever it has on the test scenes. The chosen
model is compressed by one recipe: int8 as it is; half of its multiply-accumulates pruned and
fine-tuned for `--tune` epochs, then int8; and, unless `--distill 0` leaves it out, distilled from
the trained model for `--distill` epochs more. `longer` is the chosen model trained for `--tune`
epochs more, as what is fine-tuned has been. `tflite` is what TensorFlow's own converter makes of
the trained model with the same calibration examples. Prints a line of JSON for each: the metric on
all test scenes through LiteRT with its 95 % interval, multiply-accumulates, bytes of the file.
`--folder` keeps recipes, reports and the trained model, which is then not trained again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
import yaml

from shrink.stages.context import StageContext
from shrink.task.artifact import evaluate_artifact
from tests.benchmarks.harness import say_json, stages_of_run, subcommands
from tests.benchmarks.vision_models import ANCHORS, STRIDES
from tests.jobs import context_of

_CALIBRATED = 200
_SCENES = {"train": 300, "val": 60, "test": 150}
_ADAM = {"name": "adam", "schedule": "cosine"}
_FIRST = {"learning_rate": 3e-3}
_MODELS = Path(__file__).with_name("vision_models.py")


def main() -> None:
    """Print what was asked for, in lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(parser, {"detector": detector, "segmenter": segmenter})
    chosen = (("detector", 40, 10, [16, 32]), ("segmenter", 28, 10, [8, 16]))
    for name, epochs, tune, batches in chosen:
        of[name].add_argument("--batches", type=int, nargs="+", default=batches)
        of[name].add_argument("--epochs", type=int, default=epochs)
        of[name].add_argument("--tune", type=int, default=tune)
        of[name].add_argument("--distill", type=int, default=5)
        of[name].add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.folder is not None:
        options.run(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        options.run(options)


def detector(options: argparse.Namespace) -> None:
    """Print what YOLOv3-tiny keeps."""
    decode = {
        "name": "yolo",
        "strides": list(STRIDES),
        "anchors": [[list(one) for one in level] for level in ANCHORS],
    }
    shared = {
        "data": {"source": "digit_boxes"},
        "task": {"decode": decode, "metrics": ["map", "map_50"]},
    }
    _through("yolov3_tiny", shared, "map", options)


def segmenter(options: argparse.Namespace) -> None:
    """Print what the U-Net keeps."""
    path = options.folder.resolve() / "scenes.npz"
    options.folder.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        np.savez(path, allow_pickle=False, **_scenes())
    shared = {
        "data": {"source": "npz", "path": str(path)},
        "task": {"metrics": ["mean_iou", "pixel_accuracy"]},
    }
    _through("unet", shared, "mean_iou", options)


def _scenes() -> dict[str, np.ndarray]:
    """Return arrays of an .npz: four scenes of digits each, side by side."""
    from sklearn.datasets import load_digits

    from shrink.data.scenes import compose, digit_pools

    digits, arrays = load_digits(), {}
    pools = digit_pools(len(digits.target))
    for number, (split, count) in enumerate(_SCENES.items()):
        pool = pools["validation" if split == "val" else split]
        made = compose(digits.images, digits.target, pool, 4 * count, 90 + number)
        for name, values in (("x", made.images), ("y", made.masks)):
            rows = np.concatenate([values[:count], values[count : 2 * count]], axis=1)
            others = np.concatenate([values[2 * count : 3 * count], values[3 * count :]], axis=1)
            arrays[f"{name}_{split}"] = np.concatenate([rows, others], axis=2)
    return arrays


def _trained(
    name: str, shared: dict[str, Any], metric: str, options: argparse.Namespace
) -> tuple[Path, int]:
    """Return the model and the batch that are best on validation scenes, and print each."""
    found: list[tuple[float, Path, int]] = []
    for batch in options.batches:
        out = options.folder.resolve() / f"float-{batch}"
        model = out / "out" / "artifacts" / "00-train.keras"
        if not model.is_file():
            _run(
                out,
                {
                    "name": name,
                    "model": f"{_MODELS}:{name}",
                    **shared,
                    "training": {"global_batch_size": batch, "optimizer": {**_ADAM, **_FIRST}},
                    "stages": [{"train": {"epochs": options.epochs}}],
                },
            )
        context = context_of(out, data=shared["data"], task=shared["task"])
        loaded = keras.models.load_model(model, compile=False)
        flat = out / "validated.tflite"
        flat.write_bytes(tf.lite.TFLiteConverter.from_keras_model(loaded).convert())
        measured = evaluate_artifact(flat, context.dataset.validation, context.task(loaded))
        found.append((measured.defined(metric), model, batch))
        say_json({"model": name, "batch": batch, f"validation {metric}": found[-1][0]})
    _, model, batch = max(found, key=lambda one: one[0])
    return model, batch


def _through(name: str, shared: dict[str, Any], metric: str, options: argparse.Namespace) -> None:
    """Train a model, compress it, and print what every artifact scores."""
    model, batch = _trained(name, shared, metric, options)
    tuned = {"global_batch_size": batch, "optimizer": {**_ADAM, **_FIRST}}
    stages = [
        {"quantize": {"name": "int8", "scheme": "static_wi8_ai8", "from": "baseline"}},
        {"train": {"name": "longer", "from": "baseline", "epochs": options.tune}},
        {
            "prune": {
                "from": "baseline",
                "method": "channels",
                "macs": 0.5,
                "importance": "least_squares",
                "epochs": options.tune,
            }
        },
        {"quantize": {"name": "small_int8", "scheme": "static_wi8_ai8"}},
        *(
            [{"distill": {"student": "prune", "teacher": "baseline", "epochs": options.distill}}]
            if options.distill
            else []
        ),
    ]
    folder = options.folder.resolve() / "small"
    recipe = {"name": f"{name}-small", "model": str(model), **shared, "training": tuned}
    found = _run(folder, {**recipe, "stages": stages})
    for stage, entry in found.items():
        interval = entry["intervals"][metric]
        say_json(
            {
                "model": name,
                "artifact": stage,
                metric: entry["metrics"][metric],
                "low": interval["low"],
                "high": interval["high"],
                "macs": entry["size"]["macs"],
                "bytes": entry["size"]["tflite_bytes"],
            }
        )
    context = context_of(folder, data=shared["data"], task=shared["task"])
    value = _by_converter(model, context, metric, folder)
    say_json({"model": name, "artifact": "baseline, tflite int8", metric: value})


def _run(folder: Path, recipe: dict[str, Any]) -> dict[str, dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    return stages_of_run(folder)


def _by_converter(path: Path, context: StageContext, metric: str, folder: Path) -> float:
    """Return a metric of the int8 file that TensorFlow's converter makes of a model."""
    model = keras.models.load_model(path, compile=False)
    x, _ = context.dataset.train.arrays(np.arange(_CALIBRATED))
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([one[None]] for one in np.asarray(x, np.float32))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    artifact = folder / "converter.tflite"
    artifact.write_bytes(converter.convert())
    found = evaluate_artifact(artifact, context.dataset.test, context.task(model))
    return found.defined(metric)


if __name__ == "__main__":
    main()
