"""Marks of a plot with their names: apart from each other at every width, and never unconnected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shrink.report import svg

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

    `margin`: pixels by which a name may leave the plot to the left or right.
    """

    width: float = _NARROWEST
    longest: int = _NAME_LENGTH
    margin: float = _MARGIN


@dataclass(frozen=True)
class _Box:
    """A rectangle in pixels, from the upper left of a plot of the least width."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def side_by_side(places: Sequence[float], fixed: Sequence[bool]) -> list[float]:
    """Return by how many pixels to move marks that stand at one place across, so that all show.

    Args:
        places: of the marks, in percent of the width.
        fixed: the marks that stay where they are, if only one of those at a place is so.
    """
    moves = [0.0] * len(places)
    groups: list[list[int]] = []
    for index in sorted(range(len(places)), key=lambda i: (places[i], not fixed[i])):
        if groups and places[index] - places[groups[-1][0]] < _SAME_PERCENT:
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
    moves = [0.0, *(sign * _ROW / 2 * row for row in rows for sign in (-1, 1))]
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
    told = svg.text(mark.x, mark.y, _shown(mark.name, space), kind, mark.dx + dx, dy + 4)
    if abs(dy) < _CONNECTED_FROM:
        return told
    start = mark.dx + dx / 2
    return svg.leader(mark.x, mark.y, start, (mark.dx + 0.8 * dx, dy)) + told


def _shown(name: str, space: Space) -> str:
    return name if len(name) <= space.longest else name[: space.longest] + "…"
