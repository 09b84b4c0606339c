"""Rows that hold every pair of levels, of those that can stand together."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

Row = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]


def allowed_pairs(
    factors: Mapping[str, Sequence[str]],
    allowed: Callable[[Row], bool] = lambda row: True,
    *,
    seed: int = 0,
    tries: int = 150,
) -> list[Row]:
    """Return rows such that each pair of levels of two factors stands in at least one of them.

    Greedy: for the first pair that is missing, of some random rows that hold it the one with the
    most missing pairs. The same factors and seed give the same rows.

    Args:
        factors: levels by factor.
        allowed: tells whether a whole row makes sense; a pair that no tried row allows is left out.
        seed: of the choice.
        tries: random rows for each pair.
    """
    chooser = random.Random(seed)
    missing = dict.fromkeys(_all_pairs(factors))
    rows = []
    while missing:
        wanted = next(iter(missing))
        drawn = [_draw(factors, wanted, chooser) for _ in range(tries)]
        good = [row for row in drawn if allowed(row)]
        if not good:
            del missing[wanted]
            continue
        best = max(good, key=lambda row: sum(pair in missing for pair in pairs(row)))
        rows.append(best)
        for pair in pairs(best):
            missing.pop(pair, None)
    return rows


def pairs(row: Row) -> Iterator[Pair]:
    """Yield the pairs of levels of a row."""
    return itertools.combinations(row.items(), 2)


def _all_pairs(factors: Mapping[str, Sequence[str]]) -> Iterator[Pair]:
    for one, other in itertools.combinations(factors, 2):
        for a, b in itertools.product(factors[one], factors[other]):
            yield (one, a), (other, b)


def _draw(factors: Mapping[str, Sequence[str]], pair: Pair, chooser: random.Random) -> Row:
    fixed = dict(pair)
    return {name: fixed.get(name) or chooser.choice(levels) for name, levels in factors.items()}
