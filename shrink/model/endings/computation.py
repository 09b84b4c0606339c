"""What bounds are found of: a graph of operators, and what is known of a tensor's values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Range:
    """What is known of all values of a tensor.

    Attributes:
        low: no value is below.
        high: no value is above.
        reached: where a bound is infinite, whether values do go there, as far as anybody can tell.
        fixed: the values are the same for all examples: constants and weights.
        axis: the axis, counted from the last (-1), along which values add up to `total`.
        total: None where nothing is known of sums.
    """

    low: float
    high: float
    reached: bool = True
    axis: int | None = None
    total: float | None = None
    fixed: bool = False

    @property
    def unbounded(self) -> bool:
        """Whether there is no bound on one side or on both."""
        return math.isinf(self.low) or math.isinf(self.high)


ANY = Range(-math.inf, math.inf)
EMPTY = Range(math.inf, -math.inf)
UNKNOWN = Range(-math.inf, math.inf, reached=False)


@dataclass(frozen=True)
class Node:
    """An operator, with what its rule needs of it.

    Attributes:
        kind: TensorFlow's name of the operator.
        inputs: its inputs, as the graph names them.
        shape: of the output in question, with the batch; None where not even the rank is known.
        clamp: least and largest value that a fused activation leaves.
        options: what else a rule asks for, such as a slope.
        loop: of a loop, what is computed in each turn.
    """

    kind: str
    inputs: tuple[Any, ...] = ()
    shape: Shape | None = None
    clamp: tuple[float, float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    loop: Loop | None = None


@dataclass(frozen=True)
class Loop:
    """The body of a loop, whose values at the start are the operator's inputs.

    Attributes:
        arguments: the tensors that hold the values before a turn.
        results: the tensors that hold them after it.
        place: which of them the output in question is.
        collected: which of them are lists that each turn adds to.
    """

    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    place: int
    collected: frozenset[int] = frozenset()


class Computation(Protocol):
    """A graph of operators; tensors are any hashable values."""

    def node(self, tensor: Any) -> Node | None:
        """Return the operator that makes a tensor; None for an input of the model."""

    def constant(self, tensor: Any) -> np.ndarray[Any, Any] | None:
        """Return the values of a constant, None for any other tensor."""

    def shape(self, tensor: Any) -> Shape | None:
        """Return a tensor's shape with the batch, None where not even the rank is known."""
