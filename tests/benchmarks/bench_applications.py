"""Models of Keras 3's `keras.applications`, imported, quantized to int8, and pruned.

Run: python -m tests.benchmarks.bench_applications [NAME ...] [--ratio 0.3]

The smallest model of every family, or those that are named, with random weights that let the signal
through, gives logits. Prints a row of a Markdown table for each, in about 2 minutes. `import` is
the largest difference between the imported model's outputs and Keras 3's own, of the largest
output, both in float64: networks of random weights amplify the rounding of float32. `control` is
the same with one kernel 1 % larger in Keras 3. Then, in float32, `shrink run` quantizes it to int8
and prunes its channels; `int8 error` is the root of the mean squared difference to Keras 3's
logits, of their standard deviation.
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

from tests.benchmarks.harness import apart, say, stages_of_run

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
_HEAD = (
    "| model | parameters | import | control | int8 error | int8 bytes / float32 | "
    "parameters after pruning | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|"
)


def main() -> None:
    """Print import, errors and sizes of `shrink run`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=_SMALLEST)
    parser.add_argument("--ratio", type=float, default=0.3)
    options = parser.parse_args()
    say(_HEAD)
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


if __name__ == "__main__":
    main()
