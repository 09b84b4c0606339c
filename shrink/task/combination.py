"""Metrics and losses of several outputs, combined from those of single outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shrink.base.scores.output import Pooled, Sums, pool
from shrink.base.types import Array

Term = tuple[str, int]
"""A metric or loss, and the index of the output that it is of."""
MeansWithin = Callable[[Array], "dict[str, Pooled | None]"]
"""From places of some examples, int64 (m,), to each mean over them; None where nothing counts."""


@dataclass(frozen=True)
class Terms:
    """What `loss` or a metric adds up of single outputs: factors, and the divisor of the sum."""

    factors: Mapping[Term, float]
    divisor: int = 1

    def combined(self, pooled: Mapping[Term, Pooled]) -> Pooled | None:
        """Return the sum over outputs, each by its factor, over the divisor; None where one lacks.

        One division at the end: a third of 1 + 1 + 1 is 1, to the last bit.
        """
        if any(term not in pooled for term in self.factors):
            return None
        value = sum(factor * pooled[term].value for term, factor in self.factors.items())
        scores = sum(factor * pooled[term].scores for term, factor in self.factors.items())
        return Pooled(float(value / self.divisor), np.asarray(scores / self.divisor))


def means_within(terms: Mapping[str, Terms], parts: Mapping[Term, Sequence[Sums]]) -> MeansWithin:
    """Return what pools each mean over some of the examples alone.

    Args:
        terms: of each mean.
        parts: of each term, batch by batch.
    """
    totals = {
        term: Sums(
            np.concatenate([part.values for part in each]),
            np.concatenate([part.valid for part in each]),
        )
        for term, each in parts.items()
    }

    def within(chosen: Array) -> dict[str, Pooled | None]:
        some = {
            term: Sums(each.values[chosen], each.valid[chosen]) for term, each in totals.items()
        }
        pooled = {term: pool([each]) for term, each in some.items() if each.valid.any()}
        return {name: many.combined(pooled) for name, many in terms.items()}

    return within
