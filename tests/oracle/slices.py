"""Slices of the test examples, recomputed from outputs: by class, and by what the truth names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm

from tests.oracle import metrics
from tests.oracle.metrics import CLASSES, LABELS, NOISE, Metric
from tests.oracle.records import Ledger
from tests.oracle.truth import Output, Truth
from tests.oracle.whole import Whole

FEWEST = 20
Elements = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of each element that counts: its example, its class, its score, whether that is beyond doubt."""


def check(
    entry: Mapping[str, Any],
    base: Mapping[str, Any],
    outputs: Sequence[np.ndarray],
    before: Sequence[np.ndarray],
    truth: Truth,
    ledger: Ledger,
) -> None:
    """Compare the slices of a stage, and what they lost against the baseline.

    Args:
        entry, base: the stage and the baseline as the report has them.
        outputs, before: what the two give for the test examples.
        truth: what examples are and in which slices.
        ledger: the records go here.
    """
    at = entry["name"]
    reported = {slicing["by"]: slicing for slicing in entry.get("slices", [])}
    expected = [*(["class"] if _has_classes(truth) else []), *truth.slices]
    ledger.same("slices (by)", sorted(reported), sorted(expected), at=at)
    for by, labels in truth.slices.items():
        if by in reported:
            _by_value(reported[by], labels, outputs, truth, ledger, at)
    if "class" in reported and _has_classes(truth):
        now = _elements(outputs[0], truth)
        then = None if entry is base else _elements(before[0], truth)
        count = sum(r["test"] is not None for s in entry["slices"] for r in s["slices"])
        _by_class(reported["class"], now, then, count, ledger, at)
    if entry is not base:
        _verdicts(entry, ledger, at)


def _has_classes(truth: Truth) -> bool:
    loss = truth.outputs[0].loss
    return len(truth.outputs) == 1 and loss in (*CLASSES, *LABELS)


def _by_value(
    slicing: Mapping[str, Any],
    labels: np.ndarray,
    outputs: Sequence[np.ndarray],
    truth: Truth,
    ledger: Ledger,
    at: str,
) -> None:
    rows = {row["name"]: row for row in slicing["slices"]}
    by = slicing["by"]
    ledger.same(f"slices.{by} (names)", sorted(rows), sorted(set(map(str, labels))), at=at)
    for name, row in rows.items():
        inside = labels == name
        part = replace(
            truth,
            inputs={key: value[inside] for key, value in truth.inputs.items()},
            targets={key: value[inside] for key, value in truth.targets.items()},
            masks={key: value[inside] for key, value in truth.masks.items()},
        )
        figure = f"slices.{by}.{name}"
        ledger.same(f"{figure}.examples", row["examples"], int(inside.sum()), at=at)
        found = metrics.compute([value[inside] for value in outputs], part)
        for metric, expected in found.items():
            _metric(f"{figure}.{metric}", row["metrics"].get(metric), metric, expected, ledger, at)


def _metric(
    figure: str, value: float | None, name: str, found: Metric | Whole, ledger: Ledger, at: str
) -> None:
    expected = float(found.value()[0])
    if np.isnan(expected):
        ledger.same(figure, value, None, at=at)
    elif isinstance(found, Whole) or name in ("accuracy", "top5_accuracy", "binary_accuracy"):
        ledger.between(figure, value, *found.bounds, at=at)
    else:
        ledger.same(figure, value, expected, relative=1e-3, absolute=1e-5, at=at)


def _elements(values: np.ndarray, truth: Truth) -> Elements:
    """Return the score of every element: of equal outputs the first is decided."""
    output = truth.outputs[0]
    n, k = len(values), values.shape[-1]
    rows = np.asarray(values, np.float64).reshape(n, -1, k)
    target = truth.targets[output.name]
    mask = truth.masks.get(output.name)
    counted = np.ones(rows.shape[:2], bool) if mask is None else mask.reshape(n, -1).astype(bool)
    example = np.nonzero(counted)[0]
    if output.loss in LABELS:
        return _of_labels(rows[counted], target.reshape(rows.shape)[counted], example, output)
    if target.shape == values.shape and k > 1:
        own = target.reshape(rows.shape).argmax(-1)[counted]
    else:
        own = target.reshape(rows.shape[:2])[counted].astype(int)
    given = rows[counted]
    mine = given[np.arange(len(own)), own]
    score = (given.argmax(1) == own).astype(float)
    others = np.where(np.arange(k) == own[:, None], -np.inf, given).max(1)
    apart = np.abs(mine - others)
    sure = (apart == 0) | (apart > NOISE * np.maximum(np.abs(given).max(1), 1e-12))
    return example, own, score, sure


