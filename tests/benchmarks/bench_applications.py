"""Models of Keras 3's `keras.applications`, imported, quantized to int8, and pruned.

Run: python -m tests.benchmarks.bench_applications runs [NAME ...] [--ratio 0.3]
     python -m tests.benchmarks.bench_applications stages [NAME ...] [--ratio 0.3]

The smallest model of every family, or those that are named, with random weights that let the signal
through, gives logits. Both print a row of a Markdown table for each.

runs: `import` is the largest difference between the imported model's outputs and Keras 3's own, of
the largest output, both in float64: networks of random weights amplify the rounding of float32.
`control` is the same with one kernel 1 % larger in Keras 3. Then, in float32, `shrink run`
quantizes it to int8 and prunes its channels; `int8 error` is the root of the mean squared
difference to Keras 3's logits, of their standard deviation. About 2 minutes each.

stages: what the stages do and no more, without memory, latency, each operator's error, and the
import in float64; one process of about a minute for each model. It is built by Keras 3, saved,
loaded by shrink, quantized to int8 with 48 images, and 30 % of each group's channels are removed
by L2 norm, where the rebuilt model must equal the masked one. `int8 error` is as above, on 16 other
images; `change` is the same for a model whose first kernel is 1 % larger, in float32.
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

from tests.benchmarks.harness import apart, say, stages_of_run, subcommands

_WRITER = Path(__file__).with_name("keras3_applications.py")
_SMALLEST = (
    *("ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2"),
    *("InceptionV3", "MobileNet", "MobileNetV2", "MobileNetV3Small", "NASNetMobile", "ResNet50"),
    *("ResNet50V2", "VGG16", "VGG19", "Xception"),
)
_RECIPE = """
name: application
model: model.keras
data: {{source: npz, path: data.npz}}
task: {{loss: mean_squared_error}}
stages:
  - quantize: {{scheme: static_wi8_ai8, calibration_samples: 48}}
  - prune: {{from: baseline, method: channels, ratio: {ratio}, epochs: 0}}
"""
_OF_RUNS = (
    "| model | parameters | import | control | int8 error | int8 bytes / float32 | "
    "parameters after pruning | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|"
)
_CALIBRATED, _TESTED = 48, 16
_OF_STAGES = (
    "| model | parameters | int8 bytes / float32 | int8 error | change | parameters after pruning "
    "| groups | masked = rebuilt | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(parser, {"runs": runs, "stages": stages})
    for each in of.values():
        each.add_argument("names", nargs="*", default=_SMALLEST)
        each.add_argument("--ratio", type=float, default=0.3)
    options = parser.parse_args()
    options.run(options)


def runs(options: argparse.Namespace) -> None:
    """Import, errors and sizes of `shrink run`."""
    say(_OF_RUNS)
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            say(row_of_run(name, measure(Path(folder), name, options.ratio)))


def measure(folder: Path, name: str, ratio: float) -> dict[str, Any]:
    """Return the figures of one model; what fails stands there as text."""
    started = time.perf_counter()
    command = [sys.executable, str(_WRITER), str(folder), name]
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, Any] = apart(compare, folder=str(folder))
    (folder / "recipe.yaml").write_text(_RECIPE.format(ratio=ratio), encoding="utf-8")
    figures["stages"] = stages_of_run(folder, failing=True)
    figures["seconds"] = time.perf_counter() - started
    return figures


def compare(folder: str) -> dict[str, float]:
    """Return how far the imported model's outputs are from Keras 3's, and the control's."""
    from shrink.model.load import load_model

    with np.load(Path(folder, "data.npz")) as data, np.load(Path(folder, "control.npz")) as control:
        x, y, changed = data["x_test"], data["y_test"], control["changed"]
    scale = np.abs(y).max()
    outputs = load_model(Path(folder, "exact.keras"))(x, training=False).numpy()
    return {
        "import": float(np.abs(outputs - y).max() / scale),
        "control": float(np.abs(changed - y).max() / scale),
        "deviation": float(np.sqrt(np.var(y, axis=0).mean())),
    }


def row_of_run(name: str, figures: dict[str, Any]) -> str:
    """Return a row of the table."""
    stages, start = figures["stages"], f"| {name} "
    baseline, quantized, pruned = (stages[key] for key in ("baseline", "quantize", "prune"))
    start += f"| {baseline['size']['parameters']:,} " if baseline["size"] else "| ? "
    start += f"| {figures['import']:.1e} | {figures['control']:.1e} "
    errors = [s["error"]["message"] for s in stages.values() if s["status"] == "failed"]
    if errors:
        return f"{start}| {'; '.join(errors)} |"
    error = np.sqrt(quantized["metrics"]["loss"]) / figures["deviation"]
    smaller = quantized["delta"]["tflite_bytes"]["ratio"]
    left = pruned["delta"]["parameters"]["ratio"]
    return f"{start}| {error:.3f} | {smaller:.2f} | {left:.2f} | {figures['seconds']:.0f} |"


def stages(options: argparse.Namespace) -> None:
    """Errors and sizes of the stages alone."""
    say(_OF_STAGES)
    for name in options.names:
        try:
            say(apart(row_of_stages, name=name, ratio=options.ratio))
        except RuntimeError as error:
            say(f"| {name} | {str(error).strip()[-600:]} |")


def row_of_stages(name: str, ratio: float) -> str:
    """Return a row of the table."""
    from shrink.model.load import load_model

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        images = _write(Path(folder) / "model.keras", name)
        model = load_model(Path(folder) / "model.keras")
    size, error, change = quantized(model, images)
    left, groups, difference = pruned(model, ratio, images[_CALIBRATED:])
    seconds = time.perf_counter() - started
    return (
        f"| {name} | {model.count_params():,} | {size:.2f} | {error:.2f} | {change:.2f} "
        f"| {left:.2f} | {groups} | {difference:.1e} | {seconds:.0f} |"
    )


def _write(path: Path, name: str) -> np.ndarray:
    """Write the model; return images for it, float32 (48 + 16, side, side, 3)."""
    from tests.benchmarks.keras3_applications import build, images_of, randomize

    model = build(name)
    images = images_of(model, _CALIBRATED + _TESTED)
    randomize(model, images[:_CALIBRATED])
    model.save(path)
    return images


def quantized(model: Any, images: np.ndarray) -> tuple[float, float, float]:
    """Return the int8 file's bytes over the float32 one's, its error, and a small change's."""
    from shrink.quantization.calibration import CalibrationExamples
    from shrink.quantization.source import FloatModel
    from shrink.stages.quantize.config import QuantizeConfig
    from shrink.stages.quantize.schemes import SCHEMES
    from shrink.tflite.interpreter import load
    from tests.unlabelled import UnlabelledExamples

    source, x = FloatModel(model), images[_CALIBRATED:]
    examples: Any = UnlabelledExamples(images[:_CALIBRATED])
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
        reasons = {each.reason for each in graph.protected}
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


if __name__ == "__main__":
    main()
