"""A detector and a U-Net that others designed, through prune and int8.

Run: python -m tests.benchmarks.bench_vision detector [--epochs 120] [--batches 16] [--folder F]
     python -m tests.benchmarks.bench_vision segmenter [--epochs 160] [--batches 4] [--folder F]
     python -m tests.benchmarks.bench_vision temperatures --folder F [--temperatures 4 2 1 0.5 0.25]

detector: YOLOv3-tiny of a quarter of the width, on the scenes of digits-detect (96 by 96 pixels),
moved by up to 8 pixels while it trains: unmoved it learns its 1,050 scenes by heart.
segmenter: the U-Net of 2015 of 3/32 of the width, on scenes of 96 by 96 pixels, each four of
digits-segment side by side: 300 to train on, 60 for validation, 150 to test on.

Each is trained from random weights with every batch of `--batches`; the one whose float model has
the best metric on the validation scenes goes on, whatever it has on the test scenes. The chosen
model is compressed by one recipe: int8 as it is; half of its multiply-accumulates pruned and
fine-tuned for `--tune` epochs, then int8; and, unless `--distill 0` leaves it out, distilled from
the trained model for `--distill` epochs more, which are compared with as many without a teacher.
`longer` is the chosen model trained for `--tune` epochs more, as what is fine-tuned has been.
`tflite` is what TensorFlow's own converter makes of the trained model with the same calibration
examples. Prints a line of JSON for each: the metric on all test scenes through LiteRT with its 95 %
interval, multiply-accumulates, bytes of the file.
temperatures: the detector that `detector --folder F` has trained, pruned once, and what it has on
validation scenes after `--tune` epochs under its teacher at each temperature, and without one.

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

from shrink.recipe.bundle import bundled_root
from shrink.stages.context import StageContext
from shrink.task.artifact import evaluate_artifact
from tests.benchmarks.harness import say_json, stages_of_run, subcommands
from tests.benchmarks.vision_models import ANCHORS, STRIDES
from tests.jobs import context_of

_CALIBRATED = 200
_SCENES = {"train": 300, "val": 60, "test": 150}
_ADAM = {"name": "adam", "schedule": "cosine"}
_FIRST = {"learning_rate": 3e-3}
_OF_DETECTOR = {"temperature": 0.5, "training": {"optimizer": {**_ADAM, "learning_rate": 5e-3}}}
_TAUGHT = {"student": "prune", "teacher": "baseline", "control": True}
_MODELS = Path(__file__).with_name("vision_models.py")


def main() -> None:
    """Print what was asked for, in lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(
        parser, {"detector": detector, "segmenter": segmenter, "temperatures": temperatures}
    )
    chosen = (("detector", 120, 10, [16]), ("segmenter", 160, 10, [4]))
    for name, epochs, tune, batches in chosen:
        of[name].add_argument("--batches", type=int, nargs="+", default=batches)
        of[name].add_argument("--epochs", type=int, default=epochs)
        of[name].add_argument("--tune", type=int, default=tune)
        of[name].add_argument("--distill", type=int, default=5)
        of[name].add_argument("--folder", type=Path)
    of["temperatures"].add_argument("--folder", type=Path, required=True)
    of["temperatures"].add_argument("--batches", type=int, nargs=1, default=[16])
    of["temperatures"].add_argument("--tune", type=int, default=10)
    of["temperatures"].add_argument("--rate", type=float, default=_FIRST["learning_rate"])
    asked = [4.0, 2.0, 1.0, 0.5, 0.25]
    of["temperatures"].add_argument("--temperatures", type=float, nargs="+", default=asked)
    options = parser.parse_args()
    if options.folder is not None:
        options.run(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        options.run(options)


def detector(options: argparse.Namespace) -> None:
    """Print what YOLOv3-tiny keeps."""
    _through("yolov3_tiny", _of_boxes(), "map", options, _OF_DETECTOR)


def temperatures(options: argparse.Namespace) -> None:
    """Print what the pruned detector has on validation scenes, by its teacher's temperature."""
    (batch,) = options.batches
    out = options.folder.resolve() / f"float-{batch}"
    model = out / "out" / "artifacts" / "00-train.keras"
    if not model.is_file():
        raise SystemExit(f"no {model}: run `detector --folder {options.folder}` first")
    prune = {"method": "channels", "macs": 0.5, "importance": "least_squares", "epochs": 0}
    taught = [
        {"distill": {"name": f"t{n}", "student": "prune", "teacher": "baseline",
                     "temperature": temperature, "epochs": options.tune}}
        for n, temperature in enumerate(options.temperatures)
    ]  # fmt: skip
    alone = {"train": {"name": "alone", "from": "prune", "epochs": options.tune}}
    rate = {"optimizer": {**_ADAM, "learning_rate": options.rate}}
    shared, folder = _of_boxes(), options.folder.resolve() / "temperatures"
    recipe = {"name": "temperatures", "model": str(model), **shared}
    training = {"global_batch_size": batch, **rate}
    found = _run(
        folder, {**recipe, "training": training, "stages": [{"prune": prune}, *taught, alone]}
    )
    named = {f"t{n}": value for n, value in enumerate(options.temperatures)}
    for stage, entry in found.items():
        artifact = model if stage == "baseline" else folder / "out" / entry["artifact"]
        value = _on_validation(artifact, shared, "map", folder)
        say_json({"artifact": stage, "temperature": named.get(stage), "validation map": value})


def _of_boxes() -> dict[str, Any]:
    """Return data and task of the detector."""
    decode = {
        "name": "yolo",
        "strides": list(STRIDES),
        "anchors": [[list(one) for one in level] for level in ANCHORS],
    }
    return {
        "data": {
            "source": "python",
            "path": str(bundled_root() / "recipes" / "data" / "digit_scenes.py:boxes"),
            "targets": ["boxes"],
            "classes": [str(digit) for digit in range(10)],
            "augment": {"crop": 8},
        },
        "task": {"decode": decode, "metrics": ["map", "map_50"]},
    }


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
    _through("unet", shared, "mean_iou", options, {})


def _scenes() -> dict[str, np.ndarray]:
    """Return arrays of an .npz: four scenes of digits each, side by side."""
    from sklearn.datasets import load_digits

    from recipes.data.digit_scenes import digit_pools, with_masks

    digits, arrays = load_digits(), {}
    pools = digit_pools(len(digits.target))
    for number, (split, count) in enumerate(_SCENES.items()):
        pool = pools["validation" if split == "val" else split]
        made = with_masks(digits.images, digits.target, pool, 4 * count, 90 + number)
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
        found.append((_on_validation(model, shared, metric, out), model, batch))
        say_json({"model": name, "batch": batch, f"validation {metric}": found[-1][0]})
    _, model, batch = max(found, key=lambda one: one[0])
    return model, batch


def _on_validation(path: Path, shared: dict[str, Any], metric: str, folder: Path) -> float:
    """Return a metric of a Keras model on the validation scenes, through LiteRT."""
    context = context_of(folder, data=shared["data"], task=shared["task"])
    loaded = keras.models.load_model(path, compile=False)
    flat = folder / "validated.tflite"
    flat.write_bytes(tf.lite.TFLiteConverter.from_keras_model(loaded).convert())
    found = evaluate_artifact(flat, context.dataset.validation, context.task(loaded))
    return found.defined(metric)


def _through(
    name: str,
    shared: dict[str, Any],
    metric: str,
    options: argparse.Namespace,
    tuning: dict[str, Any],
) -> None:
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
                **tuning,
            }
        },
        {"quantize": {"name": "small_int8", "scheme": "static_wi8_ai8"}},
        *([{"distill": {**_TAUGHT, "epochs": options.distill}}] if options.distill else []),
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
                **_without_teacher(entry, metric),
            }
        )
    context = context_of(folder, data=shared["data"], task=shared["task"])
    value = _by_converter(model, context, metric, folder)
    say_json({"model": name, "artifact": "baseline, tflite int8", metric: value})


def _without_teacher(entry: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return what the student of a stage has without its teacher, where that was measured."""
    control = (entry["details"] or {}).get("control")
    return {"without teacher": control["alone"][metric]} if control else {}


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
