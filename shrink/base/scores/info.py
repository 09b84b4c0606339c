"""What is known of a metric, and how it is computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shrink.base.arguments import Argument
from shrink.base.intervals import Bounds
from shrink.base.losses import ValueKind
from shrink.base.scores.output import Output
from shrink.base.scores.rule import MakeRule
from shrink.base.types import Array

REAL: frozenset[ValueKind] = frozenset({"values"})
BINARY: frozenset[ValueKind] = frozenset({"labels"})
CLASSES: frozenset[ValueKind] = frozenset({"classes"})
LABELS: frozenset[ValueKind] = CLASSES | BINARY

MetricUnit = Literal["fraction", "none", "per_hour"]
UNIT: Bounds = (0.0, 1.0)
POSITIVE: Bounds = (0.0, math.inf)
OF_CLASS = Argument("class", form="class")


@dataclass(frozen=True)
class MetricInfo:
    """What is known of a metric before any data is seen, and how it is computed.

    Attributes:
        higher_is_better: whether a drop is a loss.
        kinds: those of the outputs that it makes sense for.
        unit: fractions are shown in percent, their differences in points.
        range: what the value and its interval cannot leave; infinite where there is no end.
        parameters: its arguments, in the order of the key.
        needs_logits: whether it matters that outputs are logits and not probabilities.
        needs_slices: whether it looks at the slices of examples, which only test examples have.
        elements: of a mean over elements, the metric of each, (n, ...).
        rule: of any other metric; that of detections is in `shrink.task.metrics.detection`.
    """

    higher_is_better: bool
    kinds: frozenset[ValueKind]
    unit: MetricUnit = "none"
    range: Bounds | None = None
    parameters: tuple[Argument, ...] = ()
    needs_logits: bool = False
    needs_slices: bool = False
    elements: Callable[[Output], Array] | None = None
    rule: MakeRule | None = None

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean over elements, the interval of which has a closed form."""
        return self.elements is not None

    @property
    def is_of_real_targets(self) -> bool:
        """Whether it belongs to a regression."""
        return self.kinds == REAL


def share(*parameters: Argument, rule: MakeRule) -> MetricInfo:
    """Return a share of 0 to 1 of what a classifier decides, shown in percent."""
    return MetricInfo(True, LABELS, "fraction", UNIT, parameters, needs_logits=True, rule=rule)
