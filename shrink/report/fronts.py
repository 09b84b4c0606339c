"""Pareto fronts of any two figures of compared runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shrink.base.figures import COSTS, DURATION, LOSS, figure_of
from shrink.contract.comparison import ComparedRow, Front, RepeatedRow
from shrink.contract.details import Limits, MetricDelta

_ROUNDING = 1e-9
_MOST_METRICS = 4
_MOST_POINTS_IN_ALL_PAIRS = 30
"""Points above which only pairs with the main metric are offered: a page stays below 2 MB."""


@dataclass(frozen=True)
class Point:
    """A row, or a combination of several seeds, in the plane of two figures."""

    name: str
    label: str
    x: float
    y: float
    low: float
    high: float


def points_of(
    rows: Sequence[ComparedRow], repeats: Sequence[RepeatedRow], x: str, y: str
) -> list[Point]:
    """Return where rows that have both figures lie, the means of combinations before single runs.

    `low` and `high` are the 95 % interval of `y`: for a combination of the mean over seeds, else
    that of a metric on other examples; `y` itself where there is none.
    """
    means = [
        Point(
            one.name,
            short_name(one.name, list(one.settings.values())),
            one.figures[x].mean,
            (mean := one.figures[y]).mean,
            mean.mean if mean.low is None else mean.low,
            mean.mean if mean.high is None else mean.high,
        )
        for one in repeats
        if x in one.figures and y in one.figures
    ]
    single = [
        Point(
            row.name,
            short_name(row.name, list(row.settings.values())),
            row.figures[x],
            row.figures[y],
            *_interval(row, y),
        )
        for row in single_rows(rows, repeats)
        if x in row.figures and y in row.figures
    ]
    return [*means, *single]


def single_rows(
    rows: Sequence[ComparedRow], repeats: Sequence[RepeatedRow]
) -> Sequence[ComparedRow]:
    """Return the rows that stand for themselves: those that are no repeats."""
    return [row for row in rows if row.combination is None] if repeats else rows


def _interval(row: ComparedRow, y: str) -> tuple[float, float]:
    value, limits = row.figures[y], row.intervals.get(y, Limits())
    low = value if limits.low is None else min(limits.low, value)
    return low, value if limits.high is None else max(limits.high, value)


def short_name(name: str, values: Sequence[str]) -> str:
    """Return what a mark is called: the values of a sweep's settings, else the row's name."""
    settings, _, branch = name.partition(" / ")
    if " = " not in settings or not values:
        return name
    return ", ".join(values) + (f" / {branch}" if branch else "")


def front_points(points: Sequence[Point], x: str, y: str) -> list[Point]:
    """Return the points that no other beats in one figure without losing in the other.

    Points that are equal in both all stay. They begin with the best `x`.
    """
    sign_x, sign_y = (1 if figure_of(name).larger_is_better else -1 for name in (x, y))

    def beaten(point: Point) -> bool:
        return any(
            sign_x * other.x >= sign_x * point.x
            and sign_y * other.y >= sign_y * point.y
            and (other.x, other.y) != (point.x, point.y)
            for other in points
        )

    return sorted((p for p in points if not beaten(p)), key=lambda p: -sign_x * p.x)


def pairs_of(
    rows: Sequence[ComparedRow], repeats: Sequence[RepeatedRow], metric: str | None
) -> list[tuple[str, str]]:
    """Return pairs of a horizontal and a vertical figure that are worth a plot.

    The main metric against the first cost that differs comes first, then the main metric against
    the others, then all other pairs.
    """
    names = [name for name in _candidates(rows, metric) if _differs(rows, repeats, name)]
    costs = [name for name in names if name in COSTS]
    metrics = [name for name in names if name not in COSTS]
    vertical = [*metrics, *costs]
    pairs = [(x, y) for y, x in itertools.combinations(vertical, 2)]
    if metric is not None and metric not in metrics and costs:
        pairs = [(costs[0], metric), *pairs]  # one value for all is an answer, too
    first = [pair for pair in pairs if pair[1] == metric and pair[0] in COSTS]
    rest = [pair for pair in pairs if pair not in first]
    many = len(repeats) + len(single_rows(rows, repeats)) > _MOST_POINTS_IN_ALL_PAIRS
    return [*first, *(pair for pair in rest if not many or metric in pair)]


def fronts_of(
    rows: Sequence[ComparedRow], repeats: Sequence[RepeatedRow], metric: str | None
) -> Iterator[Front]:
    """Yield the front of each pair of figures that has at least two points."""
    for x, y in pairs_of(rows, repeats, metric):
        points = points_of(rows, repeats, x, y)
        if len(points) > 1:
            yield Front(x=x, y=y, rows=tuple(p.name for p in front_points(points, x, y)))


def _candidates(rows: Sequence[ComparedRow], metric: str | None) -> list[str]:
    found = dict.fromkeys(name for row in rows for name in row.figures)
    metrics = [n for n in found if figure_of(n).group == "metrics" and n != DURATION]
    ordered = sorted(metrics, key=lambda name: (name != metric, name == LOSS))
    return [*ordered[:_MOST_METRICS], *(name for name in COSTS if name in found)]


def _differs(rows: Sequence[ComparedRow], repeats: Sequence[RepeatedRow], name: str) -> bool:
    values = {one.figures[name].mean for one in repeats if name in one.figures}
    values |= {r.figures[name] for r in single_rows(rows, repeats) if name in r.figures}
    if not values:
        return False
    return not math.isclose(min(values), max(values), rel_tol=_ROUNDING)  # means are rounded


def change_of(row: ComparedRow, metric: str) -> MetricDelta | None:
    """Return a metric's difference to the run's baseline; None where there is none."""
    delta = row.delta.get(metric)
    return delta if isinstance(delta, MetricDelta) else None
