"""Files as others write them: all commands on published files, `compact` on generated ones.

    python -m tests.benchmarks.bench_foreign --files DIR [--names PATTERN...] [--work DIR]
    python -m tests.benchmarks.bench_foreign [--models NAME...] [--folder DIR]

The first runs every command that applies to the .tflite, .keras and .h5 files and SavedModel
folders of DIR, with 40 random examples of matching shapes, and prints a line for each file and
command: exit code, and the error, the warning or the result.

The second makes models of the kinds that zoos hold, with random weights, as converters of other
years left them: explicit PADs before convolutions with VALID, inputs and outputs of uint8 or
float32, operator codes in the old field alone. It prints a line of JSON for each: the smallest
arena of TFLite Micro's wheel before and after, whether names, shapes, types and scales of inputs
and outputs are the same, and whether outputs are, to the byte, in LiteRT (reference, built-in,
XNNPACK) and in TFLite Micro.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import fnmatch
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from shrink.base.types import JsonObject
from shrink.compact.compact import compact
from shrink.compact.graph import Graph, read_graph, write_graph
from shrink.compact.rows import CONVOLUTIONS, same_padding
from shrink.tflite.model import Operator, Tensor, constant_tensor
from tests import forks
from tests.benchmarks.compact_models import (
    classified,
    converted,
    convolved,
    depthwise,
    mobilenet_v1,
    mobilenet_v2,
)
from tests.benchmarks.harness import say, say_json
from tests.compact.runs import outputs_of
from tests.compact.toys import with_old_codes

L = keras.layers


def fd_mobilenet(width: float = 0.25, size: int = 128) -> keras.Model:
    """Fast downsampling: a fifth of a MobileNet's layers run at more than 1/32 of the size."""
    inputs = L.Input((size, size, 3))
    x = convolved(inputs, int(32 * width), 3, 2)
    blocks = [(64, 2), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    for channels, stride in [*blocks, *[(512, 1)] * 4, (1024, 1)]:
        x = convolved(depthwise(x, 3, stride), int(channels * width), 1)
    return classified(inputs, x, 5)


def searched(size: int = 80) -> keras.Model:
    """Inverted residuals of several kernels and widths, as searches for microcontrollers find."""
    inputs = L.Input((size, size, 3))
    x = convolved(depthwise(convolved(inputs, 16, 3, 2)), 8, 1, act=False)
    before = 8
    blocks = [(16, 4, 7, 2), (16, 3, 3, 1), (16, 5, 3, 1), (24, 4, 7, 2), (24, 5, 5, 1)]
    blocks += [(40, 6, 5, 2), (40, 4, 7, 1), (48, 5, 5, 1), (96, 6, 3, 2), (96, 4, 5, 1)]
    for channels, factor, kernel, stride in blocks:
        y = depthwise(convolved(x, before * factor, 1), kernel, stride)
        y = convolved(y, channels, 1, act=False)
        x = L.Add()([x, y]) if stride == 1 and before == channels else y
        before = channels
    return classified(inputs, convolved(x, 160, 1), 2)


def with_pads(content: bytes) -> bytes:
    """Return the file with a PAD, and VALID, for each convolution of a stride that SAME pads."""
    graph = read_graph(content)
    tensors, operators = list(graph.tensors), list[Operator]()
    for operator in graph.operators:
        operators += _padded(graph, operator, tensors)
    return write_graph(
        dataclasses.replace(graph, tensors=tuple(tensors), operators=tuple(operators))
    )


def _padded(graph: Graph, operator: Operator, tensors: list[Tensor]) -> list[Operator]:
    options = operator.options
    strided = operator.name in CONVOLUTIONS and options.strideH > 1
    if not strided or options.padding != schema.Padding.SAME:
        return [operator]
    source, kernel = (graph.tensors[index] for index in operator.inputs[:2])
    pairs = [(0, 0)]
    for axis, stride in ((1, options.strideH), (2, options.strideW)):
        size, reach = source.shape[axis], kernel.shape[axis]
        above, count = same_padding(size, reach, stride)
        pairs.append((above, max((count - 1) * stride + reach - size - above, 0)))
    pairs.append((0, 0))
    shape = tuple(n + a + b for n, (a, b) in zip(source.shape, pairs, strict=True))
    at = len(tensors)
    tensors.append(constant_tensor(np.array(pairs, np.int32)))
    tensors.append(dataclasses.replace(source, shape=shape))
    inputs = (operator.inputs[0], at)
    pad = Operator("PAD", False, inputs, (at + 1,), options=schema.PadOptionsT(), version=2)
    valid = copy.copy(options)
    valid.padding = schema.Padding.VALID
    read = (at + 1, *operator.inputs[1:])
    return [pad, dataclasses.replace(operator, inputs=read, options=valid)]


def _v1(**options: tf.DType) -> bytes:
    return converted(mobilenet_v1, **options)


def _v2() -> keras.Model:
    return mobilenet_v2(0.35, 128, 5)


FILES: dict[str, Callable[[], bytes]] = {
    "FD-MobileNet 0.25 128, uint8": lambda: converted(fd_mobilenet, tf.uint8),
    "MobileNetV2 0.35 128, uint8, PADs": lambda: with_pads(converted(_v2, tf.uint8)),
    "MobileNetV1 0.25 96, uint8, old codes": lambda: with_old_codes(_v1(borders=tf.uint8)),
    "searched 80, float32, PADs": lambda: with_pads(converted(searched, tf.float32)),
    "searched 80, int8, PADs, old codes": lambda: with_old_codes(with_pads(converted(searched))),
}


def interface(content: bytes) -> list[tuple[object, ...]]:
    """Return names, shapes, types, scales and zero points of inputs and outputs."""
    one = Interpreter(model_content=content)
    details = [*one.get_input_details(), *one.get_output_details()]
    return [
        (d["name"], d["shape"].tolist(), d["dtype"].__name__, d["quantization"]) for d in details
    ]


def measured(content: bytes) -> JsonObject:
    """Return what compaction with at most 5 % more work makes of a file."""
    found = compact(content)
    return {
        "arena_before": found.arena_before,
        "arena_after": found.arena_after,
        "arena_ratio": round(found.arena_after / found.arena_before, 3),
        "bound": found.bound_bytes,
        "extra_macs": round(found.macs_after / found.macs_before - 1, 4),
        "same_interface": interface(content) == interface(found.content),
        "same_outputs": outputs_of(content, 4) == outputs_of(found.content, 4),
        "reason": found.reason,
        "done": found.done,
    }


_EXAMPLES = 40
_SUMMARY = re.compile(r"^(arena|unchanged|outputs|latency|warning: )|^(prune|distill|quantize) ")


def command(work: Path, *arguments: str) -> tuple[int, str, str]:
    """Return exit code, stdout, and the lines that say most of what `shrink` did."""
    done = forks.run(arguments, work, {**os.environ, "SHRINK_CACHE_DIR": str(work / "cache")})
    lines = (done.stderr + done.stdout).splitlines()
    best = [line for line in lines if line.startswith(("error", "  hint"))]
    best = best or [line for line in lines if _SUMMARY.search(line)]
    return done.returncode, done.stdout, " | ".join(line.strip()[:250] for line in best[:3])


def _random(place: dict[str, Any], is_label: bool, random: np.random.Generator) -> Any:
    shape = (_EXAMPLES, *(size or 16 for size in place["shape"][1:]))
    if is_label and len(shape) == 2 and shape[1] > 1:
        return random.integers(0, shape[1], _EXAMPLES)
    if is_label and len(shape) == 2:
        return random.integers(0, 2, shape)
    if "float" in place["dtype"]:
        return random.random(shape, "f4")
    return random.integers(0, 2, shape).astype(place["dtype"])


def try_file(path: Path, work: Path) -> None:
    """Print a line for each command that applies to a model file."""

    def row(name: str, *arguments: str) -> str:
        code, printed, text = command(work, *arguments)
        say(f"{path.name:<45} {name:<12} {code!s:<8} {text}")
        return printed if code == 0 else ""

    model, out, is_keras = str(path.resolve()), f"{path.stem}-", path.suffix != ".tflite"
    found = row("inspect", "inspect", model, "--json")
    data: list[str] = []
    if found:
        inspected, random = json.loads(found), np.random.default_rng(0)
        inputs = {f"x{i}": n for i, n in enumerate(inspected["inputs"])}
        outputs = {f"y{i}": n for i, n in enumerate(inspected["outputs"])}
        arrays = {k: _random(n, False, random) for k, n in inputs.items()}
        arrays |= {k: _random(n, True, random) for k, n in outputs.items()}
        np.savez(work / f"{path.stem}.npz", **arrays)
        data = ["--data", f"{path.stem}.npz", "--inputs", ",".join(inputs)]
        targets = ["--targets", ",".join(outputs)]
        for scheme in ("static_wi8_ai8", "dynamic_wi8_afp32", "float16"):
            file = ["-o", f"{out}{scheme}.tflite", "--force"]
            labels = ["--target", "litert", "--data-target", "none"]
            row(scheme, "quantize", model, *data, *labels, "--scheme", scheme, *file)
        row("evaluate", "evaluate", model, *data, *targets, "-o", f"{out}evaluate", "--force")
    if is_keras and data:
        again = [*data, *targets, "--epochs", "1", "--force"]
        row(
            "prune",
            "prune",
            model,
            "--method",
            "channels",
            "--parameters",
            "0.7",
            *again,
            "-o",
            f"{out}prune",
        )
        row("distill", "distill", *f"--teacher {model} --student width=0.5".split(), *again)
        row("export", "export", model, "--format", "keras3", "-o", f"{out}3.keras", "--force")
    if not is_keras:
        row("compact", "compact", model, "-o", f"{out}compact.tflite", "--force")
        row("bench", "bench", model)
        row("export", "export", model, "--format", "cc-array", "-o", f"{out}cc", "--force")


def try_folder(folder: Path, names: Sequence[str], work: Path) -> None:
    """Print a line for each command and model file of a folder."""
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    kinds = (".tflite", ".keras", ".h5", ".hdf5")
    for path in sorted(folder.iterdir()):
        is_model = path.suffix in kinds or (path / "saved_model.pb").exists()
        if is_model and any(fnmatch.fnmatch(path.name, name) for name in names):
            try_file(path, work)


def main() -> None:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=Path, help="a folder of published model files")
    parser.add_argument("--names", nargs="+", default=["*"], help="only files that match")
    parser.add_argument("--work", type=Path, default=Path("foreign-work"))
    parser.add_argument("--models", nargs="+", choices=list(FILES), default=list(FILES))
    parser.add_argument("--folder", type=Path, default=Path("compact-models"))
    options = parser.parse_args()
    if options.files:
        try_folder(options.files, options.names, options.work)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        path = options.folder / f"foreign-{list(FILES).index(name)}.tflite"
        if not path.exists():
            path.write_bytes(FILES[name]())
        say_json({"file": name, **measured(path.read_bytes())})


if __name__ == "__main__":
    main()
