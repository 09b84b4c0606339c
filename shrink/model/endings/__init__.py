"""What a model's outputs are, probabilities or logits, told from what its graph computes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from shrink.base.types import Array

EndingKind = Literal["softmax", "sigmoid", "logits"]
"""Probabilities that add up to 1, probabilities each for itself, or neither: any numbers."""

_ROUNDING = 1e-3
"""How far constants that are stored as integers move a bound."""


def kind_of(bounds: Range) -> EndingKind | None:
    """Return what an output is; None where its bounds do not tell."""
    if bounds.low >= -_ROUNDING and bounds.high <= 1 + _ROUNDING:
        adds_up = bounds.axis == -1 and abs((bounds.total or 0.0) - 1) <= _ROUNDING
        return "softmax" if adds_up else "sigmoid"
    return "logits" if bounds.unbounded and bounds.reached else None


def kind_of_values(values: Array, scale: float = 0.0) -> EndingKind | None:
    """Return what an output is, told from its values; None where they do not tell.

    That all of them lie between 0 and 1 proves nothing; that they add up to 1 besides does.

    Args:
        values: of some examples, (n, ..., classes).
        scale: of the quantization of a stored integer output; 0 for a float output.
    """
    if beyond_probabilities(values, scale):
        return "logits"
    sums, classes = values.sum(axis=-1), values.shape[-1]
    # Each rounded value is off by half a step at most.
    slack = _ROUNDING + classes * scale / 2
    if classes > 1 and slack < 0.5 and values.size and np.allclose(sums, 1.0, rtol=0, atol=slack):
        return "softmax"
    return None


def beyond_probabilities(values: Array, scale: float = 0.0) -> bool:
    """Whether values cannot be probabilities, whatever rounding did to them."""
    slack = _ROUNDING + scale
    return bool(np.any(values < -slack) or np.any(values > 1 + slack))


def described(kind: EndingKind | None, shape: Sequence[int | None]) -> str:
    """Return what an output is, in words."""
    if kind is None:
        return "unknown"
    if kind == "softmax":
        return "probabilities that add up to 1"
    single = tuple(shape[-1:]) == (1,)
    return {"sigmoid": "a probability" if single else "probabilities", "logits": "logits"}[kind]


Shape = tuple[int | None, ...]
Tensor = TypeVar("Tensor", bound=Hashable)


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
class Node(Generic[Tensor]):
    """An operator, with what its rule needs of it.

    Attributes:
        kind: TensorFlow's name of the operator.
        inputs: its inputs, as the graph names them.
        shape: of the output in question, with the batch; None where not even the rank is known.
        clamp: least and largest value that a fused activation leaves.
        options: what else a rule asks for, such as a slope.
        loop: of a loop, what is computed in each iteration.
    """

    kind: str
    inputs: tuple[Tensor, ...] = ()
    shape: Shape | None = None
    clamp: tuple[float, float] | None = None
    options: Mapping[str, float] = field(default_factory=dict)
    loop: Loop[Tensor] | None = None


@dataclass(frozen=True)
class Loop(Generic[Tensor]):
    """The body of a loop, whose values at the start are the operator's inputs.

    Attributes:
        arguments: the tensors that hold the values before an iteration.
        results: the tensors that hold them after it.
        index: which of them the output in question is.
        collected: which of them are lists that each iteration adds to.
    """

    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    index: int
    collected: frozenset[int] = frozenset()


class Computation(Protocol[Tensor]):
    """A graph of operators; tensors are any hashable values."""

    def node(self, tensor: Tensor) -> Node[Tensor] | None:
        """Return the operator that makes a tensor; None for an input of the model."""

    def constant(self, tensor: Tensor) -> Array | None:
        """Return the values of a constant, None for any other tensor."""

    def shape(self, tensor: Tensor) -> Shape | None:
        """Return a tensor's shape with the batch, None where not even the rank is known."""
