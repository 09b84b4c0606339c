"""Rules of the metrics that are not means over examples, by name."""

from __future__ import annotations

from collections.abc import Mapping

from shrink.task.metrics import calibration, confusion, detection, ranking, regression
from shrink.task.metrics.rule import MakeRule

RULES: Mapping[str, MakeRule] = {
    **confusion.RULES,
    **ranking.RULES,
    **calibration.RULES,
    **regression.RULES,
    **detection.RULES,
}
"""Those of `shrink.base.metrics.METRICS` that say `is_mean=False`."""
