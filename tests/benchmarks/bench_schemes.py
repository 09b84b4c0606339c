"""Bytes, accuracy and seconds of every quantization scheme on one trained model.

Run: python -m tests.benchmarks.bench_schemes --model model.h5 --data pictures
         [--seed 0] [--only mixed]

`--data` is a folder {train,test}/<class>/*. Nothing is trained; calibration, ranking and search see
training images only; accuracy is on all test images, through LiteRT. Seconds are from the loaded
model to the artifact, so the first scheme's include what TensorFlow sets up once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import accuracy_of, say

CONFIGS: tuple[dict[str, Any], ...] = (
    {"scheme": "float32"},
    {"scheme": "float16"},
    {"scheme": "dynamic_wi8_afp32"},
    {"scheme": "weight_only_wi8_afp32"},
    {"scheme": "static_wi8_ai8"},
    {"scheme": "static_wi8_ai16"},
    {"scheme": "dynamic_wi4_afp32"},
    {"scheme": "weight_only_wi4_afp32"},
    {"scheme": "mixed", "file_bytes": "60KB"},
    {"scheme": "mixed", "file_bytes": "56KB", "activations": "float32"},
    {"scheme": "mixed", "accuracy_drop": 0.005},
    {"scheme": "mixed", "accuracy_drop": 0.005, "activations": "float32"},
)


def main() -> None:
    """Print accuracy, bytes and seconds of each scheme."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--only", default="", help="schemes whose names contain this")
    options = parser.parse_args()
    say(f"{'scheme':<62} {'accuracy':>8} {'bytes':>9} {'seconds':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for config in CONFIGS:
            if options.only in config["scheme"]:
                right, size, seconds = measured(config, options, Path(folder))
                words = ", ".join(
                    str(value) if k == "scheme" else f"{k}: {value}" for k, value in config.items()
                )
                say(f"{words:<62} {right:8.2%} {size:9,} {seconds:8.1f}")


def measured(
    config: dict[str, Any], options: argparse.Namespace, folder: Path
) -> tuple[float, int, float]:
    """Return accuracy, bytes and seconds of one scheme."""
    from shrink.stages.quantize.config import QuantizeConfig
    from shrink.stages.quantize.run import run
    from tests.jobs import context_of

    data = {"source": "images", "path": str(options.data.resolve())}
    context = context_of(
        folder,
        kind="quantize",
        inputs={"model": options.model},
        data=data,
        training={"seed": options.seed},
    )
    context.dataset  # noqa: B018  opened before the clock starts
    started = time.perf_counter()
    result = run(QuantizeConfig.model_validate(config), context)
    seconds = time.perf_counter() - started
    content = result.tflite or b""
    return accuracy_of(content, context, context.load()), len(content), seconds


if __name__ == "__main__":
    main()