def _of_labels(
    rows: np.ndarray, target: np.ndarray, example: np.ndarray, output: Output
) -> Elements:
    middle = 0.0 if output.from_logits else 0.5
    sure = np.abs(rows - middle) > NOISE * np.maximum(np.abs(rows), 1e-12)
    positive = rows > middle
    if rows.shape[1] == 1:
        own = (target[:, 0] > 0.5).astype(int)
        return example, own, (positive[:, 0] == own).astype(float), sure[:, 0]
    place, own = np.nonzero(target > 0.5)
    return example[place], own, positive[place, own].astype(float), sure[place, own]


def _by_class(
    slicing: Mapping[str, Any],
    now: Elements,
    then: Elements | None,
    count: int,
    ledger: Ledger,
    at: str,
) -> None:
    """Compare recalls, and the limits that hold for `count` slices together."""
    for index, row in enumerate(slicing["slices"]):
        figure = f"slices.class.{row['name']}"
        mine = np.flatnonzero(now[1] == index)
        examples = np.unique(now[0][mine])
        ledger.same(f"{figure}.examples", row["examples"], len(examples), at=at)
        value = row["metrics"]["recall"]
        if not len(mine):
            ledger.same(f"{figure}.recall", value, None, at=at)
            continue
        doubt = float(np.mean(~now[3][mine]))
        recall = float(now[2][mine].mean())
        ledger.between(f"{figure}.recall", value, recall - doubt, recall + doubt, at=at)
        if then is None or row["examples"] < FEWEST:
            ledger.same(f"{figure}.test", row["test"], None, at=at)
            continue
        old = np.flatnonzero(then[1] == index)
        one_each = len(examples) == len(mine) and bool(now[3][mine].all() and then[3][old].all())
        pair = then[2][old], now[2][mine]
        if one_each and all(np.isin(scores, (0, 1)).all() for scores in pair):
            low, high = _newcombe(*pair, 1 - 0.05 / count)
            for name, limit in (("low", low), ("high", high)):
                ledger.same(f"{figure}.test.{name}", row["test"][name], limit, absolute=1e-9, at=at)


def _newcombe(before: np.ndarray, after: np.ndarray, confidence: float) -> tuple[float, float]:
    """Return the limits of a difference of paired proportions.

    Newcombe 1998, Statistics in Medicine 17:2635, method 10: Wilson's limits of both proportions,
    and phi with the correction for continuity.
    """
    n, z = len(before), float(norm.isf((1 - confidence) / 2))

    def wilson(p: float) -> tuple[float, float]:
        centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        return centre - half, centre + half

    a, b = int((before * after).sum()), int((before * (1 - after)).sum())
    c, d = int(((1 - before) * after).sum()), int(((1 - before) * (1 - after)).sum())
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    cross = float(a * d - b * c)
    cross = max(cross - n / 2, 0.0) if cross > 0 else float(cross)
    phi = cross / np.sqrt(margins) if margins else 0.0
    old, new = (a + b) / n, (a + c) / n
    (old_low, old_high), (new_low, new_high) = wilson(old), wilson(new)

    def distance(u: float, v: float) -> float:
        return float(np.sqrt(max(u**2 - 2 * phi * u * v + v**2, 0)))

    low = new - old - distance(new - new_low, old_high - old)
    return max(low, -1), min(new - old + distance(new_high - new, old - old_low), 1)


def _verdicts(entry: Mapping[str, Any], ledger: Ledger, at: str) -> None:
    """Compare verdicts with what the limits, which hold for all slices together, leave open."""
    for slicing in entry.get("slices", []):
        for row in slicing["slices"]:
            if row["test"] is None:
                continue
            low, high = row["test"]["low"], row["test"]["high"]
            figure = f"slices.{slicing['by']}.{row['name']}.test"
            proven = row["test"]["verdict"] != "no proven difference"
            ledger.same(f"{figure}.verdict", proven, low > 0 or high < 0, at=at)
            ledger.same(f"{figure} (limits)", low <= row["delta"]["value"] <= high, True, at=at)
            # Limits for several slices together are never narrower than those of one.
            wider = low <= row["delta"]["low"] and high >= row["delta"]["high"]
            ledger.same(f"{figure} (together)", wider, True, at=at)
