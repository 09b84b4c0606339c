"""Whether outputs are probabilities or logits, by the operator that a model ends in, or by values.

Functions that only move values are looked through, and so are calls of traced functions. Anything
else says nothing: then values of real examples decide, the compiled loss, or the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from shrink.base.keras_internals import input_structure
from shrink.base.types import Array
from shrink.tflite.lazy import keras, tf
from shrink.tflite.model import Operator, Subgraph, read
from shrink.tflite.model import values as values_of

OutputKind = Literal["softmax", "sigmoid", "logits"]
"""Probabilities that add up to 1, probabilities each for itself, or neither: any numbers."""

_LINEAR = frozenset(
    {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv3D",
     "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv3DBackpropInputV2", "FusedBatchNormV3",
     "LogSoftmax", "FULLY_CONNECTED", "CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "BATCH_MATMUL",
     "TRANSPOSE_CONV", "CONV_3D_TRANSPOSE", "LOG_SOFTMAX"}
)  # fmt: skip
_SUMS = frozenset({"BiasAdd", "AddV2", "Add", "ADD"})
_SAME = frozenset({"Identity", "Cast", "StopGradient", "CAST", "QUANTIZE", "DEQUANTIZE"})
_MOVES = frozenset(
    {"Reshape", "Squeeze", "ExpandDims", "StridedSlice", "Slice", "Transpose", "MaxPool", "Max",
     "Pad", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "STRIDED_SLICE", "SLICE", "TRANSPOSE", "PAD",
     "MAX_POOL_2D", "REDUCE_MAX"}
)  # fmt: skip
"""Operators after which values still lie between 0 and 1, or anywhere."""
_KEEPING_LAST = frozenset(
    {"Reshape", "Squeeze", "ExpandDims", "StridedSlice", "Slice", "RESHAPE", "SQUEEZE",
     "EXPAND_DIMS", "STRIDED_SLICE", "SLICE"}
)  # fmt: skip
"""Operators that leave a last axis of equal length above 1 as it is."""
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_DEEPEST = 100
_ROUNDING = 1e-3
"""How far constants that are stored as integers move a value."""
Tensor = TypeVar("Tensor")
Step = tuple[str, Sequence[Tensor], bool]
"""An operator's name, what it computes with, and whether it keeps the last axis."""


def _kind(
    step: Callable[[Tensor], Step[Tensor] | None], tensor: Tensor, whole: bool = True, deep: int = 0
) -> OutputKind | None:
    """Return what a tensor is, None where its operators do not tell.

    Args:
        step: returns the operator that makes a tensor; None for inputs and unknown operators.
        tensor: in question.
        whole: whether sums over its last axis are those of the output.
        deep: how many operators lie between it and the output.
    """
    found = step(tensor) if deep < _DEEPEST else None
    if found is None:
        return None
    name, inputs, keeps_last = found

    def before(index: int) -> OutputKind | None:
        return _kind(step, inputs[index], whole and keeps_last, deep + 1)

    if name in ("Softmax", "SOFTMAX"):
        return "softmax" if whole else "sigmoid"
    if name in ("Sigmoid", "LOGISTIC"):
        return "sigmoid"
    if name in _LINEAR:
        return "logits"
    if name in _SUMS:  # whatever is added to numbers without bounds
        return "logits" if "logits" in map(before, range(len(inputs))) else None
    if name in ("Relu", "RELU"):
        return "logits" if before(0) == "logits" else None
    if name in _SAME or name in _MOVES:
        return before(0)
    if name in ("ConcatV2", "CONCATENATION"):
        kinds = set(map(before, range(len(inputs) - (name == "ConcatV2"))))
        if kinds <= {"softmax", "sigmoid"}:
            return "sigmoid"
        return "logits" if kinds == {"logits"} else None
    return None


def _keeps_last(
    name: str, before: Sequence[int | None] | None, after: Sequence[int | None] | None
) -> bool:
    if name in _SAME:
        return True
    same = bool(before and after) and before[-1] == after[-1] not in (None, 1)  # type: ignore[index]
    return name in _KEEPING_LAST and same


@dataclass(frozen=True)
class _Traced:
    """A tensor of a traced function, and what the call that it is in was given."""

    tensor: tf.Tensor
    call: tuple[tf.Graph, tuple[_Traced, ...]] | None = None


