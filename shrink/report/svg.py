"""Inline SVG that keeps its text size at any width: percentages across, pixels down.

A plot has no viewBox, so nothing scales but the positions: marks and texts sit at percentages of
the width, and a nested stretched image holds the lines, whose stroke does not stretch. Colours
come from the page's style sheet by class, which is how one plot serves light, dark and paper.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Point = tuple[float, float]
_LOG_FROM = 20
_MOST_POINTS = 400
_LARGEST = 1e100


@dataclass(frozen=True)
class Plot:
    """An image with its heading and the sentence below; `markup` is finished, escaped HTML."""

    title: str
    caption: str
    markup: str


@dataclass(frozen=True)
class Scale:
    """Maps values to 0..100; `low` < `high`, both above 0 where it is logarithmic.

    `marks` are its ticks, where those were chosen with its ends.
    """

    low: float
    high: float
    log: bool = False
    marks: tuple[float, ...] = ()

    def __call__(self, value: float) -> float:
        """Return where a value lies, in percent of the axis; what is off it lies at its end."""
        inside = min(max(value, self.low), self.high)
        low, high, at = ((math.log(v) if self.log else v) for v in (self.low, self.high, inside))
        return 100 * (at - low) / (high - low)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values on the axis, lowest first; `about` that many without `marks`."""
        if self.marks:
            return [mark for mark in self.marks if self.low <= mark <= self.high]
        if self.log:
            return self._log_ticks(about)
        step = _round_step((self.high - self.low) / about)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]

    def _log_ticks(self, about: int) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits in ((1, 2, 5), (1, 3), (1,)):
            ticks = [digit * 10.0**decade for decade in decades for digit in digits]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(inside) <= about + 1:
                break
        return inside[:: math.ceil(len(inside) / (about + 1)) or 1]


def scale_of(values: Sequence[float], log: bool | None = None, margin: float = 0.08) -> Scale:
    """Return a scale that holds all values with some room around them.

    Args:
        values: at least one, all finite.
        log: by default where all are above 0 and they span a factor of 20.
        margin: room at either end, as a share of the span.
    """
    kept = _within_range(values)
    low, high = min(kept), max(kept)
    use_log = low > 0 and high / low > _LOG_FROM if log is None else log and low > 0
    if use_log:
        room = (high / low) ** margin if high > low else 2.0
        return Scale(low / room, high * room, log=True)
    room = (high - low) * margin or abs(high) * margin or 1.0
    return Scale(low - room, high + room)


def _within_range(values: Sequence[float]) -> list[float]:
    """Return values whose spans and ratios stay within the range of floats."""
    kept = [min(max(value, -_LARGEST), _LARGEST) for value in values]
    return [0.0 if abs(value) < 1 / _LARGEST else value for value in kept]


def covering(values: Sequence[float], log: bool = False, about: int = 4) -> Scale:
    """Return a scale that begins and ends with a round tick, with all values between.

    Args:
        values: at least one, all finite.
        log: asked for; used only where all values are above 0.
        about: how many steps from tick to tick.
    """
    kept = _within_range(values)
    if log and 0 < min(kept) < max(kept):
        return _covering_decades(min(kept), max(kept), about)
    if math.isclose(min(kept), max(kept), rel_tol=1e-9):  # ticks have 12 digits
        kept = [scale_of(kept[:1], log=False).low, scale_of(kept[:1], log=False).high]
    step = _round_step((max(kept) - min(kept)) / about)
    low, high = math.floor(min(kept) / step + 1e-9), math.ceil(max(kept) / step - 1e-9)
    marks = tuple(float(f"{index * step:.12g}") for index in range(low, high + 1))
    return Scale(marks[0], marks[-1], marks=marks)


def _covering_decades(low: float, high: float, about: int) -> Scale:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**decade for decade in decades for digit in digits]
        first = max((tick for tick in found if tick <= low), default=found[0])
        last = min((tick for tick in found if tick >= high), default=found[-1])
        inside = [tick for tick in found if first <= tick <= last]
        if len(inside) <= about + 1:
            break
    return Scale(first, last, log=True, marks=tuple(inside))


def line(points: Sequence[Point], kind: str) -> str:
    """Return a line through points in percent from the lower left, for `stretched`."""
    step = math.ceil(len(points) / _MOST_POINTS) or 1
    kept = [*points[:-1:step], *points[-1:]]
    path = " ".join(f"{x:.2f},{100 - y:.2f}" for x, y in kept)
    return f'<polyline class="{kind}" points="{path}" vector-effect="non-scaling-stroke"/>'


def stretched(lines: Sequence[str]) -> str:
    """Return lines as an image that stretches over the whole plot."""
    box = 'viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%"'
    return f'<svg {box} overflow="visible" aria-hidden="true">{"".join(lines)}</svg>'


