"""Optimal brain surgeon on blocks of columns of a least-squares problem.

A layer that reads channels computes Y = X B. Channels are removed one by one, each time the one
whose loss raises the squared error least when all remaining columns of B are solved again.
Hassibi & Stork 1993, "Second order derivatives for network pruning: Optimal Brain Surgeon",
eqs. 5 and 6, with a block of columns in place of one weight; several layers that read the same
channels are decided on together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Block = np.ndarray
"""int64: the columns of X that belong to one channel."""


class Moments:
    """Sums over rows of X (n, features) and Y (n, outputs), gathered batch by batch in float64."""

    def __init__(self, features: int, outputs: int) -> None:
        self.rows = 0
        self.x = np.zeros(features)
        self.y = np.zeros(outputs)
        self.xx = np.zeros((features, features))
        self.xy = np.zeros((features, outputs))
        self.yy = 0.0

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        """Add rows."""
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        self.rows += len(x)
        self.x += x.sum(0)
        self.y += y.sum(0)
        self.xx += x.T @ x
        self.xy += x.T @ y
        self.yy += float(np.sum(y * y))


@dataclass
class Problem:
    """min over B of |Y - X B|² + ridge |B - B0|², while columns of X go.

    Attributes:
        inverse: (XᵀX + ridge)⁻¹, (features, features); rows and columns that went are zero.
        solution: B, (features, outputs); rows that went are zero.
        scale: by which errors are divided, so that layers compare.
        blocks: each channel's columns.
    """

    inverse: np.ndarray
    solution: np.ndarray
    scale: float
    blocks: Sequence[Block]

    def cost(self, channel: int) -> float:
        """Return how much the relative squared error rises without a channel (OBS, eq. 5)."""
        block = self.blocks[channel]
        if not block.size:
            return 0.0
        rows = self.solution[block]
        inner = self.inverse[np.ix_(block, block)]
        return float(np.sum(rows * np.linalg.solve(inner, rows))) / self.scale

    def remove(self, channel: int) -> None:
        """Take the channel's columns out and solve for the others again (OBS, eq. 6)."""
        block = self.blocks[channel]
        if not block.size:
            return
        inner = self.inverse[np.ix_(block, block)]
        column = self.inverse[:, block]
        self.solution = self.solution - column @ np.linalg.solve(inner, self.solution[block])
        self.inverse = self.inverse - column @ np.linalg.solve(inner, self.inverse[block])
        self.solution[block] = 0.0
        self.inverse[block] = 0.0
        self.inverse[:, block] = 0.0


@dataclass(frozen=True)
class Fit:
    """A problem with what is needed to return to weights: the means, zero without intercept."""

    problem: Problem
    x_mean: np.ndarray
    y_mean: np.ndarray

    def intercept(self) -> np.ndarray:
        """Return what is added to X B, (outputs,)."""
        return self.y_mean - self.x_mean @ self.problem.solution


def fit(
    moments: Moments,
    start: np.ndarray,
    blocks: Sequence[Block],
    *,
    intercept: bool,
    ridge: float = 1e-3,
) -> Fit:
    """Return the problem at its solution with every column.

    Args:
        start: B0, (features, outputs), from which the ridge keeps the solution close.
        intercept: whether a constant is fitted too.
        ridge: relative to the mean of the diagonal of XᵀX.
    """
    n = max(moments.rows, 1)
    x_mean = moments.x / n if intercept else np.zeros_like(moments.x)
    y_mean = moments.y / n if intercept else np.zeros_like(moments.y)
    xx = moments.xx - n * np.outer(x_mean, x_mean)
    xy = moments.xy - n * np.outer(x_mean, y_mean)
    yy = moments.yy - n * float(y_mean @ y_mean)
    # A column that is always zero must not make the matrix singular.
    weight = ridge * float(np.trace(xx)) / len(xx) or 1.0
    inverse = np.linalg.inv(xx + weight * np.eye(len(xx)))
    solution = inverse @ (xy + weight * start)
    return Fit(Problem(inverse, solution, max(yy, 1e-30), blocks), x_mean, y_mean)


def eliminate(problems: Sequence[Problem], count: int) -> list[int]:
    """Remove the `count` channels that cost least, one after the other; return them in order.

    Args:
        problems: the layers that read the channels; each has a block for every channel. They are
            left at their new solutions.
    """
    alive = list(range(len(problems[0].blocks)))
    removed: list[int] = []
    for _ in range(count):
        cheapest = min(alive, key=lambda c: sum(problem.cost(c) for problem in problems))
        for problem in problems:
            problem.remove(cheapest)
        alive.remove(cheapest)
        removed.append(cheapest)
    return removed