def _traced_step(traced_tensor: _Traced) -> Step[_Traced] | None:
    tensor, call = traced_tensor.tensor, traced_tensor.call
    operation = tensor.op
    inputs = tuple(_Traced(each, call) for each in operation.inputs)
    if operation.type in _CALLS:
        function = operation.graph._get_function(operation.get_attr("f").name)
        graph = getattr(function, "graph", None)
        if graph is None:
            return None
        return "Identity", (_Traced(graph.outputs[tensor.value_index], (graph, inputs)),), True
    if operation.type == "Placeholder":
        for own, given in zip(call[0].inputs, call[1], strict=False) if call else ():
            if own is tensor:
                return "Identity", (given,), True
        return None
    if operation.type == "Transpose":
        order = tf.get_static_value(operation.inputs[1])
        return "Transpose", inputs[:1], order is not None and order[-1] == len(order) - 1
    shapes = [
        None if each.shape.rank is None else each.shape.as_list()
        for each in (*operation.inputs[:1], tensor)
    ]
    return operation.type, inputs, _keeps_last(operation.type, shapes[0], shapes[-1])


def output_kinds(model: keras.Model) -> list[OutputKind | None]:
    """Return what each output of a functional model is, in inference mode."""
    from shrink.tflite.serving import traced

    specs = [tf.TensorSpec(each.shape, each.dtype) for each in model.inputs]

    def ask(*tensors: tf.Tensor) -> list[tf.Tensor]:
        inputs = tf.nest.pack_sequence_as(input_structure(model), list(tensors))
        return [tf.identity(each) for each in tf.nest.flatten(model(inputs, training=False))]

    graph = traced(ask).get_concrete_function(*specs).graph
    return [_kind(_traced_step, _Traced(each)) for each in graph.outputs]


def output_kinds_of_file(content: bytes) -> dict[int, OutputKind | None]:
    """Return what each output of a .tflite file is, by its tensor's index.

    Raises:
        ModelError: the content is no TFLite model.
    """
    graph = read(content)[0]
    makers = {index: each for each in graph.operators for index in each.outputs}
    return {index: _kind(lambda t: _file_step(graph, makers, t), index) for index in graph.outputs}


def _file_step(graph: Subgraph, makers: Mapping[int, Operator], tensor: int) -> Step[int] | None:
    operator = makers.get(tensor)
    if operator is None or operator.custom or operator.fused_activation not in ("NONE", "RELU"):
        return None
    inputs = tuple(index for index in operator.inputs if index >= 0)
    if operator.name == "TRANSPOSE":
        order = values_of(graph.tensors[inputs[1]])
        return "TRANSPOSE", inputs[:1], order is not None and order[-1] == len(order) - 1
    shapes = [graph.tensors[index].shape for index in (*inputs[:1], tensor)]
    return operator.name, inputs, _keeps_last(operator.name, shapes[0], shapes[-1])


def kind_of_values(values: Array, scale: float = 0.0) -> OutputKind | None:
    """Return what an output is by its values; None where they do not tell.

    That all of them lie between 0 and 1 proves nothing; that they add up to 1 besides does.

    Args:
        values: of some examples, (n, ..., classes).
        scale: of the quantization of a stored integer output; 0 for a float output.
    """
    if beyond_probabilities(values, scale):
        return "logits"
    sums, classes = values.sum(axis=-1), values.shape[-1]
    tolerance = _ROUNDING + classes * scale / 2  # each rounded value is off by half a step at most
    adds_up = tolerance < 0.5 and np.allclose(sums, 1.0, rtol=0, atol=tolerance)
    return "softmax" if classes > 1 and values.size and adds_up else None


def beyond_probabilities(values: Array, scale: float = 0.0) -> bool:
    """Whether values cannot be probabilities, whatever rounding did to them."""
    tolerance = _ROUNDING + scale
    return bool(np.any(values < -tolerance) or np.any(values > 1 + tolerance))


def described(kind: OutputKind | None, shape: Sequence[int | None]) -> str:
    """Return what an output is, in words."""
    if kind is None:
        return "unknown"
    if kind == "softmax":
        return "probabilities that add up to 1"
    single = tuple(shape[-1:]) == (1,)
    return {"sigmoid": "a probability" if single else "probabilities", "logits": "logits"}[kind]
