"""CPU time to calibrate and convert to int8: shrink's worker against a hand-written script.

Run: python tests/benchmarks/bench_convert.py --model model.h5 --data pictures [--runs 5]

`--data` is a folder train/<class>/*.jpg. Each side runs in a process of its own, alternating;
imports are left out on both sides. Both read the same 500 training pictures, chosen beforehand,
and produce a full int8 artifact with int8 inputs and outputs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

_BY_HAND = """
import json, sys, time
import numpy as np, tensorflow as tf, tf_keras as keras
model_path, folder, paths = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3]))
started = time.process_time()
model = keras.models.load_model(model_path, compile=False)
def examples():
    for path in paths:
        picture = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        yield [tf.cast(picture, tf.float32)[None]]
converter = tf.lite.TFLiteConverter.from_keras_model(model)
converter.optimizations = [tf.lite.Optimize.DEFAULT]
converter.representative_dataset = examples
converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
converter.inference_input_type = converter.inference_output_type = tf.int8
content = converter.convert()
print(json.dumps({"cpu_s": time.process_time() - started, "bytes": len(content)}))
"""

_BY_SHRINK = """
import json, sys, time
from pathlib import Path
import shrink.run.execute
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.run import run
from tests.jobs import context_of
model_path, folder = sys.argv[1], sys.argv[2]
data = {"source": "images", "path": folder}
context = context_of(Path("."), kind="quantize", inputs={"model": Path(model_path)}, data=data)
started = time.process_time()
context.dataset
opened = time.process_time() - started
started = time.process_time()
result = run(QuantizeConfig(), context)
print(json.dumps({"cpu_s": time.process_time() - started, "open_s": opened,
                  "bytes": len(result.tflite)}))
"""


def main() -> None:
    """Alternate both sides and print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--runs", default=5, type=int)
    options = parser.parse_args()
    arguments = [str(options.model.resolve()), str(options.data.resolve())]
    chosen = Path(os.environ.get("TMPDIR", "/tmp")) / "bench_convert_pictures.json"
    chosen.write_text(json.dumps(calibration_paths(options.data)), encoding="utf-8")
    hand, ours = [], []
    for _ in range(options.runs):
        hand.append(measured(_BY_HAND, *arguments, str(chosen)))
        ours.append(measured(_BY_SHRINK, *arguments))
    a = statistics.median(r["cpu_s"] for r in hand)
    b = statistics.median(r["cpu_s"] for r in ours)
    opening = statistics.median(r["open_s"] for r in ours)
    write = sys.stdout.write
    write(f"by hand  {a:6.2f} s CPU  {hand[0]['bytes']:,} bytes\n")
    write(f"shrink   {b:6.2f} s CPU  {ours[0]['bytes']:,} bytes\n")
    write(f"ratio    {b / a:6.2f}    median of {options.runs} alternating runs\n")
    write(f"opening and splitting the data set, not counted: {opening:.2f} s CPU\n")


def calibration_paths(folder: Path) -> list[str]:
    """Return 500 training pictures, the same number of each class."""
    classes = sorted(p for p in (folder / "train").iterdir() if p.is_dir())
    share = 500 // len(classes)
    return [str(path) for place in classes for path in sorted(place.iterdir())[:share]]


def measured(code: str, *arguments: str) -> dict[str, float]:
    """Run one side in a fresh process."""
    env = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
