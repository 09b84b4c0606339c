"""Time and size of the rendered report of a 200-layer, 6-stage run.

Run: python -m tests.benchmarks.bench_render [--layers 200] [--stages 6] [--runs 5]

The figures are made up, the shape is that of a real run: layers before and after, two quantized
stages with their operators, 200 epochs of history, full memory timelines. Beside rendering in this
process it times `shrink report` as a user calls it, Python's start included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shrink.contract.codec import to_plain
from shrink.contract.result import StageOutcome
from tests.benchmarks.harness import say
from tests.report.plain import render_html
from tests.report.toys import outcome, report, with_result

_EPOCHS, _POINTS = 200, 120


def main() -> None:
    """Print medians and sizes."""
    arguments = _parse()
    built = synthetic_report(arguments.layers, arguments.stages)
    page = render_html(built)
    here = [_timed(lambda: render_html(built)) for _ in range(arguments.runs)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        path.write_text(json.dumps(built), encoding="utf-8")
        command = [sys.executable, "-m", "shrink", "report", folder, "--quiet"]
        whole = [_timed(lambda: subprocess.run(command, check=True)) for _ in range(arguments.runs)]
        json_bytes = path.stat().st_size
    say(f"{arguments.layers} layers, {arguments.stages} stages, median of {arguments.runs}")
    say(f"render report.html   {statistics.median(here):.3f} s")
    say(f"shrink report        {statistics.median(whole):.3f} s, all files, start included")
    say(f"report.html          {len(page.encode()):,} bytes")
    say(f"report.json          {json_bytes:,} bytes")


def synthetic_report(layers: int, stages: int) -> dict[str, Any]:
    """Return the report of a run with two quantized stages at its end."""
    found = []
    for index in range(stages):
        previous = f"stage-{index - 1}" if index else None
        quantized = index >= stages - 2
        stage = outcome(
            f"stage-{index}", 98 - index, 100_000 - index, previous, training=not quantized
        )
        found.append(_detailed(stage, layers, quantized))
    last = f"stage-{stages - 1}"
    built = report(found, finals=(last,), baseline="stage-0")
    return built | {"command": "shrink run recipe.yaml", "resolved_recipe": "name: r\n" * 60}


def _detailed(stage: StageOutcome, layers: int, quantized: bool) -> StageOutcome:
    if quantized:
        rows = [_operator(i, layers) for i in range(layers)]
        audit = {"operators": rows, "float_islands": [], "custom_operators": []}
        return with_result(stage, details={"audit": audit})
    training = {
        **to_plain(stage.result.training),
        "history": {name: [1 / (i + 1) for i in range(_EPOCHS)] for name in ("loss", "val_loss")},
        "memory_timeline": {
            "update": list(range(1, _POINTS + 1)),
            "time_s": [i / 7 for i in range(_POINTS)],
            "device_bytes": [40_000_000 + 1_000 * i for i in range(_POINTS)],
            "host_bytes": [700_000_000 + 1_000 * i for i in range(_POINTS)],
        },
    }
    shrunk = int(stage.name.rpartition("-")[2])
    rows = [_layer(i, 1 - 0.1 * shrunk) for i in range(layers)]
    return with_result(stage, training=training, details={"layers": rows})


def _layer(index: int, share: float) -> dict[str, Any]:
    return {
        "name": f"block_{index // 4}_expand_conv_{index}",
        "type": "DepthwiseConv2D",
        "parameters": int(share * 12_345 * (index + 1)),
        "macs": int(share * 9_876_543 * (index + 1)),
        "activation_bytes": int(share * 123_456),
        "sparsity": 1 - share,
    }


def _operator(index: int, layers: int) -> dict[str, Any]:
    return {
        "name": "DEPTHWISE_CONV_2D",
        "layer": f"block_{index // 4}_expand_conv_{index}",
        "inputs": ["int8"],
        "weights": "int8",
        "outputs": ["int8"],
        "parameters": 12_345 * (index + 1),
        "macs": 9_876_543 * (index + 1),
        "activation_bytes": 123_456,
        "sparsity": 0.25,
        "snr_db": 45 - 20 * index / layers,
        "cosine": 0.999,
    }


def _timed(action: Any) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--stages", type=int, default=6)
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
