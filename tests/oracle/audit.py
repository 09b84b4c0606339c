"""Compares a run folder with what artifacts and raw data give: `audit` returns the records."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ai_edge_litert.interpreter import Interpreter

from tests.oracle import bootstrap, keras_models, litert, metrics, sizes, slices
from tests.oracle.arena import smallest_arenas
from tests.oracle.flatbuffer import read
from tests.oracle.gates import check_gates
from tests.oracle.macs import RULES, count_macs
from tests.oracle.records import Ledger, Record
from tests.oracle.truth import Truth
from tests.oracle.whole import Whole

SIZES = ("file_bytes", "gzip_bytes", "tflite_bytes", "parameters", "nonzero_parameters", "macs")
LOWER_IS_ENOUGH = 0.02
"""A conversion of our own differs in names and layout of constants: 2 % or 1 KB of the bytes."""
WIDTHS = (0.7, 1.5)
"""How much wider than a bootstrap's percentiles an interval may be: small samples need more."""
ENDS = 0.25
"""How far an end of BCa may be from one of other draws, as a fraction of the width."""

ACCURACIES = ("accuracy", "top5_accuracy", "binary_accuracy")


@dataclass
class Found:
    """What the oracle knows of one stage."""

    entry: Mapping[str, Any]
    metrics: dict[str, metrics.Metric | Whole]
    tflite: Path
    outputs: list[np.ndarray]


def audit(folder: Path, truth: Truth, name: str = "") -> list[Record]:
    """Recompute the report of a run folder.

    Args:
        folder: with `report.json` and `artifacts/`.
        truth: the test examples, and what the outputs mean.
        name: of the run in the records.
    """
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    ledger = Ledger(name or folder.name)
    with tempfile.TemporaryDirectory() as scratch:
        found = _stages(report, folder, truth, ledger, Path(scratch))
        _arenas(found, ledger)
    recipe = yaml.safe_load(report["resolved_recipe"])
    previous = _previous(report, recipe)
    for at, stage in found.items() if report["baseline"] in found else ():
        base = found[report["baseline"]]
        _deltas(stage, base, "delta", ledger)
        slices.check(stage.entry, base.entry, stage.outputs, base.outputs, truth, ledger)
        if (before := previous.get(at)) in found:
            _deltas(stage, found[before], "delta_previous", ledger)
    check_gates(report, recipe, {n: f.metrics for n, f in found.items()}, ledger)
    _metadata(folder, report, truth, ledger)
    return ledger.records


def _stages(
    report: Mapping[str, Any], folder: Path, truth: Truth, ledger: Ledger, scratch: Path
) -> dict[str, Found]:
    found: dict[str, Found] = {}
    reference: list[np.ndarray] | None = None
    for entry in report["stages"]:
        if entry["status"] not in ("done", "cached"):
            ledger.add("status", entry["status"], "done", False, at=entry["name"])
            continue
        artifact = folder / entry["artifact"]
        _files(entry, artifact, ledger)
        if artifact.suffix == ".keras":
            place = scratch / entry["name"]
            place.mkdir()
            stage, reference = _keras(entry, artifact, truth, ledger, place)
        else:
            stage = _tflite(entry, artifact, truth, ledger, reference)
        _metrics(stage, truth, ledger)
        found[entry["name"]] = stage
    return found


def _files(entry: Mapping[str, Any], artifact: Path, ledger: Ledger) -> None:
    figures = sizes.file_figures(artifact)
    ledger.same("sha256", entry["sha256"], figures["sha256"], at=entry["name"])
    for figure in ("file_bytes", "gzip_bytes"):
        ledger.same(f"size.{figure}", entry["size"][figure], figures[figure], at=entry["name"])


