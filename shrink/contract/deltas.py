"""Differences of figures, and the intervals of metrics."""

from collections.abc import Mapping

from shrink.contract.codec import left_out
from shrink.contract.record import record


@record
class Limits:
    """The 95 % interval of a metric itself.

    Attributes:
        low, high: None where one example says nothing.
        note: what the limits do not show: that they are wide, or may be too narrow.
    """

    low: float | None = None
    high: float | None = None
    note: str | None = left_out(None)


@record
class FigureDelta:
    """The difference of a size, a memory or a latency; no ratio to a 0."""

    value: float
    ratio: float | None


@record
class MetricDelta:
    """The difference of a metric with its 95 % interval, as in `Limits`."""

    value: float
    low: float | None = None
    high: float | None = None
    note: str | None = left_out(None)


Deltas = Mapping[str, FigureDelta | MetricDelta | None]
"""Differences by figure; None where either side is null."""


def metric_delta(deltas: Deltas | None, metric: str) -> MetricDelta | None:
    """Return a metric's difference; None where there is none."""
    delta = (deltas or {}).get(metric)
    return delta if isinstance(delta, MetricDelta) else None
