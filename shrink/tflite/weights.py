"""Which tensors of a .tflite file are weights, and which operators work on integers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from shrink.base.errors import ModelError
from shrink.tflite.litert_twin import dense_twin
from shrink.tflite.model import Operator, Subgraph, Tensor, read, stored_values

_FLOATS = {"FLOAT32", "FLOAT16", "BFLOAT16", "FLOAT64"}
_INTEGERS = {"INT2", "INT4", "INT8", "UINT8", "INT16"}
_BIASES = {"INT32", "INT64"}
_DENSIFY = "DENSIFY"
_STATES = {
    "LSTM": (18, 19),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (35, 36, 37, 38),
    "RNN": (4,),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (4,),
    "BIDIRECTIONAL_SEQUENCE_RNN": (4, 8),
    "SVDF": (4,),
}
"""Inputs of fused loops that hold a state, in the order of TensorFlow Lite's kernels."""
_BORDERS = {"QUANTIZE", "DEQUANTIZE", _DENSIFY}


def parameters(content: bytes) -> int:
    """Return the number of weights that a .tflite file holds.

    Counted are the elements (dense, where stored sparsely) of each constant that an operator
    reads, once per buffer, when it is of a floating type, of a quantized integer type, or an
    int32/int64 bias (recognized by its scale). Shapes, axes, paddings and scalars are not weights,
    nor is what a loop begins with.
    A float32 export has the Keras count, less what folding batch normalization saves, less
    equal constants that the converter stores once, plus a zero bias where a layer had none.

    Raises:
        ModelError: the content is no TFLite model.
    """
    return sum(tensor.elements for tensor in weights(content))


def nonzero_parameters(content: bytes) -> int:
    """Return how many of the `parameters` stand for a real number other than 0.

    Raises:
        ModelError: the content is no TFLite model.
    """
    return sum(nonzero(tensor) for tensor in weights(content))


def weights(content: bytes) -> list[Tensor]:
    """Return the constant tensors that `parameters` counts.

    Those in a form of TFLM_DECODE are dense.
    """
    by_buffer: dict[int, Tensor] = {}
    graphs = read(dense_twin(content))
    for graph in graphs:
        starts = loop_starts(graphs, graph)
        for operator in graph.operators:
            for index in operator.inputs:
                if index >= 0 and index not in starts and _is_weight(graph.tensors[index]):
                    by_buffer.setdefault(graph.tensors[index].buffer, graph.tensors[index])
    return list(by_buffer.values())


def operator_weights(
    graph: Subgraph, operator: Operator, starts: Collection[int] = ()
) -> list[Tensor]:
    """Return the constants of one operator that `parameters` counts.

    What is stored sparsely is a constant of the operator that reads it, not of DENSIFY.

    Args:
        graph: that it stands in.
        operator: one of its operators.
        starts: the graph's `loop_starts`.
    """
    if operator.name == _DENSIFY:
        return []
    indices = [index for index in operator.inputs if index not in starts]
    return [tensor for tensor in _stored_inputs(graph, indices) if _is_weight(tensor)]


def loop_starts(graphs: Sequence[Subgraph], graph: Subgraph) -> set[int]:
    """Return the tensors of a graph that are nothing but what its loops begin with.

    A state of zeros, or an empty list of outputs, is no weight. What a loop's body hands on as it
    is may be one.
    """
    starts: set[int] = set()
    others: set[int] = set(graph.outputs)
    for operator in reversed(graph.operators):  # those that read a tensor before its writer
        for position, index in enumerate(operator.inputs):
            if _begins(graphs, operator, position, starts - others):
                starts.add(index)
            else:
                others.add(index)
    return starts - others


def _begins(
    graphs: Sequence[Subgraph], operator: Operator, position: int, starts: Collection[int]
) -> bool:
    if operator.name == "DEQUANTIZE":
        return operator.outputs[0] in starts
    if operator.name != "WHILE" or not operator.subgraphs:
        return position in _STATES.get(operator.name, ())
    body = graphs[operator.subgraphs[1]]
    inside = list(zip(body.inputs, body.outputs, strict=False))
    return position < len(inside) and inside[position][0] != inside[position][1]


def nonzero(tensor: Tensor) -> int:
    """Return how many of a constant's values stand for a real number other than 0."""
    stored = stored_values(tensor)
    if stored is None:
        return tensor.elements
    zero = tensor.zero_points[0] if len(tensor.zero_points) == 1 else 0
    return int(np.count_nonzero(stored != zero))


def quantized_operators(content: bytes) -> int:
    """Return the number of operators that read or write quantized integers of at most 16 bits.

    QUANTIZE and DEQUANTIZE do not count, but an operator that reads a weight through a DEQUANTIZE
    (weight-only quantization) does.

    Raises:
        ModelError: the content is no TFLite model.
    """
    count = 0
    for graph in read(content):
        dequantized = {
            index
            for operator in graph.operators
            if operator.name == "DEQUANTIZE"
            for tensor in _stored_inputs(graph, operator.inputs)
            if tensor.constant and _is_quantized(tensor, _INTEGERS)
            for index in operator.outputs
        }
        integers = dequantized | {
            index for index, tensor in enumerate(graph.tensors) if _is_quantized(tensor, _INTEGERS)
        }
        count += sum(
            operator.name not in _BORDERS
            and not integers.isdisjoint((*operator.inputs, *operator.outputs))
            for operator in graph.operators
        )
    return count


def check_float(content: bytes, subject: Path) -> None:
    """Raise `ModelError` where a .tflite file is no float model that can be quantized.

    Args:
        content: the file.
        subject: its name, for the message.
    """
    if count := quantized_operators(content):
        raise ModelError(
            f"this .tflite file is quantized already: {count} of its operators work on integers",
            subject=subject,
            hint="give a float .tflite file, or the Keras model that it was made from",
        )
    if any(tensor.sparse for tensor in weights(content)):
        raise ModelError(
            "this .tflite file leaves out the zeros of its kernels, which are not weights then",
            subject=subject,
            hint="give the file without `sparse: true`, or the Keras model that it was made from",
        )


def float_operators(content: bytes, meant: Collection[str] = ()) -> list[str]:
    """Return the names of the operators with floating outputs, in order, QUANTIZE and such aside.

    Args:
        content: the .tflite file.
        meant: names of output tensors whose operators are left out.

    Raises:
        ModelError: the content is no TFLite model.
    """
    return [
        operator.name
        for graph in read(content)
        for operator in graph.operators
        if operator.name not in _BORDERS
        and any(
            graph.tensors[i].dtype in _FLOATS and graph.tensors[i].name not in meant
            for i in operator.outputs
            if i >= 0
        )
    ]


def _stored_inputs(graph: Subgraph, indices: Sequence[int]) -> Iterator[Tensor]:
    """Yield tensors, and in place of what DENSIFY writes what it reads."""
    stored = {o.outputs[0]: o.inputs[0] for o in graph.operators if o.name == _DENSIFY}
    return (graph.tensors[stored.get(index, index)] for index in indices if index >= 0)


def _is_weight(tensor: Tensor) -> bool:
    if not tensor.constant or not tensor.shape:
        return False
    return tensor.dtype in _FLOATS or _is_quantized(tensor, _INTEGERS | _BIASES)


def _is_quantized(tensor: Tensor, dtypes: set[str]) -> bool:
    return tensor.dtype in dtypes and bool(tensor.scales)