def _keras(
    entry: Mapping[str, Any], artifact: Path, truth: Truth, ledger: Ledger, scratch: Path
) -> tuple[Found, list[np.ndarray]]:
    at, size = entry["name"], entry["size"]
    model = keras_models.load(artifact)
    parameters, nonzero = keras_models.count_parameters(model)
    ledger.same("size.parameters", size["parameters"], parameters, at=at)
    ledger.same("size.nonzero_parameters", size["nonzero_parameters"], nonzero, at=at)
    tflite = keras_models.convert(model, scratch)
    length = tflite.stat().st_size
    slack = max(1024, LOWER_IS_ENOUGH * length)
    ledger.same("size.tflite_bytes", size["tflite_bytes"], length, absolute=slack, at=at)
    ledger.same("size.macs", size["macs"], count_macs(tflite), at=at)
    _layers(entry, model, ledger)
    reference = keras_models.predict(model, truth.inputs)
    outputs, _ = litert.matched(litert.run(tflite, truth.inputs), reference)
    same = all(
        np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(outputs, reference, strict=True)
    )
    ledger.add("oracle.conversion", "LiteRT", "Keras", same, "the oracle's own two runtimes", at)
    return Found(entry, metrics.compute(reference, truth), tflite, reference), reference


def _layers(entry: Mapping[str, Any], model: Any, ledger: Ledger) -> None:
    """Compare the table of layers with the saved model."""
    at = entry["name"]
    known = keras_models.leaf_layers(model)
    table = entry.get("details", {}).get("layers", [])
    for row in table:
        if (layer := known.get(row["name"])) is None:
            continue
        figure, zeros = f"[{row['name']}]", keras_models.sparsity(layer)
        ledger.same(f"layers.parameters{figure}", row["parameters"], layer.count_params(), at=at)
        ledger.same(f"layers.sparsity{figure}", row["sparsity"], zeros, relative=1e-9, at=at)
    counted = [row["macs"] for row in table]
    if table and None not in counted:
        ledger.same("layers.macs (sum)", sum(counted), entry["size"]["macs"], at=at)


def _tflite(
    entry: Mapping[str, Any],
    artifact: Path,
    truth: Truth,
    ledger: Ledger,
    reference: list[np.ndarray] | None,
) -> Found:
    at, size = entry["name"], entry["size"]
    parameters, nonzero = sizes.count_parameters(artifact)
    ledger.same("size.parameters", size["parameters"], parameters, at=at)
    ledger.same("size.nonzero_parameters", size["nonzero_parameters"], nonzero, at=at)
    ledger.same("size.tflite_bytes", size["tflite_bytes"], artifact.stat().st_size, at=at)
    ledger.same("size.macs", size["macs"], count_macs(artifact), at=at)
    _operators(entry, artifact, ledger)
    outputs = litert.run(artifact, truth.inputs)
    if reference is not None:
        outputs, _ = litert.matched(outputs, reference)
    return Found(entry, metrics.compute(outputs, truth), artifact, outputs)


def _operators(entry: Mapping[str, Any], artifact: Path, ledger: Ledger) -> None:
    """Compare the table of operators with the file's entry graph."""
    at, details = entry["name"], entry.get("details", {})
    table = details.get("audit", {}).get("operators") or details.get("operators") or []
    held = read(artifact).graphs[0].operators
    names = [op.name for op in held]
    ledger.same("operators.names", [row["name"] for row in table], names, at=at)
    if len(table) != len(held):
        return
    for place, (row, op) in enumerate(zip(table, held, strict=True)):
        if op.name in RULES or op.name not in ("WHILE", "IF", "CALL"):
            macs = RULES[op.name](op) if op.name in RULES else 0
            ledger.same(f"operators.macs[{place} {op.name}]", row["macs"], macs, at=at)
        kernel = sizes.KERNEL_INPUT.get(op.name)
        tensor = None if kernel is None else op.inputs[kernel]
        if tensor is not None and tensor.values is not None:
            zeros = tensor.zeros / tensor.size
            figure = f"operators.sparsity[{place} {op.name}]"
            ledger.same(figure, row["sparsity"], zeros, relative=1e-9, at=at)
            ledger.same(
                f"operators.weights[{place} {op.name}]", row["weights"], tensor.dtype, at=at
            )


