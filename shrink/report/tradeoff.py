"""Accuracy against size: what each stage is worth, and which of them nothing else beats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shrink.report import svg
from shrink.report.content import Report, main_metric
from shrink.report.figures import Figure, figure_of, metric_figure

_SIZE = "tflite_bytes"
_NAMED = 8
_LOG_FROM = 4
_NAME_LENGTH = 16
_LABEL_ROOM = (0.30, 7.0)
"""Two labels nearer than this (share of the width, percent of the height) would overlap."""
_HEIGHT = 260


@dataclass(frozen=True)
class Candidate:
    """A stage in the plane of size and metric."""

    name: str
    size: float
    score: float
    low: float
    high: float


def pareto_front(points: Sequence[Candidate], larger_is_better: bool) -> list[Candidate]:
    """Return the candidates that no other beats in one respect without losing in the other.

    Sorted by size; of candidates that are equal in both, all stay.
    """
    sign = 1 if larger_is_better else -1

    def beaten(point: Candidate) -> bool:
        return any(
            other.size <= point.size
            and sign * other.score >= sign * point.score
            and (other.size, other.score) != (point.size, point.score)
            for other in points
        )

    return sorted((p for p in points if not beaten(p)), key=lambda p: (p.size, p.score))


def tradeoff_plot(report: Report) -> svg.Plot | None:
    """Return the main metric against the size of the TFLite file; None below two points."""
    metric = main_metric(report)
    points = list(_candidates(report, metric)) if metric else []
    if metric is None or len(points) < 2:
        return None
    figure, size = metric_figure(metric), figure_of(_SIZE)
    front = pareto_front(points, figure.larger_is_better)
    sizes = [p.size for p in points]
    x = svg.scale_of(sizes, log=max(sizes) > _LOG_FROM * min(sizes))
    y = svg.scale_of([v for p in points for v in (p.low, p.high)], log=False)
    parts = [svg.axes(x, y, _ticks(x, size), _ticks(y, figure))]
    parts.append(svg.stretched([svg.line(_steps(front, x, y), "front")]))
    for point in points:
        at = x(point.size)
        parts.append(svg.rule((at, y(point.low)), (at, y(point.high)), "whisker"))
        kind = "on-front" if point in front else "beaten"
        told = f"{point.name}: {size.text(point.size)}, {figure.text(point.score)}"
        parts.append(svg.dot(at, y(point.score), f"dot {kind}", told))
    parts += _labels(points if len(points) <= _NAMED else front, x, y)
    told = "; ".join(f"{p.name} {size.text(p.size)} {figure.text(p.score)}" for p in points)
    title = f"{metric} against the size of the TFLite file"
    named = ", ".join(p.name for p in front)
    return svg.Plot(
        title=title,
        caption=f"Filled: on the Pareto front ({named}), where nothing is both smaller and better. "
        f"Bars: 95 % intervals on the test examples."
        f"{' Sizes on a logarithmic axis.' if x.log else ''}",
        markup=svg.picture("tradeoff", _HEIGHT, title, told, "".join(parts)),
    )


def _candidates(report: Report, metric: str) -> Iterator[Candidate]:
    for stage in report["stages"]:
        size = (stage["size"] or {}).get(_SIZE)
        score = (stage["metrics"] or {}).get(metric)
        if size is None or score is None:
            continue
        interval = (stage.get("intervals") or {}).get(metric) or {}
        low, high = interval.get("low"), interval.get("high")
        yield Candidate(
            stage["name"],
            size,
            score,
            score if low is None else min(low, score),
            score if high is None else max(high, score),
        )


def _steps(front: Sequence[Candidate], x: svg.Scale, y: svg.Scale) -> list[svg.Point]:
    """Return the front as stairs: up to the next candidate's size nothing better is known."""
    points: list[svg.Point] = []
    for candidate in front:
        if points:
            points.append((x(candidate.size), points[-1][1]))
        points.append((x(candidate.size), y(candidate.score)))
    return points


def _labels(points: Sequence[Candidate], x: svg.Scale, y: svg.Scale) -> list[str]:
    """Return the candidates' names beside their marks, moved apart where they would overlap."""
    placed: list[svg.Point] = []
    parts = []
    for point in sorted(points, key=lambda p: -p.score):
        at, height = x(point.size), y(point.score)
        away = _LABEL_ROOM[1] / 2 * (1 if height < 50 else -1)
        while any(_overlap((at, height), other) for other in placed):
            height += away
        placed.append((at, height))
        side = ("label end", -10) if at > 60 else ("label", 10)
        name = point.name if len(point.name) <= _NAME_LENGTH else point.name[:_NAME_LENGTH] + "…"
        parts.append(svg.text(at, height, name, side[0], side[1], 4))
    return parts


def _overlap(a: svg.Point, b: svg.Point) -> bool:
    same_side = (a[0] > 60) == (b[0] > 60)
    return (
        same_side and abs(a[0] - b[0]) < 100 * _LABEL_ROOM[0] and abs(a[1] - b[1]) < _LABEL_ROOM[1]
    )


def _ticks(scale: svg.Scale, figure: Figure) -> list[tuple[float, str]]:
    return [(tick, _tick_text(tick, figure)) for tick in scale.ticks(4)]


def _tick_text(tick: float, figure: Figure) -> str:
    if figure.unit == "fraction":
        return f"{100 * tick:.4g} %"
    number, space, unit = figure.text(tick).partition(" ")
    plain = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{plain}{space}{unit}"
