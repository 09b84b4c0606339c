"""The smallest of every family of Keras 3's `keras.applications`: imported, quantized and pruned.

Run: python tests/benchmarks/bench_keras_applications.py [--only NAME ...] [--ratio 0.3]

Each model has random weights that let the signal through and gives logits. `import` is the largest
difference between the imported model's outputs and Keras 3's own, of the largest output, both in
float64: networks of random weights amplify the rounding of float32. `control` is the same with one
kernel 1 % larger in Keras 3. Then, in float32, `shrink run` quantizes it to int8 and prunes
its channels; `int8 error` is the root of the mean squared difference to Keras 3's logits, of their
standard deviation. Prints a row of a Markdown table for each model, about 2 minutes each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

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
_HEADER = (
    "| model | parameters | import | control | int8 error | int8 bytes / float32 | "
    "parameters after pruning | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|"
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=_SMALLEST)
    parser.add_argument("--ratio", type=float, default=0.3)
    arguments = parser.parse_args()
    _say(_HEADER)
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            _say(row(name, measure(Path(folder), name, arguments.ratio)))


def measure(folder: Path, name: str, ratio: float) -> dict[str, Any]:
    """Return the figures of one model; what fails stands there as text."""
    started = time.perf_counter()
    _run([sys.executable, str(_WRITER), str(folder), name], {"TF_USE_LEGACY_KERAS": "0"})
    figures: dict[str, Any] = json.loads(
        _run([sys.executable, __file__, "--compare", str(folder)]).splitlines()[-1]
    )
    (folder / "recipe.yaml").write_text(_RECIPE.format(ratio=ratio), encoding="utf-8")
    command = [sys.executable, "-m", "shrink", "run", "recipe.yaml", "--output", "out", "--quiet"]
    store = {"SHRINK_CACHE_DIR": str(folder / "store")}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **store}, capture_output=True, text=True
    )
    if not (folder / "out" / "report.json").is_file():
        raise SystemExit(done.stderr)
    stages = json.loads((folder / "out" / "report.json").read_text("utf-8"))["stages"]
    figures["stages"] = {stage["name"]: stage for stage in stages}
    figures["error"] = done.stderr.strip() if done.returncode else ""
    figures["seconds"] = time.perf_counter() - started
    return figures


def compare(folder: Path) -> dict[str, float]:
    """Return how far the imported model's outputs are from Keras 3's, and the control's."""
    from shrink.model.load import load_model

    with np.load(folder / "data.npz") as data, np.load(folder / "control.npz") as control:
        x, y, changed = data["x_test"], data["y_test"], control["changed"]
    scale = np.abs(y).max()
    outputs = load_model(folder / "exact.keras")(x, training=False).numpy()
    return {
        "import": float(np.abs(outputs - y).max() / scale),
        "control": float(np.abs(changed - y).max() / scale),
        "deviation": float(np.sqrt(np.var(y, axis=0).mean())),
    }


def row(name: str, figures: dict[str, Any]) -> str:
    """Return a row of the table."""
    stages, start = figures["stages"], f"| {name} "
    baseline, quantized, pruned = (stages[key] for key in ("baseline", "quantize", "prune"))
    start += f"| {baseline['size']['parameters']:,} " if baseline["size"] else "| ? "
    start += f"| {figures['import']:.1e} | {figures['control']:.1e} "
    if figures["error"]:
        return f"{start}| {figures['error']} |"
    error = np.sqrt(quantized["metrics"]["loss"]) / figures["deviation"]
    smaller = quantized["delta"]["tflite_bytes"]["ratio"]
    left = pruned["delta"]["parameters"]["ratio"]
    return f"{start}| {error:.3f} | {smaller:.2f} | {left:.2f} | {figures['seconds']:.0f} |"


def _run(command: list[str], more: dict[str, str] | None = None) -> str:
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", **(more or {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  a benchmark's result


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        _say(json.dumps(compare(Path(sys.argv[2]))))
    else:
        main()
