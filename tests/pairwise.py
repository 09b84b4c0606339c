"""All pairs of settings, in few cases.

Most faults show when two settings meet, whatever the others are (Kuhn et al. 2004, "Software
fault interactions and implications for software testing"): a cover has each pair of values of two
different factors in some case, in about as many cases as the product of the two largest factors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_Pair = frozenset[tuple[str, int]]


def pairwise_cases(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return cases that hold every pair of values of two different factors.

    Greedy, and the same in every process: a case begins with a pair that is missing, and takes
    for each further factor the value that adds the most missing pairs to those before it.

    Args:
        factors: each factor's values, by name; values need not be hashable.
    """
    missing = dict.fromkeys(_all_pairs(factors))  # a set in order
    cases = []
    while missing:
        chosen: dict[str, int] = dict(sorted(next(iter(missing))))
        for name in sorted(factors, key=lambda name: -len(factors[name])):
            if name not in chosen:
                chosen[name] = max(
                    range(len(factors[name])),
                    key=lambda index: sum(
                        frozenset([(name, index), other]) in missing for other in chosen.items()
                    ),
                )
        for pair in itertools.combinations(chosen.items(), 2):
            missing.pop(frozenset(pair), None)
        cases.append({name: values[chosen[name]] for name, values in factors.items()})
    return cases


def _all_pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[_Pair]:
    for (one, ones), (other, others) in itertools.combinations(factors.items(), 2):
        for i, j in itertools.product(range(len(ones)), range(len(others))):
            yield frozenset([(one, i), (other, j)])
