"""What tests ask of a graph of TensorFlow."""

from __future__ import annotations

from typing import Any


def all_before(operation: Any) -> set[Any]:
    """Return the operations that have to run before one."""
    found: set[Any] = set()
    waiting = [operation]
    while waiting:
        each = waiting.pop()
        for before in (*each.control_inputs, *(tensor.op for tensor in each.inputs)):
            if before not in found:
                found.add(before)
                waiting.append(before)
    return found