def _metrics(stage: Found, truth: Truth, ledger: Ledger) -> None:
    entry, at = stage.entry, stage.entry["name"]
    ledger.same("examples", entry["examples"], len(truth), at=at)
    ledger.same("metrics (names)", sorted(entry["metrics"]), sorted(stage.metrics), at=at)
    for name, metric in stage.metrics.items():
        if name not in entry["metrics"]:
            continue
        value = entry["metrics"][name]
        if isinstance(metric, Whole) or name in ACCURACIES:
            ledger.between(f"metrics.{name}", value, *metric.bounds, at=at)
        else:
            expected = float(metric.value()[0])
            ledger.same(f"metrics.{name}", value, expected, relative=1e-3, absolute=1e-5, at=at)
        given = entry.get("intervals", {}).get(name)
        if given:
            _interval(f"intervals.{name}", given, value, bootstrap.interval(metric), ledger, at)


def _interval(
    figure: str,
    given: Mapping[str, Any],
    value: float,
    drawn: bootstrap.Interval,
    ledger: Ledger,
    at: str,
) -> None:
    low, high = given["low"], given["high"]
    inside = low - 1e-9 <= value <= high + 1e-9
    ledger.add(f"{figure} (inside)", value, (low, high), inside, at=at)
    if not drawn.judges:
        return
    pair = (drawn.low, drawn.high)
    overlap = min(high, drawn.high) >= max(low, drawn.low)
    ledger.add(f"{figure} (place)", (low, high), pair, overlap, "bootstrap", at)
    ratio = (high - low) / (drawn.high - drawn.low) if drawn.high > drawn.low else np.inf
    fits = WIDTHS[0] <= ratio and high - low <= WIDTHS[1] * drawn.widest
    ledger.add(f"{figure} (width)", (low, high), pair, fits, f"{ratio:.2f} of the bootstrap's", at)
    if drawn.judges_ends:
        reach = ENDS * (drawn.high - drawn.low)
        ledger.same(f"{figure}.low", low, drawn.low, absolute=reach, at=at)
        ledger.same(f"{figure}.high", high, drawn.high, absolute=reach, at=at)


def _arenas(found: Mapping[str, Found], ledger: Ledger) -> None:
    """Compare arenas; of a Keras stage, whose conversion is ours, to 5 % or 512 bytes."""
    arenas = smallest_arenas([stage.tflite for stage in found.values()])
    for (at, stage), (size, why) in zip(found.items(), arenas, strict=True):
        reported = stage.entry["memory"]["arena_bytes"]
        own = stage.entry["artifact"].endswith(".tflite")
        slack = 16 if own else max(512, 0.05 * (size or 0))
        ledger.same("memory.arena_bytes", reported, size, absolute=slack, at=at, note=why)


