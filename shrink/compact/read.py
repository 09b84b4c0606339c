"""A .tflite file read as a graph, refused where passes could not rely on it.

Runtimes check much of this themselves, but a graph is read before one runs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.compact.graph import Graph
from shrink.tflite.litert_twin import DECODE
from shrink.tflite.model import MALFORMED, Operator, Tensor, corrupt, opened

_MOST_BYTES = (1 << 31) - 1
"""Runtimes count bytes of tensors and arenas in 32 bits."""
_KNOWN_TYPES = {"INT8", "UINT8", "BOOL", "INT16", "FLOAT16", "INT32", "FLOAT32", "INT64"}
"""Types of activations whose bytes runtimes agree on."""
_STATEFUL = {
    "CALL",
    "CALL_ONCE",
    "IF",
    "WHILE",
    "VAR_HANDLE",
    "READ_VARIABLE",
    "ASSIGN_VARIABLE",
    "DELEGATE",
    "RANDOM_UNIFORM",
    "RANDOM_STANDARD_NORMAL",
    "MULTINOMIAL",
    "HASHTABLE",
    "HASHTABLE_FIND",
    "HASHTABLE_IMPORT",
}


class _Form(NamedTuple):
    """What passes rely on in an operator.

    Attributes:
        options: the type of its options, where they are read.
        inputs: how many, at least.
        ranks: of the first of them; None where any will do.
        numbers: which input holds sizes or positions; None for none.
    """

    options: type = object
    inputs: int = 1
    ranks: tuple[int | None, ...] = ()
    numbers: int | None = None


_FORMS: Mapping[str, _Form] = {
    "CONV_2D": _Form(schema.Conv2DOptionsT, 2, (4, 4)),
    "DEPTHWISE_CONV_2D": _Form(schema.DepthwiseConv2DOptionsT, 2, (4, 4)),
    "AVERAGE_POOL_2D": _Form(schema.Pool2DOptionsT, 1, (4,)),
    "MAX_POOL_2D": _Form(schema.Pool2DOptionsT, 1, (4,)),
    "CONCATENATION": _Form(schema.ConcatenationOptionsT),
    "TRANSPOSE_CONV": _Form(schema.TransposeConvOptionsT, 3, (1, 4, 4)),
    "FULLY_CONNECTED": _Form(schema.FullyConnectedOptionsT, 2, (None, 2)),
    "PAD": _Form(inputs=2, numbers=1),
    "RESIZE_BILINEAR": _Form(schema.ResizeBilinearOptionsT, 2, (4,), numbers=1),
    "RESIZE_NEAREST_NEIGHBOR": _Form(schema.ResizeNearestNeighborOptionsT, 2, (4,), numbers=1),
    "SLICE": _Form(inputs=3, numbers=1),
}
_NUMBERS = ("INT32", "INT64")
_ABOVE_ZERO = ("strideH", "strideW", "filterHeight", "filterWidth")


def read_graph(content: bytes) -> Graph:
    """Return the graph of a .tflite file.

    Raises:
        ModelError: it is no TFLite model, or one that cannot be rewritten: several subgraphs,
            variables, unknown dimensions, operators with a state or effects. Or it is corrupt:
            operands that are missing or of another rank, strides of 0, constants that are not as
            long as their shapes say, tensors of no bytes or of more than runtimes can count.
    """
    model, subgraphs = opened(content)
    if len(subgraphs) > 1:
        raise _refused(f"it has {len(subgraphs)} subgraphs")
    (given,) = subgraphs
    graph = Graph(given.tensors, given.operators, given.inputs, given.outputs, model)
    try:
        for index, tensor in enumerate(graph.tensors):
            _check_kind(tensor, tensor.name or str(index))
        written = set(graph.inputs)
        for number, operator in enumerate(graph.operators):
            _check_flow(graph, operator, written)
            _check_form(graph, operator, f"operator {number} ({operator.name})")
        if any(graph.is_activation(index) and index not in written for index in graph.outputs):
            raise _refused("nothing writes one of its outputs")
        for index in graph.used():
            _check_size(graph.tensors[index])
        if any(not 0 <= entry.buffer < len(model.buffers) for entry in model.metadata or []):
            raise corrupt("metadata name a missing buffer")
    except MALFORMED as error:
        raise corrupt(error) from error
    return graph


def _refused(why: str) -> ModelError:
    return ModelError(
        f"this .tflite file cannot be compacted: {why}",
        hint="compact rewrites a single subgraph of known shapes, a batch of 1 and no state",
    )


def _check_kind(tensor: Tensor, name: str) -> None:
    if tensor.variable:
        raise _refused(f"tensor {name} is a variable, which keeps state between examples")
    if tensor.open_dimensions:
        raise _refused(f"tensor {name} has dimensions that are not known")
    if tensor.dtype not in _KNOWN_TYPES and not tensor.constant:
        what = ", which keeps state between examples" if tensor.dtype == "RESOURCE" else ""
        raise _refused(f"tensor {name} has the type {tensor.dtype.lower()}{what}")


def _check_size(tensor: Tensor) -> None:
    name = tensor.name[:80] or "without a name"
    if not tensor.constant and not 0 < tensor.size_bytes <= _MOST_BYTES:
        raise corrupt(f"tensor {name} takes {tensor.size_bytes:,} bytes")
    whole = tensor.dtype in _KNOWN_TYPES and not tensor.sparse
    if tensor.constant and whole and tensor.data.size != tensor.size_bytes:
        raise corrupt(
            f"tensor {name} needs {tensor.size_bytes:,} bytes, {tensor.data.size:,} are there"
        )


def _check_flow(graph: Graph, operator: Operator, written: set[int]) -> None:
    """Check an operator's kind and order, and add its outputs to the tensors that are written."""
    if operator.custom and operator.name == DECODE:
        raise _refused(
            f"its kernels are stored for {DECODE} already; compact the file that it was made from"
        )
    if not operator.custom and not hasattr(schema.BuiltinOperator, operator.name):
        raise corrupt(f"an operator of the unknown kind {operator.name}")
    if operator.custom or operator.name in _STATEFUL:
        raise _refused(f"{operator.name} is an operator whose effects are not known")
    if not written.issuperset(graph.activations(operator.inputs)):
        raise _refused(f"{operator.name} reads a tensor that nothing has written")
    outputs = operator.outputs
    if written & set(outputs) or len(set(outputs)) < len(outputs) or -1 in outputs:
        raise _refused(f"{operator.name} writes a tensor that is written already")
    if any(not graph.is_activation(index) for index in outputs):
        raise _refused(f"{operator.name} writes a constant")
    if not outputs:
        raise corrupt(f"{operator.name} has no output")
    written.update(outputs)