def text(x: float, y: float, content: str, kind: str, dx: float = 0, dy: float = 0) -> str:
    """Return text at a point in percent, moved by pixels; `kind` is its class."""
    # Long words are marked by their ends, which the style sheet cannot do inside an SVG.
    moved = f'dx="{dx:.0f}" dy="{dy:.0f}"'
    return f'<text class="{kind}" x="{x:.2f}%" y="{100 - y:.2f}%" {moved}>{escaped(content)}</text>'


def dot(x: float, y: float, kind: str, tooltip: str) -> str:
    """Return a mark at a point in percent."""
    title = f"<title>{escaped(tooltip)}</title>"
    return f'<circle class="{kind}" cx="{x:.2f}%" cy="{100 - y:.2f}%" r="5">{title}</circle>'


def rule(start: Point, end: Point, kind: str) -> str:
    """Return a straight line between points in percent."""
    (x1, y1), (x2, y2) = start, end
    ends = f'x1="{x1:.2f}%" y1="{100 - y1:.2f}%" x2="{x2:.2f}%" y2="{100 - y2:.2f}%"'
    return f'<line class="{kind}" {ends}/>'


def numbered(marks: Sequence[tuple[float, float, str]]) -> tuple[list[str], str]:
    """Return a number above each mark, and what the numbers are: `1 train, 2 prune.`

    Marks that cover each other share one text, such as `1, 2`.

    Args:
        marks: places in percent from the lower left, and names.
    """
    groups: list[list[int]] = []
    for index, (x, y, _) in enumerate(marks):
        near = (g for g in groups if abs(marks[g[0]][0] - x) < 3 and abs(marks[g[0]][1] - y) < 6)
        group = next(near, None)
        groups.append([index]) if group is None else group.append(index)
    parts = []
    for group in groups:
        x, y, _ = marks[group[0]]
        label = ", ".join(str(index + 1) for index in group)
        parts.append(text(x, y, label, "label end" if x > 85 else "label", -8 if x > 85 else 8, -6))
    return parts, ", ".join(f"{i} {name}" for i, (_, _, name) in enumerate(marks, 1)) + "."


def axes(
    x: Scale,
    y: Scale,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    titles: tuple[str, str],
) -> str:
    """Return grid lines, the ticks' texts, and what the axes are.

    Args:
        x: the horizontal axis.
        y: the vertical axis.
        x_ticks: values and texts below the plot.
        y_ticks: values and texts to its left.
        titles: of the horizontal axis, below its ticks, and of the vertical one, above it.
    """
    below = text(100, 0, titles[0], "title end", 14, 36)
    parts = [below, text(0, 100, titles[1], "title", -60, -12)]
    for value, label in y_ticks:
        at = y(value)
        parts += [rule((0, at), (100, at), "grid"), text(0, at, label, "tick end", -8, 4)]
    for value, label in x_ticks:
        at = x(value)
        parts += [rule((at, 0), (at, 100), "grid"), text(at, 0, label, "tick middle", 0, 18)]
    return "".join([*parts, rule((0, 0), (100, 0), "axis")])


@dataclass(frozen=True)
class Chart:
    """Curves over two axes.

    Attributes:
        x, y: the axes.
        x_ticks, y_ticks, titles: see `axes`.
        curves: points by their class in the style sheet.
        marks: what lies on top of the curves.
    """

    x: Scale
    y: Scale
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    titles: tuple[str, str]
    curves: Mapping[str, Sequence[Point]]
    marks: Sequence[str] = ()

    def image(self, identifier: str, height: int, title: str, description: str) -> str:
        """Return the whole plot; see `image`."""
        lines = [
            line([(self.x(across), self.y(up)) for across, up in points], f"curve {kind}")
            for kind, points in self.curves.items()
        ]
        drawn = axes(self.x, self.y, self.x_ticks, self.y_ticks, self.titles)
        parts = [drawn, stretched(lines), *self.marks]
        return image(identifier, height, title, description, "".join(parts))


def image(identifier: str, height: int, title: str, description: str, parts: str) -> str:
    """Return the whole plot, which a screen reader reads as its title and description."""
    names = f'aria-labelledby="{identifier}-title {identifier}-text"'
    return (
        f'<svg class="plot" role="img" {names} width="100%" height="{height}">'
        f'<title id="{identifier}-title">{escaped(title)}</title>'
        f'<desc id="{identifier}-text">{escaped(description)}</desc>{parts}</svg>'
    )


def escaped(content: str) -> str:
    """Return text safe in HTML, without the control characters that no document may hold."""
    clean = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in content)
    return html.escape(clean)


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= step * 0.999)
