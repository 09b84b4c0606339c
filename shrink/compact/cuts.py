"""Rows at which bands end: even ones, those of the other direction, and others near them."""

from __future__ import annotations

import random

from shrink.compact.bands import Banding


def turned(banding: Banding, rows: int) -> Banding:
    """Return a banding that runs the other way, in bands of as many rows one after the other."""
    cuts = tuple(rows - cut for cut in reversed(banding.cuts))
    return banding._replace(cuts=cuts, upward=not banding.upward)


def even_cuts(rows: int, bands: int) -> tuple[int, ...]:
    """Return the rows at which so many bands of about as many rows end, the last aside."""
    return tuple(sorted({round(rows * i / bands) for i in range(1, bands)} - {0, rows}))


def moved_cuts(banding: Banding, hottest: int | None, chance: random.Random) -> list[int]:
    """Return cuts of which one, or all on one side of it, are moved by a row or two.

    Args:
        banding: whose cuts to move.
        hottest: the band, as they run, that shall have fewer rows; None for whichever comes.
        chance: decides.
    """
    cuts = banding.cuts
    if not cuts:
        return []
    alone, by = chance.random() < 0.6, chance.choice((1, 1, 2))
    if hottest is None:
        place, by = chance.randrange(len(cuts)), by * chance.choice((-1, 1))
        return [
            cut + by if i == place or (i > place and not alone) else cut
            for i, cut in enumerate(cuts)
        ]
    band = len(cuts) - hottest if banding.upward else hottest
    if band == len(cuts) or (band > 0 and chance.random() < 0.5):
        place = band - 1
        return [
            cut + by if i == place or (i < place and not alone) else cut
            for i, cut in enumerate(cuts)
        ]
    return [
        cut - by if i == band or (i > band and not alone) else cut for i, cut in enumerate(cuts)
    ]
