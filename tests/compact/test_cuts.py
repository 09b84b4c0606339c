"""Cuts between bands: those that cool a band make it smaller, whichever way the bands run."""

from __future__ import annotations

import itertools
import random

import pytest

from shrink.compact.bands import Banding
from shrink.compact.cuts import moved_cuts

ROWS, CUTS = 60, (9, 21, 30, 48)


def rows_of(cuts: list[int] | tuple[int, ...]) -> list[int]:
    """Return how many rows each band has, from the top."""
    return [below - above for above, below in itertools.pairwise((0, *cuts, ROWS))]


def changes(banding: Banding, hottest: int | None, seed: int) -> list[int]:
    """Return by how many rows each band grows, in the order in which they run."""
    after = rows_of(moved_cuts(banding, hottest, random.Random(seed)))
    grown = [new - old for new, old in zip(after, rows_of(CUTS), strict=True)]
    return grown[::-1] if banding.upward else grown


@pytest.mark.parametrize("upward", [False, True])
@pytest.mark.parametrize("hottest", range(len(CUTS) + 1))
def test_the_hottest_band_gives_rows_to_one_other(hottest: int, upward: bool) -> None:
    banding = Banding(0, 1, CUTS, upward=upward)
    receivers = set()
    for seed in range(60):
        grown = changes(banding, hottest, seed)
        assert grown[hottest] in (-1, -2)
        (receiver,) = (band for band, rows in enumerate(grown) if rows > 0)
        assert grown[receiver] == -grown[hottest]
        assert sum(map(abs, grown)) == 2 * grown[receiver]
        receivers.add(receiver)
    # Its neighbours where one cut moves, the outermost bands where all on that side do.
    beside = {hottest - 1, hottest + 1, 0, len(CUTS)}
    assert receivers == {band for band in beside if 0 <= band <= len(CUTS)} - {hottest}


def test_without_a_hottest_band_any_two_change() -> None:
    found = {tuple(changes(Banding(0, 1, CUTS), None, seed)) for seed in range(200)}
    assert all(sorted(map(abs, grown))[:-2] == [0, 0, 0] and sum(grown) == 0 for grown in found)
    assert {place for grown in found for place, rows in enumerate(grown) if rows < 0} == set(
        range(len(CUTS) + 1)
    )


def test_one_band_has_no_cuts_to_move() -> None:
    assert moved_cuts(Banding(0, 1, ()), 0, random.Random(0)) == []
