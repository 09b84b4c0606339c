"""What an output gave, and one metric of it, for tests of metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from shrink.base.bootstrap import Resampled
from shrink.base.metrics import metric_of
from shrink.base.scores.output import output_of
from shrink.base.scores.rule import Weighted, joined
from shrink.task.metrics.resample import resample
from shrink.task.metrics.whole import rule_of


def weighted(key: str, outputs: Any, targets: Any, **settings: Any) -> Weighted:
    """Return a metric as a function of weights, from two batches."""
    metric = metric_of(key)
    assert metric is not None
    rule = rule_of(metric)
    outputs, targets = np.asarray(outputs), np.asarray(targets)
    mask, half = settings.pop("mask", None), (len(outputs) + 1) // 2
    parts, counts = [], []
    for part in (slice(None, half), slice(half, None)):
        own = None if mask is None else np.asarray(mask)[part]
        if len(outputs[part]):
            parts.append(rule.keep(output_of(outputs[part], targets[part], mask=own, **settings)))
            counts.append(len(outputs[part]))
    return rule.over(joined(parts, counts), len(outputs))


def value(key: str, outputs: Any, targets: Any, **settings: Any) -> float:
    """Return a metric, NaN where it is not defined."""
    of = weighted(key, outputs, targets, **settings)
    return float(of.of(np.ones((1, len(outputs))))[0])


def sampled(key: str, outputs: Any, targets: Any, **settings: Any) -> Resampled | None:
    """Return what the interval of a metric is computed from."""
    return resample([weighted(key, outputs, targets, **settings)], len(outputs))[0]
