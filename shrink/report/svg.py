"""Plots as inline SVG that keeps its text size at any width: percentages across, pixels down.

A plot has no viewBox, so nothing scales but the positions: marks and texts sit at percentages of
the width, and a nested stretched image holds the lines, whose stroke does not stretch. Colours
come from the page's style sheet by class, which is how one plot serves light, dark and paper.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shrink.base.figures import Unit, format_value

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


def tick_text(unit: Unit = "none") -> Callable[[float], str]:
    """Return what writes a tick of this unit: `10 KB`, `50 %`."""

    def text(value: float) -> str:
        if unit == "none":
            return f"{value:.4g}"
        if unit == "fraction":
            return f"{100 * value:.4g} %"
        number, space, symbol = format_value(value, unit).partition(" ")
        plain = number.rstrip("0").rstrip(".") if "." in number else number
        return f"{plain}{space}{symbol}"

    return text


@dataclass(frozen=True)
class Axis:
    """Maps values to 0..100.

    Attributes:
        marks: the ticks, lowest first.
        text: writes a tick.
    """

    low: float
    high: float
    marks: tuple[float, ...]
    title: str
    text: Callable[[float], str]
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return where a value lies, in percent; a value beyond an end lies at that end."""
        inside = min(max(value, self.low), self.high)
        low, high, at = ((math.log(v) if self.log else v) for v in (self.low, self.high, inside))
        return 100 * (at - low) / (high - low)


def axis(
    values: Sequence[float], title: str, unit: Unit = "none", *, log: bool | None = None
) -> Axis:
    """Return an axis that begins and ends with a round tick, with all values between.

    Args:
        values: at least one, all finite.
        title: of the axis; a logarithmic one says so.
        unit: of the ticks.
        log: where all values are above 0; by default where they span a factor of 20, too.
    """
    kept = [min(max(value, -_LARGEST), _LARGEST) for value in values]
    kept = [0.0 if abs(value) < 1 / _LARGEST else value for value in kept]
    low, high = min(kept), max(kept)
    is_log = 0 < low < high and (high > _LOG_FROM * low if log is None else log)
    if math.isclose(low, high, rel_tol=1e-9):  # ticks have 12 digits
        low, high = low - (0.08 * abs(low) or 1.0), high + (0.08 * abs(high) or 1.0)
    marks = _decades(low, high) if is_log else _steps(low, high, 4)
    shown = f"{title}, logarithmic" if is_log else title
    return Axis(marks[0], marks[-1], marks, shown, tick_text(unit), is_log)


def whole_axis(first: int, last: int, title: str) -> Axis:
    """Return an axis of whole numbers that begins with the first and ends with the last one."""
    end = max(last, first + 1)
    inside = [mark for mark in _steps(first, end, 4) if mark == int(mark) and first < mark <= last]
    return Axis(first, end, (first, *inside), title, lambda value: f"{value:.0f}")


def _steps(low: float, high: float, about: int) -> tuple[float, ...]:
    step = (high - low) / about
    power = 10.0 ** math.floor(math.log10(step))
    step = next(d * power for d in (1, 2, 2.5, 5, 10) if d * power >= step * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{index * step:.12g}") for index in range(first, last + 1))


def _decades(low: float, high: float) -> tuple[float, ...]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**decade for decade in decades for digit in digits]
        first = max((tick for tick in found if tick <= low), default=found[0])
        last = min((tick for tick in found if tick >= high), default=found[-1])
        inside = [tick for tick in found if first <= tick <= last]
        if len(inside) <= 5:
            break
    step = math.ceil(len(inside) / 6)
    return (*inside[:-1:step], inside[-1])


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


def image(identifier: str, height: int, title: str, description: str, parts: str) -> str:
    """Return the whole plot, which a screen reader reads as its title and description."""
    names = f'aria-labelledby="{identifier}-title {identifier}-text"'
    return (
        f'<svg class="plot" role="img" {names} width="100%" height="{height}">'
        f'<title id="{identifier}-title">{escaped(title)}</title>'
        f'<desc id="{identifier}-text">{escaped(description)}</desc>{parts}</svg>'
    )


def axes(x: Axis, y: Axis) -> str:
    """Return grid lines, the texts of the ticks, and the titles of the axes."""
    below = text(100, 0, x.title, "title end", 14, 36)
    parts = [below, text(0, 100, y.title, "title", -60, -12)]
    for value in y.marks:
        at = y(value)
        parts += [rule((0, at), (100, at), "grid"), text(0, at, y.text(value), "tick end", -8, 4)]
    for value in x.marks:
        at = x(value)
        parts += [rule((at, 0), (at, 100), "grid")]
        parts += [text(at, 0, x.text(value), "tick middle", 0, 18)]
    return "".join([*parts, rule((0, 0), (100, 0), "axis")])


def chart(
    identifier: str,
    title: str,
    caption: str,
    x: Axis,
    y: Axis,
    curves: Mapping[str, Sequence[Point]],
    marks: Sequence[str] = (),
    height: int = 150,
) -> Plot:
    """Return curves over two axes.

    Args:
        identifier: unique on the page.
        title, caption: above and below the image.
        x, y: the axes.
        curves: points by their class in the style sheet.
        marks: what lies on top of the curves.
        height: in pixels.
    """
    lines = [
        line([(x(across), y(up)) for across, up in points], f"curve {kind}")
        for kind, points in curves.items()
    ]
    parts = "".join([axes(x, y), stretched(lines), *marks])
    described = f"{title}: {y.title} by {x.title}"
    return Plot(title, caption, image(identifier, height, described, caption, parts))


def escaped(content: str) -> str:
    """Return text safe in HTML, without the control characters that no document may hold."""
    clean = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in content)
    return html.escape(clean)
