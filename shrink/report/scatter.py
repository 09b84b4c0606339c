"""Scatter plots of a metric against a cost, with the Pareto front: of stages, and of runs.

Marks stand at their true values and have numbers; the caption says what the numbers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shrink.base.figures import Figure, figure_of
from shrink.contract.comparison import Comparison, Front
from shrink.contract.details import Limits
from shrink.contract.report import Report
from shrink.report import svg
from shrink.report.compared import Point, front_points, points_of, shown_rows
from shrink.report.content import main_metric

_HEIGHT = 260
_LOG_FROM = 4
_SAME, _SAME_LATENCY = 1.02, 1.5
"""Ratio of largest to smallest below which a figure does not distinguish stages: file sizes are
exact, the latency of one artifact differs by a third from run to run."""
_SIZES = ("tflite_bytes", "gzip_bytes", "nonzero_parameters")
_OTHERS = ("macs", "arena_bytes", "p50_ms")
_UNITS = {"bytes": "bytes", "ms": "ms", "s": "s", "fraction": "%", "per_hour": "per hour"}


def tradeoff_plot(report: Report) -> svg.Plot | None:
    """Return the main metric against size; None below two points.

    Size is that of the TFLite file. Where all files are equally large, as zeros in dense tensors
    leave them, it is the size under gzip, if all artifacts are of one kind, else the number of
    nonzero parameters.
    """
    metric = main_metric(report)
    if metric is None:
        return None
    kinds = {s.artifact.rpartition(".")[2] for s in report.stages if s.artifact}
    usable = [name for name in _SIZES if name != "gzip_bytes" or len(kinds) == 1]
    if len(_stage_points(report, metric, "tflite_bytes")) < 2:
        return None
    cost = next((name for name in usable if _differs(report, metric, name)), "tflite_bytes")
    return _stage_plot(report, metric, cost)


def other_tradeoffs(report: Report) -> list[svg.Plot]:
    """Return the main metric against MACs, arena and latency, where these differ."""
    metric = main_metric(report)
    if metric is None:
        return []
    plots = [_stage_plot(report, metric, c) for c in _OTHERS if _differs(report, metric, c)]
    return [plot for plot in plots if plot is not None]


def _stage_plot(report: Report, metric: str, cost: str) -> svg.Plot | None:
    points = _stage_points(report, metric, cost)
    if len(points) < 2:
        return None
    equal = cost in _SIZES and cost != "tflite_bytes"
    notes = ["All TFLite files are about equally large."] if equal else []
    notes.append("Bars: 95 % intervals.")
    return plot(f"tradeoff-{cost}", points, front_points(points, cost, metric), cost, metric, notes)


def _stage_points(report: Report, metric: str, cost: str) -> list[Point]:
    points = []
    for stage in report.stages:
        x, y = stage.figure(cost), stage.figure(metric)
        if x is not None and y is not None:
            limits = stage.intervals.get(metric, Limits())
            low = y if limits.low is None else min(limits.low, y)
            high = y if limits.high is None else max(limits.high, y)
            points.append(Point(stage.name, stage.name, x, y, low, high))
    return points


def _differs(report: Report, metric: str, cost: str) -> bool:
    values = [point.x for point in _stage_points(report, metric, cost)]
    same = _SAME_LATENCY if cost == "p50_ms" else _SAME
    return len(values) > 1 and max(values) > same * min(values)


def compared_plot(found: Comparison, front: Front) -> svg.Plot:
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
    points: Sequence[Point],
    on_front: Sequence[Point],
    x_name: str,
    y_name: str,
    notes: Sequence[str],
) -> svg.Plot:
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
    x = svg.axis(xs, _title(across), across.unit, log=max(xs) > _LOG_FROM * min(xs) > 0)
    y = svg.axis(ys, _title(up), up.unit, log=False)
    if up.unit == "fraction" and max(ys) <= 1 < y.high:
        y = replace(y, high=1.0, marks=tuple(mark for mark in y.marks if mark <= 1))
    parts = [svg.axes(x, y)]
    if len(on_front) > 1:
        stairs: list[svg.Point] = []  # up to the next point nothing better is known
        for point in on_front:
            if stairs:
                stairs.append((x(point.x), stairs[-1][1]))
            stairs.append((x(point.x), y(point.y)))
        parts.append(svg.stretched([svg.line(stairs, "front")]))
    described = []
    for point in points:
        at = x(point.x)
        described.append(f"{point.name}: {across.text(point.x)}, {up.text(point.y)}")
        if point.low < point.high:
            parts.append(svg.rule((at, y(point.low)), (at, y(point.high)), "whisker"))
        kind = "dot on-front" if point in on_front else "dot beaten"
        parts.append(svg.dot(at, y(point.y), kind, described[-1]))
    labels, legend = svg.numbered([(x(p.x), y(p.y), p.label) for p in points])
    filled = ", ".join(str(1 + points.index(p)) for p in on_front)
    caption = [
        legend,
        f"Filled ({filled}): on the Pareto front; no other is better in one and no worse in the "
        "other.",
        *notes,
    ]
    title = f"{up.title or y_name} against {across.title or x_name}"
    image = svg.image(identifier, _HEIGHT, title, "; ".join(described), "".join([*parts, *labels]))
    return svg.Plot(title=title, caption=" ".join(caption), markup=image)


def _title(figure: Figure) -> str:
    unit = _UNITS.get(figure.unit)
    name = figure.title or figure.name
    return f"{name} ({unit})" if unit else name
