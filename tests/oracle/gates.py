"""Gates, as docs/recipe.md defines them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.oracle import bootstrap
from tests.oracle.metrics import Metric
from tests.oracle.records import Ledger
from tests.oracle.whole import Whole

HIGHER_IS_BETTER = ("accuracy", "binary_accuracy", "top5_accuracy", "f1_macro", "roc_auc", "r2")
EVERYWHERE = (
    "training_peak_bytes", "training_peak_predicted_bytes", "training_peak_small_bytes",
    "training_peak_allocator_bytes", "training_host_peak_bytes",
    "stage_host_peak_bytes",
)  # fmt: skip
"""Figures whose gate looks at the largest of all stages."""
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

Metrics = Mapping[str, Mapping[str, Metric | Whole]]


def check_gates(
    report: Mapping[str, Any], recipe: Mapping[str, Any], found: Metrics, ledger: Ledger
) -> None:
    """Compare each gate's value and verdict, and what they come to.

    Args:
        report: the whole report.
        recipe: with the gates as they were asked for.
        found: the oracle's metrics by stage.
        ledger: the records go here.
    """
    stages = {entry["name"]: entry for entry in report["stages"]}
    ledger.same("finals", sorted(report["finals"]), sorted(_leaves(report, recipe)))
    asked = recipe.get("gates") or {}
    expected = sorted((n, s) for n, g in asked.items() for s in _looked_at(n, g, report))
    given = sorted((g["name"], g["stage"]) for g in report["gates"] if g["name"] not in EVERYWHERE)
    ledger.same("gates (looked at)", given, [e for e in expected if e[0] not in EVERYWHERE])
    for gate in report["gates"]:
        wanted = asked.get(gate["name"])
        wanted = wanted if isinstance(wanted, Mapping) else {"limit": wanted}
        if "limit" in wanted and "against" not in wanted:
            _check(gate, wanted, stages, report["baseline"], found, ledger)
    failed = [g for g in report["gates"] if not g["passed"] and g.get("level", "fail") == "fail"]
    broken = any(entry["status"] == "failed" for entry in report["stages"])
    ledger.same("passed", report["passed"], not failed and not broken)


def _leaves(report: Mapping[str, Any], recipe: Mapping[str, Any]) -> list[str]:
    names = [entry["name"] for entry in report["stages"]]
    given = [next(iter(stage.values())) or {} for stage in recipe["stages"]]
    origins = [None] * (len(names) - len(given)) + [config.get("from") for config in given]
    started_from = {o or b for o, b in zip(origins[1:], names, strict=False)}
    return [name for name in names if name not in started_from]


def _looked_at(name: str, gate: Any, report: Mapping[str, Any]) -> list[str]:
    stage = gate.get("stage") if isinstance(gate, Mapping) else None
    return [stage] if stage else list(report["finals"])


def _check(
    gate: Mapping[str, Any],
    wanted: Mapping[str, Any],
    stages: Mapping[str, Any],
    baseline: str,
    found: Metrics,
    ledger: Ledger,
) -> None:
    name, at, limit = gate["name"], gate["stage"], _number(wanted["limit"])
    figure = f"gates.{name}"
    ledger.same(f"{figure}.limit", gate["limit"], limit, at=at)
    if name == "worst_slice_drop":
        _check_slices(gate, wanted, stages[at], stages[baseline], ledger)
        return
    value = _value(name, at, stages, baseline)
    ledger.same(f"{figure}.value", gate["value"], value, relative=1e-9, absolute=1e-9, at=at)
    if value is None:
        ledger.same(f"{figure}.passed", gate["passed"], False, at=at)
        return
    holds = value >= limit if name in HIGHER_IS_BETTER else value <= limit
    if holds or not wanted.get("confidence"):
        ledger.same(f"{figure}.passed", gate["passed"], holds, at=at)
        return
    bound = _surely_lost(name, at, baseline, found, wanted["confidence"])
    if bound is not None and abs(bound - limit) > 0.005:
        ledger.same(f"{figure}.passed", gate["passed"], bound <= limit, at=at, note="bootstrap")


def _check_slices(
    gate: Mapping[str, Any],
    wanted: Mapping[str, Any],
    stage: Mapping[str, Any],
    base: Mapping[str, Any],
    ledger: Ledger,
) -> None:
    """Compare the worst slice with the differences of the slices that have 20 examples."""
    before = {
        (slicing["by"], row["name"]): row["metrics"][slicing["metric"]]
        for slicing in base["slices"]
        for row in slicing["slices"]
    }
    lost = {
        (slicing["by"], row["name"]): before[slicing["by"], row["name"]]
        - row["metrics"][slicing["metric"]]
        for slicing in stage["slices"]
        for row in slicing["slices"]
        if row["examples"] >= 20 and wanted.get("by") in (None, slicing["by"])
    }
    at, figure = stage["name"], "gates.worst_slice_drop"
    own = lost.get((gate["by"], gate["slice"]))
    ledger.same(f"{figure}.value", gate["value"], own, absolute=1e-9, at=at)
    if not wanted.get("confidence"):
        ledger.same(f"{figure}.value", gate["value"], max(lost.values()), absolute=1e-9, at=at)
        ledger.same(f"{figure}.passed", gate["passed"], max(lost.values()) <= gate["limit"], at=at)
    elif not gate["passed"]:  # what is surely lost is lost at all
        ledger.same(f"{figure}.passed", (own or 0) > gate["limit"], True, at=at)


def _number(limit: float | str) -> float:
    """Return a limit that may bear a unit."""
    if not isinstance(limit, str):
        return limit
    found = re.fullmatch(r"\s*([\d.]+)\s*([a-zA-Z]+)\s*", limit)
    assert found, limit
    return float(found[1]) * UNITS[found[2]]


def _value(name: str, at: str, stages: Mapping[str, Any], baseline: str) -> float | None:
    for ending in ("_drop", "_rise"):
        metric = name.removesuffix(ending)
        sign = -1 if metric in HIGHER_IS_BETTER else 1
        if name.endswith(ending):
            now, before = (_figures(stages[s]).get(metric) for s in (at, baseline))
            return None if now is None or before is None else sign * (now - before)
    if name == "duration_s":
        return sum(s["duration_s"] or 0 for s in stages.values())
    rows = list(stages.values()) if name in EVERYWHERE else [stages[at]]
    values = [_figures(s).get(name) for s in rows]
    if name in EVERYWHERE:
        trained = [v for s, v in zip(rows, values, strict=True) if s["training"]]
        known = [v for v in trained if v is not None]
        return max(known) if known and len(known) == len(trained) else None
    return values[0]


def _surely_lost(
    name: str, at: str, baseline: str, found: Metrics, confidence: float
) -> float | None:
    """Return the end of the loss's interval that lies nearer to none."""
    metric = name.removesuffix("_drop").removesuffix("_rise")
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    if metric not in found[at]:
        return None
    drawn = bootstrap.interval(found[at][metric], found[baseline][metric], confidence)
    return min(sign * drawn.low, sign * drawn.high) if drawn.judges else None


def _figures(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Return all figures of a stage; of one that failed there are none."""
    groups = ("size", "memory", "latency", "metrics")
    return {k: v for group in groups for k, v in (stage.get(group) or {}).items()}