def _check_form(graph: Graph, operator: Operator, who: str) -> None:
    inputs, output = operator.inputs, graph.tensors[operator.outputs[0]].shape
    form = _FORMS.get(operator.name, _Form())
    if not isinstance(operator.options, form.options | None):
        raise corrupt(f"options of {who}")
    if len(inputs) < form.inputs or min(inputs[: form.inputs], default=0) < 0:
        given = sum(index >= 0 for index in inputs)
        raise corrupt(f"{who} has {given} inputs, and needs {form.inputs}")
    for index, rank in zip(inputs, form.ranks, strict=False):
        found = len(graph.tensors[index].shape)
        if rank is not None and found != rank:
            raise corrupt(f"an input of {who} has {found} dimensions, and needs {rank}")
    if 4 in form.ranks and len(output) != 4:
        raise corrupt(f"the output of {who} does not have 4 dimensions")
    if form.numbers is not None and graph.tensors[inputs[form.numbers]].dtype not in _NUMBERS:
        raise corrupt(f"input {form.numbers} of {who} is no int32 tensor")
    for name in _ABOVE_ZERO:
        if getattr(operator.options, name, 1) < 1:
            raise corrupt(f"{name} of {who} is {getattr(operator.options, name)}")
    if operator.name == "CONCATENATION":
        shapes = [graph.tensors[index].shape for index in inputs if index >= 0]
        if len(shapes) < len(inputs) or any(len(one) != len(output) for one in shapes):
            raise corrupt(f"an input of {who} does not have {len(output)} dimensions")
        if not -len(output) <= operator.axis < len(output):
            raise corrupt(f"{who} joins along axis {operator.axis} of {len(output)}")
        if sum(math.prod(shape) for shape in shapes) != math.prod(output):
            raise corrupt(f"the output of {who} is not as large as its inputs")
