"""Plots of any two figures of compared runs, with the Pareto front of each pair."""

from __future__ import annotations

from collections.abc import Sequence

from shrink.base.figures import Figure, figure_of
from shrink.contract.comparison import Comparison, Front
from shrink.report import svg
from shrink.report.fronts import Point, points_of, single_rows
from shrink.report.tradeoff import AXES, Mark, Space, axis_ticks, axis_title, names, side_by_side

_HEIGHT = 280
_NAMED = 12
_LOG_FROM = 4
_LONGEST = 26
_UNITS = {"bytes": "bytes", "ms": "ms", "s": "s", "fraction": "%", "per_hour": "per hour"}


def pair_plot(found: Comparison, front: Front) -> svg.Plot:
    """Return the plot of a pair of figures; its caption names what is on the front.

    Args:
        found: the comparison.
        front: one of its fronts, which has at least two points.
    """
    x_figure, y_figure = figure_of(front.x), figure_of(front.y)
    points = points_of(found.rows, found.repeats, front.x, front.y)
    on_front = sorted(
        (point for point in points if point.name in front.rows),
        key=lambda point: front.rows.index(point.name),
    )
    x, y = _scale([p.x for p in points]), _scale([v for p in points for v in (p.low, p.high)])
    titles = (_title(front.x, x_figure, x), _title(front.y, y_figure, y))
    parts = [svg.axes(x, y, axis_ticks(x, x_figure), axis_ticks(y, y_figure), titles)]
    if len(on_front) > 1:
        parts.append(svg.stretched([svg.line(_stairs(on_front, x, y), "front")]))
    parts += _marks(points, on_front, x, y, (x_figure, y_figure))
    told = [f"{p.name}: {x_figure.text(p.x)}, {y_figure.text(p.y)}" for p in points]
    title = f"{front.y} against {front.x}"
    return svg.Plot(
        title=title,
        caption=_caption(found, on_front, any(p.low < p.high for p in points)),
        markup=svg.image(
            f"pair-{front.x}-{front.y}", _HEIGHT, title, "; ".join(told), "".join(parts)
        ),
    )


def _scale(values: Sequence[float]) -> svg.Scale:
    return svg.covering(values, log=min(values) > 0 and max(values) > _LOG_FROM * min(values))


def _title(name: str, figure: Figure, scale: svg.Scale) -> str:
    words = AXES[name][1] if name in AXES else name
    return axis_title(words, _UNITS.get(figure.unit, ""), scale)


def _stairs(front: Sequence[Point], x: svg.Scale, y: svg.Scale) -> list[svg.Point]:
    """Return a line that is nowhere better than what was measured."""
    points: list[svg.Point] = []
    for one in front:
        if points:
            points.append((x(one.x), points[-1][1]))
        points.append((x(one.x), y(one.y)))
    return points


def _marks(
    points: Sequence[Point],
    on_front: Sequence[Point],
    x: svg.Scale,
    y: svg.Scale,
    figures: tuple[Figure, Figure],
) -> list[str]:
    """Return marks with their intervals, and names of all, or of the front where there are many."""
    moves = side_by_side([x(p.x) for p in points], [p in on_front for p in points])
    marks = [Mark(p.label, x(p.x), y(p.y), dx) for p, dx in zip(points, moves, strict=True)]
    parts = []
    for point, mark in zip(points, marks, strict=True):
        told = f"{point.name}: {figures[0].text(point.x)}, {figures[1].text(point.y)}"
        kind = "dot on-front" if point in on_front else "dot beaten"
        whisker = svg.rule((mark.x, y(point.low)), (mark.x, y(point.high)), "whisker")
        drawn = (whisker if point.low < point.high else "") + svg.dot(mark.x, mark.y, kind, told)
        parts.append(svg.shifted(drawn, mark.dx))
    pairs = sorted(zip(points, marks, strict=True), key=lambda pair: pair[0] not in on_front)
    named = [m for p, m in pairs if len(points) <= _NAMED or p in on_front]
    others = [mark for mark in marks if mark not in named]
    return [*parts, *names(named, others, _HEIGHT, Space(longest=_LONGEST))]


def _caption(found: Comparison, on_front: Sequence[Point], has_intervals: bool) -> str:
    texts = [
        f"Filled: on the Pareto front ({'; '.join(p.name for p in on_front)}), where nothing is "
        "better in one and no worse in the other."
    ]
    if has_intervals and found.repeats:
        others = "; of single runs on the test examples"
        more = others if single_rows(found.rows, found.repeats) else ""
        texts.append(f"Bars: 95 % intervals of the mean over seeds{more}.")
    elif has_intervals:
        texts.append("Bars: 95 % intervals on the test examples.")
    return " ".join(texts)
