"""The concatenation that passes add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ai_edge_litert import schema_py_generated as schema

from shrink.tflite.model import Operator

MOST_CONCATENATED = 10
"""Inputs that TFLite Micro's CONCATENATION takes."""
_Part = TypeVar("_Part")
_INT8_VERSION = 2


def concatenation(inputs: Sequence[int], output: int, axis: int) -> Operator:
    """Return a CONCATENATION, without an activation, of tensors given by their indices.

    Args:
        inputs: at most `MOST_CONCATENATED`.
        output: as long along the axis as the inputs together.
        axis: from 0 on.
    """
    options = schema.ConcatenationOptionsT()
    options.axis, options.fusedActivationFunction = axis, schema.ActivationFunctionType.NONE
    return Operator(
        "CONCATENATION", False, tuple(inputs), (output,), options=options, version=_INT8_VERSION
    )


def groups_of(parts: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    """Yield parts in groups of at most `MOST_CONCATENATED`, as few and as equal as can be.

    Args:
        parts: in their order; at least one.
    """
    count = -(-len(parts) // MOST_CONCATENATED)
    size = -(-len(parts) // count)
    for start in range(0, len(parts), size):
        yield parts[start : start + size]
