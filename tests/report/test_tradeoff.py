"""Names of marks: apart from each other and from other marks, and connected where they moved."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

import pytest

from shrink.report.tradeoff import Mark, names, side_by_side

HEIGHT = 260.0
LETTER, LINE = 7.0, 14.0
"""Pixels of a letter and of a line of 13 px bold sans-serif."""


def boxes(parts: list[str], width: float) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each name, in a plot of this width."""
    found = []
    for text in ElementTree.fromstring(f"<svg>{''.join(parts)}</svg>").iter("text"):
        x = float(text.attrib["x"][:-1]) / 100 * width + float(text.attrib["dx"])
        y = float(text.attrib["y"][:-1]) / 100 * HEIGHT + float(text.attrib["dy"])
        length = LETTER * len(text.text or "")
        left = x - length if "end" in text.attrib["class"] else x
        found.append((left, y - LINE + 3, left + length, y + 3))
    return found


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize("width", [250.0, 690.0, 980.0])
@pytest.mark.parametrize(
    "places",
    [
        [(50.0, 90.0 - n) for n in range(8)],
        [(95.0, 50.0)] * 6,
        [(5.0 + 12 * n, 97.0) for n in range(8)],
        [(0.0, 0.0), (100.0, 100.0), (100.0, 0.0), (0.0, 100.0)],
    ],
)
def test_names_are_apart_at_every_width(places: list[tuple[float, float]], width: float) -> None:
    marks = [Mark(f"stage-{n}", x, y) for n, (x, y) in enumerate(places)]
    found = boxes(names(marks, [], HEIGHT), width)
    assert len(found) == len(marks)
    assert not [pair for pair in combinations(found, 2) if overlap(*pair)]
    assert all(left >= -22 and right <= width + 22 for left, _, right, _ in found)


def test_names_have_a_line_to_their_mark_where_they_moved() -> None:
    crowded = [Mark(f"s{n}", 50.0, 50.0) for n in range(4)]
    root = ElementTree.fromstring(f"<svg>{''.join(names(crowded, [], HEIGHT))}</svg>")
    moves = [float(text.attrib["dy"]) - 4 for text in root.iter("text")]
    ends = sorted(float(line.attrib["y2"]) for line in root.iter("line"))
    assert ends == sorted(move for move in moves if abs(move) >= 12)
    assert len(moves) > len(ends) > 0


def test_names_cover_no_other_mark() -> None:
    parts = names([Mark("name", 50.0, 50.0)], [Mark("", 56.0, 50.0)], HEIGHT)
    ((left, top, right, bottom),) = boxes(parts, 250.0)
    x, y = 0.56 * 250, 0.5 * HEIGHT
    assert not (left < x < right and top < y < bottom)


def test_names_without_room_are_left_out() -> None:
    crowd = [Mark("a-rather-long-name", 50.0, 50.0) for _ in range(200)]
    assert 10 < len(names(crowd, [], HEIGHT)) < 200


def test_side_by_side_moves_only_what_stands_at_one_place() -> None:
    assert side_by_side([10.0, 50.0, 90.0], [True] * 3) == [0.0, 0.0, 0.0]
    moves = side_by_side([50.0, 50.5, 90.0, 50.2], [False, True, True, False])
    assert moves[1:3] == [0.0, 0.0]
    assert sorted((moves[0], moves[3])) == [-14.0, 14.0]
