"""Scatter plots of a metric against a cost, with the Pareto front: of stages, and of runs.

Marks stand at their true values and have numbers; the caption says what the numbers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shrink.base.figures import COSTS, Figure, figure_of
from shrink.contract.comparison import Comparison, Front
from shrink.contract.report import Report
from shrink.report.comparison_rows import FrontPoint, front_points, point_at, points_of, shown_rows
from shrink.report.content import main_metric
from shrink.report.svg import Dot, Plot, StraightLine, axis, numbered_labels

_HEIGHT = 260
_LOG_FROM = 4
_SAME, _SAME_LATENCY = 1.02, 1.5
"""Ratio of largest to smallest below which a figure does not distinguish stages: file sizes are
exact, the latency of one artifact differs by a third from run to run."""
_NONZERO = "nonzero_parameters"
_UNITS = {"bytes": "bytes", "ms": "ms", "s": "s", "fraction": "%", "per_hour": "per hour"}


def tradeoff_plot(report: Report) -> Plot | None:
    """Return the main metric against the size of the TFLite file; None below two points.

    Where all files are equally large, as zeros in dense tensors leave them, it is against the
    number of nonzero parameters.
    """
    metric = main_metric(report)
    if metric is None or len(_stage_points(report, metric, COSTS[0])) < 2:
        return None
    if not _differs(report, metric, COSTS[0]) and _differs(report, metric, _NONZERO):
        return _stage_plot(report, metric, _NONZERO, "All TFLite files are about equally large. ")
    return _stage_plot(report, metric, COSTS[0])


def other_tradeoffs(report: Report) -> list[Plot]:
    """Return the main metric against the next costs, where these differ."""
    metric, costs = main_metric(report), COSTS[1:4]
    if metric is None:
        return []
    return [_stage_plot(report, metric, cost) for cost in costs if _differs(report, metric, cost)]


def _stage_plot(report: Report, metric: str, cost: str, note: str = "") -> Plot:
    points = _stage_points(report, metric, cost)
    front, notes = front_points(points, cost, metric), [f"{note}Bars: 95 % intervals."]
    return plot(f"tradeoff-{cost}", points, front, cost, metric, notes)


def _stage_points(report: Report, metric: str, cost: str) -> list[FrontPoint]:
    return [
        point_at(stage.name, stage.name, x, y, stage.intervals.get(metric))
        for stage in report.stages
        if (x := stage.figure(cost)) is not None and (y := stage.figure(metric)) is not None
    ]


def _differs(report: Report, metric: str, cost: str) -> bool:
    values = [point.x for point in _stage_points(report, metric, cost)]
    same = _SAME_LATENCY if figure_of(cost).group == "latency" else _SAME
    return len(values) > 1 and max(values) > same * min(values)


def compared_plot(found: Comparison, front: Front) -> Plot:
    """Return the plot of one pair of figures of compared runs.

    Args:
        found: the comparison.
        front: one of its fronts, which has at least two points.
    """
    rows = shown_rows(found.rows, found.repeats)
    points = points_of(rows, front.x, front.y)
    on_front = [point for name in front.rows for point in points if point.name == name]
    notes = []
    if any(point.low < point.high for point in points):
        single = len(rows) > len(found.repeats)
        of = "of the mean over seeds" if found.repeats else f"on the {found.split} examples"
        more = f"; of single runs on the {found.split} examples" if found.repeats and single else ""
        notes.append(f"Bars: 95 % intervals {of}{more}.")
    return plot(f"pair-{front.x}-{front.y}", points, on_front, front.x, front.y, notes)


def plot(
    identifier: str,
    points: Sequence[FrontPoint],
    on_front: Sequence[FrontPoint],
    x_name: str,
    y_name: str,
    notes: Sequence[str],
) -> Plot:
    """Return a scatter plot.

    Args:
        identifier: unique on the page.
        points: at least two.
        on_front: those on the Pareto front, from the best `x` on.
        x_name, y_name: the figures.
        notes: sentences for the caption.
    """
    xs, ys = [p.x for p in points], [v for p in points for v in (p.low, p.high)]
    across, up = figure_of(x_name), figure_of(y_name)
    x = axis(xs, _title(across), across.unit, log=max(xs) > _LOG_FROM * min(xs) > 0)
    y = axis(ys, _title(up), up.unit, log=False)
    if up.unit == "fraction" and max(ys) <= 1 < y.high:
        y = replace(y, high=1.0, marks=tuple(mark for mark in y.marks if mark <= 1))
    stairs: list[tuple[float, float]] = []  # up to the next point nothing better is known
    for point in on_front if len(on_front) > 1 else ():
        stairs += [(point.x, stairs[-1][1])] if stairs else []
        stairs.append((point.x, point.y))
    numbers = [p.number or str(index) for index, p in enumerate(points, 1)]
    named = [((p.x, p.y), n, p.label) for p, n in zip(points, numbers, strict=True)]
    labels, legend = numbered_labels(x, y, named)
    texts = [f"{p.name}: {across.text(p.x)}, {up.text(p.y)}" for p in points]
    kinds = ["dot on-front" if point in on_front else "dot beaten" for point in points]
    marks = zip(points, kinds, texts, strict=True)
    whiskers = [
        StraightLine((p.x, p.low), (p.x, p.high), "whisker") for p in points if p.low < p.high
    ]
    filled = ", ".join(numbers[points.index(p)] for p in on_front)
    caption = [
        legend,
        f"Filled ({filled}): on the Pareto front; no other is better in one and no worse in the "
        "other.",
        *notes,
    ]
    return Plot(
        title=f"{up.title or y_name} against {across.title or x_name}",
        caption=" ".join(caption),
        identifier=identifier,
        x=x,
        y=y,
        curves={"front": stairs} if stairs else {},
        dots=tuple(Dot(p.x, p.y, kind, text) for p, kind, text in marks),
        rules=tuple(whiskers),
        labels=labels,
        height=_HEIGHT,
        described="; ".join(texts),
    )


def _title(figure: Figure) -> str:
    unit = _UNITS.get(figure.unit)
    name = figure.title or figure.name
    return f"{name} ({unit})" if unit else name
