"""Host memory of a static quantization, by the number of calibration samples.

Run: python tests/benchmarks/bench_calibration_memory.py --model model.h5 --data pictures
     [--samples 500 20000]

`--data` is a folder {train,test}/<class>/*. Each number of samples runs in a process of its own;
the figure is the most resident memory that process held (VmHWM), imports and model included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

_QUANTIZE = """
import json, sys, time
from pathlib import Path
from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.base.host import host_peak_bytes
from shrink.quantization.calibration import CalibrationExamples
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.quantization.source import FloatModel
import tf_keras as keras
model_path, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
train = open_dataset(DataConfig(source="images", path=folder), 0).train
model = FloatModel(keras.models.load_model(model_path, compile=False))
started = time.perf_counter()
found = SCHEMES["static_wi8_ai8"](model, CalibrationExamples(train, count, 0), QuantizeConfig())
print(json.dumps({"peak": host_peak_bytes(), "s": time.perf_counter() - started,
                  "bytes": len(found.content)}))
"""


def main() -> None:
    """Print one line for each number of samples, and the ratio of the last to the first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--samples", nargs="+", default=[500, 20_000], type=int)
    options = parser.parse_args()
    write = sys.stdout.write
    write(f"{'samples':>8} {'peak MiB':>9} {'seconds':>8}\n")
    peaks = []
    for count in options.samples:
        found = measured(options.model, options.data, count)
        peaks.append(found["peak"])
        write(f"{count:8,} {found['peak'] / 2**20:9.1f} {found['s']:8.1f}\n")
        sys.stdout.flush()
    write(f"last / first {peaks[-1] / peaks[0]:.3f}\n")


def measured(model: Path, folder: Path, count: int) -> dict[str, float]:
    """Quantize in a fresh process."""
    env = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    arguments = [str(model.resolve()), str(folder.resolve()), str(count)]
    command = [sys.executable, "-W", "ignore", "-c", _QUANTIZE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
