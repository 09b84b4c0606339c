"""Axes and plots; `templates/plot.html` draws them as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shrink.base.figures import Unit, format_value

Point = tuple[float, float]
_LOG_FROM = 20
_MOST_POINTS = 400
_LARGEST = 1e100


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


class Dot(NamedTuple):
    """A mark, of a class of the style sheet."""

    x: float
    y: float
    kind: str
    tooltip: str


class StraightLine(NamedTuple):
    """A straight line."""

    start: Point
    end: Point
    kind: str


class Label(NamedTuple):
    """A text near a place, moved by pixels."""

    x: float
    y: float
    text: str
    kind: str
    dx: float = 0
    dy: float = 0


@dataclass(frozen=True)
class Plot:
    """A plot; places are values of its axes.

    Attributes:
        title, caption: above and below the image.
        identifier: unique on the page.
        curves: points by their classes in the style sheet.
        height: in pixels.
        described: what a screen reader says of it; the caption without it.
    """

    title: str
    caption: str
    identifier: str
    x: Axis
    y: Axis
    curves: Mapping[str, Sequence[Point]]
    dots: tuple[Dot, ...] = ()
    rules: tuple[StraightLine, ...] = ()
    labels: tuple[Label, ...] = ()
    height: int = 150
    described: str = ""

    def path(self, points: Sequence[Point]) -> str:
        """Return the places of a curve in percent from the upper left, at most about 400."""
        step = math.ceil(len(points) / _MOST_POINTS) or 1
        kept = [*points[:-1:step], *points[-1:]]
        return " ".join(f"{self.x(x):.2f},{100 - self.y(y):.2f}" for x, y in kept)


def numbered_labels(
    x: Axis, y: Axis, names: Sequence[tuple[Point, str, str]]
) -> tuple[tuple[Label, ...], str]:
    """Return a number above each place, and what the numbers are: `1 train; 2 prune.`

    Places that cover each other share one text, such as `1, 2`.
    """
    groups: list[list[int]] = []
    for index, ((across, up), *_) in enumerate(names):
        for group in groups:
            (near, height), *_ = names[group[0]]
            if abs(x(near) - x(across)) < 3 and abs(y(height) - y(up)) < 6:
                group.append(index)
                break
        else:
            groups.append([index])
    labels = []
    for group in groups:
        (across, up), *_ = names[group[0]]
        text = ", ".join(names[index][1] for index in group)
        kind, dx = ("label end", -8) if x(across) > 85 else ("label", 8)
        labels.append(Label(across, up, text, kind, dx, -6))
    return tuple(labels), "; ".join(f"{number} {name}" for _, number, name in names) + "."
