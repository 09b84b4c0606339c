"""Every scheme on every model of models/: does the artifact run, and does it stay integer?

Run: python -m tests.benchmarks.bench_every_scheme [--only NAME ...] [--model FILE ...]

One `shrink run` for each model, with a stage for each scheme; --model adds trained files. Weights
of models/ and all examples are random. Each artifact is run by LiteRT, int8 ones by TFLite Micro as
well (`target: tflm`). Prints a row of a Markdown table for each artifact: bytes,
operators that compute in float, and how near its outputs are to the float file's, in dB; `micro`
is how near TFLite Micro's outputs are to LiteRT's.
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

from tests.benchmarks.bench_tiny_sizes import random_model

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

MODELS = ("digits_cnn", "resnet", "ds_cnn", "mobilenet_v1", "autoencoder")
SCHEMES: dict[str, str] = {
    "float32": "",
    "float16": "",
    "dynamic_wi8_afp32": "",
    "weight_only_wi8_afp32": "",
    "static_wi8_ai8": ", target: tflm",
    "static_wi8_ai16": "",
    "dynamic_wi4_afp32": "",
    "weight_only_wi4_afp32": "",
    "mixed": ", file_bytes: 10MB",
}
_RECIPE = """
name: schemes
model: model.keras
data: {source: npz, path: data.npz}
task: {loss: mean_squared_error, metrics: [mean_squared_error]}
stages:
"""
_EXAMPLES = 120


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=MODELS)
    parser.add_argument("--model", nargs="*", default=[], type=Path)
    options = parser.parse_args()
    _say("| model | scheme | bytes | float operators | to float, dB | micro, dB |")
    _say("|---|---|--:|---|--:|--:|")
    for name in (*options.only, *options.model):
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(Path(folder), name):
                _say(row)


def rows(folder: Path, name: str | Path) -> list[str]:
    """Return the rows of one model."""
    _write_model(folder, name)
    stages = [
        f"  - quantize: {{name: {scheme}, from: baseline, scheme: {scheme}{more}}}\n"
        for scheme, more in SCHEMES.items()
    ]
    (folder / "recipe.yaml").write_text(_RECIPE + "".join(stages), encoding="utf-8")
    command = [sys.executable, "-m", "shrink", "run", "recipe.yaml", "--output", "out", "--quiet"]
    environment = {**os.environ, "SHRINK_CACHE_DIR": str(folder / "store")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if not (folder / "out" / "report.json").is_file():
        raise SystemExit(done.stderr)
    stages_found = json.loads((folder / "out" / "report.json").read_text("utf-8"))["stages"]
    return [_row(Path(name).stem, stage) for stage in stages_found if stage["name"] != "baseline"]


def _write_model(folder: Path, name: str | Path) -> None:
    import numpy as np
    import tf_keras as keras

    random = np.random.default_rng(0)
    if isinstance(name, Path):
        model = keras.models.load_model(name, compile=False)
    else:
        model = random_model(name, random)
    x = random.random((_EXAMPLES, *model.input_shape[1:]), dtype=np.float32)
    y = np.asarray(model(x[:_EXAMPLES], training=False))
    model.save(folder / "model.keras")
    cut = _EXAMPLES - 20
    np.savez(folder / "data.npz", x_train=x[:cut], y_train=y[:cut], x_test=x[cut:], y_test=y[cut:])


def _row(model: str, stage: dict[str, Any]) -> str:
    details = (stage.get("details") or {}).get("audit")
    if details is None:
        return f"| {model} | {stage['name']} | {stage.get('error') or stage.get('status')} | | | |"
    size = stage["size"]["tflite_bytes"]
    near = {each["compared"]: each["snr_db"] for each in details["agreement"]}
    floats = ", ".join(sorted(set(details["float_islands"]))) or "none"
    quantized = _db(near, "to quantized")
    return (
        f"| {model} | {stage['name']} | {size:,} | {floats} | {quantized} | {_db(near, 'tflm')} |"
    )


def _db(near: dict[str, float | None], ending: str) -> str:
    """Return what was compared last and ends so, in dB; nothing where nothing was."""
    found = [snr for compared, snr in near.items() if compared.endswith(ending)]
    if not found:
        return ""
    return "no difference" if found[-1] is None else f"{found[-1]:.1f}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