def _previous(report: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return the stage that each one started from."""
    names = [entry["name"] for entry in report["stages"]]
    given = [next(iter(stage.values())) or {} for stage in recipe["stages"]]
    origins = [None] * (len(names) - len(given)) + [config.get("from") for config in given]
    pairs = zip(names[1:], names, origins[1:], strict=False)
    return {name: origin or before for name, before, origin in pairs}


def figures(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return every size, memory figure and latency of a stage."""
    latency = {k: v for k, v in (entry["latency"] or {}).items() if k in ("p50_ms", "p90_ms")}
    return {**entry["size"], **entry["memory"], **latency}


def _deltas(stage: Found, base: Found, kind: str, ledger: Ledger) -> None:
    entry, at = stage.entry, stage.entry["name"]
    before, now = figures(base.entry), figures(entry)
    for name, delta in entry[kind].items():
        if name in stage.metrics:
            _metric_delta(name, delta, stage, base, kind, ledger)
        elif name in now:
            _figure_delta(f"{kind}.{name}", delta, now[name], before.get(name), ledger, at)
    missing = [n for n in (*now, *stage.metrics) if n not in entry[kind]]
    ledger.same(f"{kind} (missing)", missing, [], at=at)


def _figure_delta(figure: str, delta: Any, now: Any, before: Any, ledger: Ledger, at: str) -> None:
    if now is None or before is None:
        ledger.same(figure, delta, None, at=at)
        return
    value, ratio = (delta or {}).get("value"), (delta or {}).get("ratio")
    ledger.same(f"{figure}.value", value, now - before, relative=1e-9, absolute=1e-9, at=at)
    expected = now / before if before else None
    ledger.same(f"{figure}.ratio", ratio, expected, relative=1e-9, at=at)


def _metric_delta(
    name: str, delta: Mapping[str, Any], stage: Found, base: Found, kind: str, ledger: Ledger
) -> None:
    at, figure = stage.entry["name"], f"{kind}.{name}"
    difference = stage.entry["metrics"][name] - base.entry["metrics"][name]
    ledger.same(f"{figure}.value", delta["value"], difference, absolute=1e-9, at=at)
    if stage is base:
        ledger.same(f"{figure} (itself)", [delta["low"], delta["high"]], [0.0, 0.0], at=at)
        return
    drawn = bootstrap.interval(stage.metrics[name], base.metrics[name])
    _interval(figure, delta, delta["value"], drawn, ledger, at)


def _metadata(folder: Path, report: Mapping[str, Any], truth: Truth, ledger: Ledger) -> None:
    """Compare `metadata.json` with LiteRT's view of the artifacts."""
    path = folder / "artifacts" / "metadata.json"
    if not path.exists():
        return
    described = json.loads(path.read_text(encoding="utf-8"))
    digest = hashlib.sha256((folder / "report.json").read_bytes()).hexdigest()
    ledger.same("metadata.report_sha256", described["report_sha256"], digest)
    ledger.same("metadata.recipe", described["recipe"], report["recipe"])
    by_digest = {entry["sha256"]: entry for entry in report["stages"]}
    for held in described["artifacts"]:
        artifact = path.parent / held["file"]
        digest = hashlib.sha256(artifact.read_bytes()).hexdigest()
        ledger.same("metadata.sha256", held["sha256"], digest, at=held["file"])
        entry = by_digest[digest]
        for key in ("metrics", "examples"):
            ledger.same(f"metadata.{key}", held[key], entry[key], at=held["file"])
        if truth.labels is not None:
            ledger.same("metadata.labels", held["labels"], truth.labels, at=held["file"])
        if artifact.suffix == ".tflite":  # of a Keras model they are its float32 form's
            _interface(held, artifact, ledger)


def _interface(held: Mapping[str, Any], artifact: Path, ledger: Ledger) -> None:
    interpreter = Interpreter(model_path=str(artifact))
    file = read(artifact)
    sides = (
        ("inputs", interpreter.get_input_details(), file.signature_inputs),
        ("outputs", interpreter.get_output_details(), file.signature_outputs),
    )
    for side, details, names in sides:
        at = held["file"]
        ledger.same(f"metadata.{side} (number)", len(held[side]), len(details), at=at)
        real = {names.get(d["index"], litert.plain(d["name"])): d for d in details}
        for row in held[side]:
            figure, detail = f"metadata.{side}[{row['name']}]", real.get(row["name"])
            ledger.add(f"{figure}.name", row["name"], sorted(real), detail is not None, at=at)
            for key, value in _described(detail).items():
                ledger.same(f"{figure}.{key}", row[key], value, relative=1e-6, at=at)


def _described(detail: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what LiteRT says of a tensor, in the words of `metadata.json`."""
    if detail is None:
        return {}
    scale, zero_point = detail["quantization"]
    return {
        "shape": [int(s) for s in detail["shape"]],
        "dtype": np.dtype(detail["dtype"]).name,
        "scale": float(scale) or None,
        "zero_point": int(zero_point) if scale else None,
    }
