"""Flash of trained models for TFLite Micro: dense, pruned and clustered files at equal accuracy.

    python -m tests.benchmarks.bench_decode [--data IMAGES|FILE.npz] [--epochs N] [--folder DIR]

Trains one model (digits; with `--data`, ResNet8 of twice the width on a folder of images in a
folder for each class, or a dense autoencoder on vectors in an .npz file), and makes files of it:
int8 as it is, with whole channels pruned away, and, stored for TFLM_DECODE, with 80 % of the
weights zero, with 16 values a kernel by fine-tuning, and with tables of 4, 3 and 2 bits by careful
rounding, without training; then the same of the model whose channels are pruned. Prints a line of
JSON for each: metrics, their difference to the trained model, bytes of the file, its share of the
smallest dense file before it, and the arena. What is trained is trained once; runs are kept in the
folder.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from shrink.base.types import JsonObject
from tests.benchmarks.harness import say, say_json

_QUANTIZE = {"quantize": {"scheme": "static_wi8_ai8", "target": "tflm"}}
_DECODE = {"compact": {"decode": "auto"}}
_BITS = (4, 3, 2)
_HERE = Path(__file__).parent


def main() -> None:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, help="a folder of 32x32 images, as CIFAR-10's, or an .npz of vectors"
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--tuning", type=int, default=8, help="epochs after pruning or clustering")
    parser.add_argument("--sparsity", type=float, default=0.8)
    parser.add_argument("--clusters", type=int, default=16)
    parser.add_argument("--ratio", type=float, default=0.2, help="channels that are pruned away")
    parser.add_argument("--importance", default="l2", help="which channels go first")
    parser.add_argument("--files", nargs="+", help="some of the files alone")
    parser.add_argument("--folder", type=Path, default=Path("decode-runs"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    dense = None
    for name, stages in variants(options).items():
        if options.files and name not in options.files:
            continue
        row = measured(options, name, stages)
        if row["dense_file_bytes"] is None:
            dense = min(dense or row["file_bytes"], row["file_bytes"])
        share = None if dense is None else round(row["file_bytes"] / dense, 3)
        say_json({**row, "of_dense": share})


def variants(options: argparse.Namespace) -> Mapping[str, list[JsonObject]]:
    """Return the stages after training, by the name of the file."""
    tuning = {"epochs": options.tuning}
    zeros = {"prune": {"method": "magnitude", "sparsity": options.sparsity, **tuning}}
    chosen = {"ratio": options.ratio, "importance": options.importance}
    channels = {"prune": {"method": "channels", **chosen, **tuning}}
    few = {"cluster": {"clusters": options.clusters, **tuning}}
    return {
        "int8": [_QUANTIZE],
        "channels": [channels, _QUANTIZE],
        "zeros": [zeros, _QUANTIZE, _DECODE],
        "clusters": [few, _QUANTIZE, _DECODE],
        **{f"table{bits}": [_tables(bits), _DECODE] for bits in _BITS},
        "channels-zeros": [channels, zeros, _QUANTIZE, _DECODE],
        "channels-clusters": [channels, few, _QUANTIZE, _DECODE],
        **{f"channels-table{bits}": [channels, _tables(bits), _DECODE] for bits in _BITS},
    }


def _tables(bits: int) -> JsonObject:
    return {"quantize": {**_QUANTIZE["quantize"], "table_bits": bits}}


def model_and_data(data: Path | None) -> tuple[str, JsonObject]:
    """Return the builder of a model for the data, and the recipe's section."""
    if data is None:
        return "wide_digits", {"source": "digits"}
    if data.suffix == ".npz":
        return "autoencoder", {"source": "npz", "path": str(data.resolve()), "target": "input"}
    return "wide_cifar", {"source": "images", "path": str(data.resolve())}


def measured(options: argparse.Namespace, name: str, stages: list[JsonObject]) -> JsonObject:
    """Run a recipe; return what its report says of the last artifact."""
    builder, source = model_and_data(options.data)
    recipe = {
        "name": f"decode-{name}",
        "model": f"{_HERE / 'decode_models.py'}:{builder}",
        "data": source,
        "training": {"optimizer": {"name": "adam", "learning_rate": 1e-3, "schedule": "cosine"}},
        "stages": [{"train": {"epochs": options.epochs}}, *stages],
    }
    folder = options.folder.resolve()
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(recipe))  # which is YAML as well
    command = ["run", str(path), "--output", str(folder / name), "--force", "--quiet"]
    done = subprocess.run([sys.executable, "-m", "shrink", *command], check=False)
    if done.returncode:
        say(f"{name}: exit code {done.returncode}")
        raise SystemExit(done.returncode)
    report = json.loads((folder / name / "report.json").read_text())
    stage = report["stages"][-1]
    compacted = stage["details"].get("compact") or {}
    decoded = compacted.get("decode") or {}
    named = [name for name in stage["delta"] if name in stage["metrics"]]
    return {
        "file": name,
        "metrics": stage["metrics"],
        "examples": stage["examples"],
        "difference": {name: stage["delta"][name] for name in named},
        "file_bytes": stage["size"]["tflite_bytes"],
        "dense_file_bytes": decoded.get("file_bytes_before"),
        "arena_bytes": stage["memory"]["arena_bytes"],
        "arena_before": compacted.get("arena_before"),
        "decoded": sum(1 for one in decoded.get("layers", []) if one["parts"]),
    }


if __name__ == "__main__":
    main()
