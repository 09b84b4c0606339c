"""What a metric would be at points that were not trained: a Gaussian process over those that were.

Points are described by the figures that are known of them untrained, as logarithms, and by their
settings. A cost is that of the first point, what was expected beside it, a trend in the logarithms
of the figures, as smaller models are seldom better, and what is left of it, which points alike
share. How much of each is not known of so few, so predictions are averaged over a grid of scales
and noises, each by its marginal likelihood (Rasmussen & Williams 2006, sections 2.2, 2.7 and 5.4.1;
MacKay 1992 on averaging).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shrink.base.foreign import Json
from shrink.contract.report import Figures
from shrink.search.space import Settings

if TYPE_CHECKING:
    from shrink.base.types import Array

_OF_SIZES = (0.5, 1.0, 2.0)
"""Length scales of the logarithm of a figure: 0.7 is a factor of two."""
_OF_NUMBERS, _OF_KINDS = (0.7, 3.0), (1.5,)
"""Of a number that is 0 at its least and 1 at its most; of one kind against another."""
_NOISES, _OF_THE_REST = (1e-3, 3e-2), (0.1, 1.0)
"""Variances, where 1 is that of the costs: of one point measured again, and beside the trend."""
_SLOPE = 0.25
"""The variance of the trend's slope: of the costs for each factor of e in a figure."""
_BEFORE, _SPREAD = 2.0, 0.05
"""The spread of the costs before any was seen: as of so many points, as a share of the first."""
_WIDE = 20.0
"""From this ratio of the largest to the least on, positive numbers count by their logarithms."""


@dataclass(frozen=True)
class Described:
    """A point as it is known untrained.

    Attributes:
        settings: of the point.
        figures: sizes, multiply-accumulates, arena.
        expected: by how much its cost is expected to be above the first point's, before any is
            known.
    """

    settings: Settings
    figures: Figures
    expected: float = 0.0


def predict(
    trained: Sequence[Described],
    costs: Sequence[float],
    asked: Sequence[Described],
    names: Sequence[str],
) -> tuple[Array, Array]:
    """Return the expected costs of points, and their standard deviations, float64 (points,) each.

    Args:
        trained: points whose costs are known; at least one, the first of which is the baseline or
            another that tells how large costs are.
        costs: of them; less is better.
        asked: points whose costs are wanted.
        names: of the figures that describe a point.
    """
    import numpy as np

    columns, groups = _columns([*trained, *asked], names)
    columns[:, : len(names)] -= columns[0, : len(names)]
    known, wanted = columns[: len(trained)], columns[len(trained) :]
    shift = np.asarray([one.expected for one in [*trained, *asked]])
    values = np.asarray(costs, np.float64) - shift[: len(trained)]
    before = _SPREAD * max(abs(float(values[0])), 1e-12)
    middle = float(values[0] if names else values.mean())
    squares = float(((values - middle) ** 2).sum()) + _BEFORE * before**2
    unit = math.sqrt(squares / (len(values) + _BEFORE))
    trend = [_SLOPE * (one[:, : len(names)] @ known[:, : len(names)].T) for one in (known, wanted)]
    alone = _SLOPE * (wanted[:, : len(names)] ** 2).sum(axis=1)
    found = []
    grid = itertools.product(_OF_SIZES, _OF_NUMBERS, _OF_KINDS, _OF_THE_REST, _NOISES)
    for *scales, rest, noise in grid:
        lengths = np.asarray([scales[group] for group in groups] or [1.0])
        covariance = trend[0] + rest * _matern(known / lengths, known / lengths)
        cross = trend[1] + rest * _matern(wanted / lengths, known / lengths)
        covariance += noise * np.eye(len(values))
        found.append(_posterior(covariance, cross, alone + rest, (values - middle) / unit))
    means, variances, likelihoods = (np.asarray(one) for one in zip(*found, strict=True))
    weights = np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()
    mean = weights @ means  # (points,)
    variance = weights @ (variances + means**2) - mean**2
    expected = middle + unit * mean + shift[len(trained) :]
    return expected, unit * np.sqrt(np.maximum(variance, 0.0))


def _posterior(
    covariance: Array, cross: Array, alone: Array, costs: Array
) -> tuple[Array, Array, float]:
    """Return means and variances of points, and the logarithm of the likelihood.

    Rasmussen & Williams, algorithm 2.1.

    Args:
        covariance: of the known costs, noise included, (n, n).
        cross: of points with them, (points, n).
        alone: the variance of points before anything is known, (points,).
        costs: that are known, (n,).
    """
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(covariance, lower=True)
    weights = cho_solve(factor, costs)
    variance = alone - np.einsum("pn,np->p", cross, cho_solve(factor, cross.T))
    determinant = 2 * float(np.log(np.diag(factor[0])).sum())
    likelihood = -0.5 * (float(costs @ weights) + determinant + len(costs) * math.log(2 * math.pi))
    return cross @ weights, np.maximum(variance, 0.0), likelihood


def _matern(left: Array, right: Array) -> Array:
    """Return correlations of points, (left, right): Matern's, with a smoothness of 5/2."""
    import numpy as np

    squares = ((left[:, None] - right[None]) ** 2).sum(axis=-1)
    distance = np.sqrt(5 * squares)
    found: Array = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return found


def _columns(points: Sequence[Described], names: Sequence[str]) -> tuple[Array, list[int]]:
    """Return points as numbers (points, columns), and which length scale each column has."""
    import numpy as np

    columns = [_logarithms([one.figures.get(name) for one in points]) for name in names]
    groups = [0] * len(columns)
    for key in dict.fromkeys(key for one in points for key in one.settings):
        values = [one.settings.get(key) for one in points]
        told = [value for value in values if value is not None]
        if told and all(map(_is_number, told)):
            columns.append(_scaled(values))
            groups.append(1)
        else:
            kinds = dict.fromkeys(map(repr, values))
            columns += [[float(repr(v) == kind) / math.sqrt(2) for v in values] for kind in kinds]
            groups += [2] * len(kinds)
    if not columns:
        return np.zeros((len(points), 1)), []
    return np.asarray(columns, np.float64).T, groups


def _logarithms(values: Sequence[float | None]) -> list[float]:
    """Return logarithms of sizes; their mean where a size is not known."""
    found = [None if value is None else math.log(max(value, 1.0)) for value in values]
    known = [value for value in found if value is not None]
    middle = sum(known) / max(1, len(known))
    return [middle if value is None else value for value in found]


def _scaled(values: Sequence[Json]) -> list[float]:
    """Return numbers from 0 to 1; 0.5 for points that do not have them."""
    known = [float(value) for value in values if isinstance(value, int | float)]
    low, high = min(known), max(known)
    if low == high:
        return [0.5] * len(values)
    if low > 0 and high / low > _WIDE:
        logs = [math.log(value) if isinstance(value, int | float) else None for value in values]
        low, high = math.log(low), math.log(high)
        return [0.5 if one is None else (one - low) / (high - low) for one in logs]
    return [(float(v) - low) / (high - low) if isinstance(v, int | float) else 0.5 for v in values]


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
