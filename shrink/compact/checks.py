"""Checks of a graph that passes rely on: a corrupt file is refused here and nowhere else.

Runtimes check much of this themselves, but a graph is read before one runs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from shrink.compact.graph import KNOWN_TYPES, Graph
from shrink.tflite.model import Operator, Tensor, corrupt

_MOST_BYTES = (1 << 31) - 1
"""Runtimes count bytes of tensors and arenas in 32 bits."""
_NUMBERS = ("INT32", "INT64")


class _Form(NamedTuple):
    """What inputs an operator has.

    Attributes:
        inputs: how many, at least.
        ranks: of the first of them; None where any will do.
        numbers: the place of an input that holds sizes or places; None where there is none.
    """

    inputs: int
    ranks: tuple[int | None, ...] = ()
    numbers: int | None = None


_FORMS: Mapping[str, _Form] = {
    "CONV_2D": _Form(2, (4, 4)),
    "DEPTHWISE_CONV_2D": _Form(2, (4, 4)),
    "AVERAGE_POOL_2D": _Form(1, (4,)),
    "MAX_POOL_2D": _Form(1, (4,)),
    "TRANSPOSE_CONV": _Form(3, (1, 4, 4)),
    "FULLY_CONNECTED": _Form(2, (None, 2)),
    "PAD": _Form(2, numbers=1),
    "RESIZE_BILINEAR": _Form(2, (4,), numbers=1),
    "RESIZE_NEAREST_NEIGHBOR": _Form(2, (4,), numbers=1),
    "SLICE": _Form(3, numbers=1),
}
_ABOVE_ZERO = ("strideH", "strideW", "filterHeight", "filterWidth")


def check_graph(graph: Graph) -> None:
    """Raise `ModelError` where a graph is not what its operators need.

    Operands that are missing or of another rank, strides of 0, constants that are not as long as
    their shapes say, tensors without elements or of more bytes than runtimes can count.
    """
    for index in graph.used():
        _check_tensor(graph.tensors[index])
    for number, operator in enumerate(graph.operators):
        _check_operator(graph, operator, f"operator {number} ({operator.name})")


def _check_tensor(tensor: Tensor) -> None:
    if tensor.stored is None or tensor.sparse:
        return
    name = tensor.name[:80] or "without a name"
    if not tensor.constant:
        if not 0 < tensor.size_bytes <= _MOST_BYTES:
            raise corrupt(f"tensor {name} takes {tensor.size_bytes:,} bytes")
    elif tensor.dtype in KNOWN_TYPES:
        stored = tensor.data.size
        if stored != tensor.size_bytes:
            raise corrupt(f"tensor {name} needs {tensor.size_bytes:,} bytes, {stored:,} are there")


def _check_operator(graph: Graph, operator: Operator, who: str) -> None:
    if not operator.outputs:
        raise corrupt(f"{who} has no output")
    form = _FORMS.get(operator.name, _Form(1))
    inputs = operator.inputs
    if len(inputs) < form.inputs or min(inputs[: form.inputs], default=0) < 0:
        given = sum(index >= 0 for index in inputs)
        raise corrupt(f"{who} has {given} inputs, and needs {form.inputs}")
    for index, rank in zip(inputs, form.ranks, strict=False):
        found = len(graph.tensors[index].shape)
        if rank is not None and found != rank:
            raise corrupt(f"an input of {who} has {found} dimensions, and needs {rank}")
    if 4 in form.ranks and len(graph.tensors[operator.outputs[0]].shape) != 4:
        raise corrupt(f"the output of {who} does not have 4 dimensions")
    if form.numbers is not None and graph.tensors[inputs[form.numbers]].dtype not in _NUMBERS:
        raise corrupt(f"input {form.numbers} of {who} is no int32 tensor")
    for name in _ABOVE_ZERO:
        if getattr(operator.options, name, 1) < 1:
            raise corrupt(f"{name} of {who} is {getattr(operator.options, name)}")
    if operator.name == "CONCATENATION":
        _check_joined(graph, operator, who)


def _check_joined(graph: Graph, operator: Operator, who: str) -> None:
    shapes = [graph.tensors[index].shape for index in operator.inputs if index >= 0]
    output = graph.tensors[operator.outputs[0]].shape
    if len(shapes) < len(operator.inputs) or any(len(one) != len(output) for one in shapes):
        raise corrupt(f"an input of {who} does not have {len(output)} dimensions")
    axis = 0 if operator.options is None else operator.options.axis
    if not -len(output) <= axis < len(output):
        raise corrupt(f"{who} joins along axis {axis} of {len(output)}")
    if sum(math.prod(shape) for shape in shapes) != math.prod(output):
        raise corrupt(f"the output of {who} is not as large as its inputs")
