"""The plot of accuracy against size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shrink.base.figures import Figure, figure_of, metric_figure
from shrink.contract.details import Limits
from shrink.contract.report import Report
from shrink.report import svg
from shrink.report.content import main_metric

_NARROWEST = 250.0
"""Pixels that a plot is wide on a phone; wider ones leave names only more room."""
_LETTER, _ROW, _RADIUS = 7.5, 16.0, 8.0
"""Pixels: the width of a letter, the height of a row of text, half of a mark and its room."""
_GAP, _MARGIN = 10.0, 22.0
"""Pixels between a mark and its name, and by how much a name may leave the plot sideways."""
_CONNECTED_FROM = 12.0
"""Pixels up or down from which a line leads from a mark to its name."""
_NAME_LENGTH = 16
_SAME_PERCENT = 1.5
_SIDE_STEP = 14.0


@dataclass(frozen=True)
class Mark:
    """A mark to be named: its place in percent from the lower left, moved right by pixels."""

    name: str
    x: float
    y: float
    dx: float = 0.0


@dataclass(frozen=True)
class Space:
    """How wide a plot is at least, how many letters of a name are shown, and the room beside it.

    `margin`: pixels by which a name may leave the plot to the left or right; `lift`: pixels above
    its mark at which a name is tried first.
    """

    width: float = _NARROWEST
    longest: int = _NAME_LENGTH
    margin: float = _MARGIN
    lift: float = 0.0


@dataclass(frozen=True)
class _Box:
    """A rectangle in pixels, from the upper left of a plot of the least width."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        """Return whether two boxes overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def side_by_side(positions: Sequence[float], fixed: Sequence[bool]) -> list[float]:
    """Return by how many pixels to move marks that stand at one place across, so that all show.

    Args:
        positions: of the marks, in percent of the width.
        fixed: the marks that stay where they are, if only one of those at a place is so.
    """
    moves = [0.0] * len(positions)
    groups: list[list[int]] = []
    for index in sorted(range(len(positions)), key=lambda i: (positions[i], not fixed[i])):
        if groups and positions[index] - positions[groups[-1][0]] < _SAME_PERCENT:
            groups[-1].append(index)
        else:
            groups.append([index])
    for group in groups:
        # The fixed ones come first: they stay, the others stand to their left and right in turns.
        ordered = sorted(group, key=lambda i: not fixed[i])
        for turn, index in enumerate(ordered):
            moves[index] = _SIDE_STEP * ((turn + 1) // 2) * (1 if turn % 2 else -1)
    return moves


def names(
    marks: Sequence[Mark], others: Sequence[Mark], height: float, space: Space | None = None
) -> list[str]:
    """Return the names of marks as text beside them, with a line where one had to move away.

    A name for which there is no room is left out.

    Args:
        marks: those to be named, the most important first.
        others: marks without a name, which no name may cover.
        height: of the plot, in pixels.
        space: what there is beside it; by default that on the narrowest page.
    """
    space = space or Space()
    taken = [_around(mark, height, space) for mark in (*marks, *others)]
    parts = []
    for mark in marks:
        place = _free_place(mark, taken, height, space)
        if place is not None:
            (dx, dy, is_left), box = place
            taken.append(box)
            parts.append(_drawn(mark, dx, dy, is_left, space))
    return parts


def _around(mark: Mark, height: float, space: Space) -> _Box:
    x, y = _pixels(mark, height, space)
    return _Box(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS)


def _pixels(mark: Mark, height: float, space: Space) -> tuple[float, float]:
    return mark.x / 100 * space.width + mark.dx, (100 - mark.y) / 100 * height


def _free_place(
    mark: Mark, taken: Sequence[_Box], height: float, space: Space
) -> tuple[tuple[float, float, bool], _Box] | None:
    """Return the nearest place beside a mark that is free: pixels from it, and the side."""
    x, y = _pixels(mark, height, space)
    width = _LETTER * len(_shown(mark.name, space))
    rows = range(1, int(height // (_ROW / 2)) + 1)
    moves = [-space.lift, 0.0, *(sign * _ROW / 2 * row for row in rows for sign in (-1, 1))]
    for dy in moves:
        for is_left in (False, True):
            start = x - _GAP - width if is_left else x + _GAP
            box = _Box(start, y + dy - _ROW / 2, start + width, y + dy + _ROW / 2)
            inside = box.top >= -_ROW / 2 and box.bottom <= height + _ROW / 2
            on_page = box.left >= -space.margin and box.right <= space.width + space.margin
            if inside and on_page and not any(box.meets(other) for other in taken):
                return (-_GAP if is_left else _GAP, dy, is_left), box
    return None


def _drawn(mark: Mark, dx: float, dy: float, is_left: bool, space: Space) -> str:
    kind = "label end" if is_left else "label"
    label = svg.text(mark.x, mark.y, _shown(mark.name, space), kind, mark.dx + dx, dy + 4)
    if abs(dy) < _CONNECTED_FROM:
        return label
    start = mark.dx + dx / 2
    return svg.leader(mark.x, mark.y, start, (mark.dx + 0.8 * dx, dy)) + label


def _shown(name: str, space: Space) -> str:
    return name if len(name) <= space.longest else name[: space.longest] + "…"


_SIZE = "tflite_bytes"
AXES = {
    "tflite_bytes": ("the size of the TFLite file", "size of the TFLite file", "bytes"),
    "gzip_bytes": ("the artifact's size under gzip", "artifact under gzip -9", "bytes"),
    "nonzero_parameters": ("parameters that are not zero", "parameters that are not zero", ""),
    "macs": ("multiply-accumulates", "multiply-accumulates per example", ""),
    "arena_bytes": ("the tensor arena", "tensor arena", "bytes"),
    "p50_ms": ("latency", "median latency", "ms"),
}
"""What the metric may be drawn against: in a heading, below the axis, and its unit."""
_INSTEAD_OF_SIZE = ("gzip_bytes", "nonzero_parameters")
_OTHERS = ("macs", "arena_bytes", "p50_ms")
_SAME = 1.02
_SAME_LATENCY = 1.5
"""Ratios of largest to smallest below which a figure tells no stage from another: a file's size
is exact, while one artifact's latency differs by a third from run to run."""
_NAMED = 8
_LOG_FROM = 4
_HEIGHT = 260


@dataclass(frozen=True)
class Candidate:
    """A stage in the plane of a cost, its size or another one, and the metric."""

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
    """Return the main metric against size; None below two points.

    Size is that of the TFLite file. Where that is one size for all, as zeros in dense tensors
    leave it, it is the bytes under gzip, if all artifacts are of one kind, or else the number of
    parameters that are not zero: whichever tells the stages apart.
    """
    metric = main_metric(report)
    return _plot(report, metric, _x_axis(report, metric)) if metric else None


def other_tradeoffs(report: Report) -> list[svg.Plot]:
    """Return the main metric against computation, arena and latency, where these differ."""
    metric = main_metric(report)
    plots = [_plot(report, metric, name) for name in _OTHERS if _differs(report, metric, name)]
    return [plot for plot in plots if plot is not None]


def _plot(report: Report, metric: str | None, cost: str) -> svg.Plot | None:
    points = _candidates(report, metric, cost)
    if metric is None or len(points) < 2:
        return None
    figure, size = metric_figure(metric), figure_of(cost)
    front = pareto_front(points, figure.larger_is_better)
    sizes = [p.size for p in points]
    x = svg.covering(sizes, log=max(sizes) > _LOG_FROM * min(sizes))
    y = _score_axis(points, figure)
    heading, axis, unit = AXES[cost]
    titles = (
        axis_title(axis, unit, x),
        axis_title(metric, "%" if figure.unit == "fraction" else "", y),
    )
    parts = [svg.axes(x, y, axis_ticks(x, size), axis_ticks(y, figure), titles)]
    if len(front) > 1:
        parts.append(svg.stretched([svg.line(_steps(front, x, y), "front")]))
    moves = side_by_side([x(p.size) for p in points], [p in front for p in points])
    marks = [Mark(p.name, x(p.size), y(p.score), dx) for p, dx in zip(points, moves, strict=True)]
    for point, mark in zip(points, marks, strict=True):
        whisker = svg.rule((mark.x, y(point.low)), (mark.x, y(point.high)), "whisker")
        description = f"{point.name}: {size.text(point.size)}, {figure.text(point.score)}"
        kind = "dot on-front" if point in front else "dot beaten"
        parts.append(svg.shifted(whisker + svg.dot(mark.x, mark.y, kind, description), mark.dx))
    parts += _names(points, front, marks)
    description = "; ".join(f"{p.name} {size.text(p.size)} {figure.text(p.score)}" for p in points)
    title = f"{metric} against {heading}"
    return svg.Plot(
        title=title,
        caption=_caption(front, cost, any(moves)),
        markup=svg.image(f"tradeoff-{cost}", _HEIGHT, title, description, "".join(parts)),
    )


def axis_title(name: str, unit: str, scale: svg.Scale) -> str:
    """Return what an axis is called, with its unit and how it is divided."""
    details = ", ".join(filter(None, (unit, "logarithmic" if scale.log else "")))
    return f"{name} ({details})" if details else name


def _score_axis(points: Sequence[Candidate], figure: Figure) -> svg.Scale:
    y = svg.covering([v for p in points for v in (p.low, p.high)])
    is_whole = figure.unit == "fraction" and max(p.high for p in points) <= 1 < y.high
    return replace(y, high=1.0) if is_whole else y


def _caption(front: Sequence[Candidate], cost: str, is_moved: bool) -> str:
    named = ", ".join(p.name for p in front)
    is_size = cost in (_SIZE, *_INSTEAD_OF_SIZE)
    texts = [
        f"Filled: on the Pareto front ({named}), where nothing is both "
        f"{'smaller' if is_size else 'cheaper'} and better.",
        "Bars: 95 % intervals on the test examples.",
    ]
    if cost in _INSTEAD_OF_SIZE:
        texts.insert(0, "All TFLite files are about equally large.")
    if is_moved:
        texts.append("Marks at one place across stand side by side.")
    return " ".join(texts)


def _x_axis(report: Report, metric: str) -> str:
    if len(_candidates(report, metric, _SIZE)) < 2 or _differs(report, metric, _SIZE):
        return _SIZE
    kinds = {s.artifact.rpartition(".")[2] for s in report.stages if s.artifact}
    usable = _INSTEAD_OF_SIZE if len(kinds) == 1 else _INSTEAD_OF_SIZE[1:]
    return next((name for name in usable if _differs(report, metric, name)), _SIZE)


def _differs(report: Report, metric: str | None, cost: str) -> bool:
    """Whether a figure tells stages apart that have it."""
    sizes = [point.size for point in _candidates(report, metric, cost)]
    same = _SAME_LATENCY if cost == "p50_ms" else _SAME
    return len(sizes) > 1 and max(sizes) > same * min(sizes)


def _candidates(report: Report, metric: str | None, cost: str) -> list[Candidate]:
    candidates = []
    if metric is None:
        return []
    for stage in report.stages:
        size, score = stage.figure(cost), stage.figure(metric)
        if size is None or score is None:
            continue
        limits = stage.intervals.get(metric, Limits())
        low = score if limits.low is None else min(limits.low, score)
        high = score if limits.high is None else max(limits.high, score)
        candidates.append(Candidate(stage.name, size, score, low, high))
    return candidates


def _steps(front: Sequence[Candidate], x: svg.Scale, y: svg.Scale) -> list[svg.Point]:
    """Return the front as stairs: up to the next candidate's size nothing better is known."""
    points: list[svg.Point] = []
    for candidate in front:
        if points:
            points.append((x(candidate.size), points[-1][1]))
        points.append((x(candidate.size), y(candidate.score)))
    return points


def _names(
    points: Sequence[Candidate], front: Sequence[Candidate], marks: Sequence[Mark]
) -> list[str]:
    """Return the names of all candidates, or of those on the front where there are many."""
    pairs = list(zip(points, marks, strict=True))
    named = [m for p, m in pairs if len(points) <= _NAMED or p in front]
    return names(named, [mark for mark in marks if mark not in named], _HEIGHT)


def axis_ticks(scale: svg.Scale, figure: Figure) -> list[tuple[float, str]]:
    """Return the values and texts along an axis of a figure."""
    return [(tick, _tick_text(tick, figure)) for tick in scale.ticks(4)]


def _tick_text(tick: float, figure: Figure) -> str:
    if figure.unit == "fraction":
        return f"{100 * tick:.4g} %"
    number, space, unit = figure.text(tick).partition(" ")
    plain = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{plain}{space}{unit}"
