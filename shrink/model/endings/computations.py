"""Bounds of what Keras models and .tflite files compute, found operator by operator.

Moore, Kearfott & Cloud 2009, "Introduction to Interval Analysis", chapter 2, over tensors in place
of numbers, with one more fact: along which axis the values add up to what (a softmax: to 1). The
bounds are sound: whatever the inputs and the weights, no value lies outside. They need not be
tight, as when a tensor meets itself again (x - x): whether values do reach beyond all bounds is
told apart, and is so where weights multiply them and nothing takes them back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.types import Array
from shrink.model.endings import ANY, UNKNOWN, Computation, Loop, Node, Range, Shape, Tensor
from shrink.model.endings.rules import REAL, RULES, WEIGHTS, Site, clamped, joined, range_of_values
from shrink.tflite.model import Subgraph, read
from shrink.tflite.model import values as values_of
from shrink.tflite.serving import traced

if TYPE_CHECKING:
    from tensorflow.python.util.object_identity import Reference

_ITERATIONS = 4
"""Of a loop, before its values are taken to be anything at the start of one."""


def range_of(computation: Computation[Tensor], tensor: Tensor) -> Range:
    """Return the bounds of a tensor's values."""
    return _Analysis(computation).range_of(tensor)


class _Analysis(Generic[Tensor]):
    """Finds bounds backwards from a tensor; every tensor once, without recursion but in loops."""

    def __init__(
        self, computation: Computation[Tensor], assumed: Mapping[Tensor, Range] | None = None
    ) -> None:
        self.graph = computation
        self._found: dict[Tensor, Range] = dict(assumed or {})

    def range_of(self, tensor: Tensor) -> Range:
        """Return the bounds of a tensor's values."""
        waiting = [tensor]
        while waiting:
            current = waiting[-1]
            if current in self._found:
                waiting.pop()
                continue
            missing = self._needed(current)
            if missing:
                waiting += missing
                continue
            self._found[waiting.pop()] = self._compute(current)
        return self._found[tensor]

    def _needed(self, tensor: Tensor) -> list[Tensor]:
        """Return the inputs whose bounds are needed first; a product of weights needs none."""
        node = self.graph.node(tensor)
        if node is None or self.graph.constant(tensor) is not None:
            return []
        if node.kind not in RULES and node.loop is None:
            return []
        return [each for each in node.inputs if each not in self._found]

    def _compute(self, tensor: Tensor) -> Range:
        values = self.graph.constant(tensor)
        if values is not None:
            return range_of_values(values)
        node = self.graph.node(tensor)
        if node is None:
            return ANY
        if node.loop is not None:
            return self._looped([self._found[each] for each in node.inputs], node.loop)
        if node.kind in WEIGHTS:
            bounds = replace(ANY, fixed=True)
        elif node.kind in REAL:
            bounds = ANY
        elif node.kind in RULES:
            inputs = [self._found[each] for each in node.inputs]
            bounds = RULES[node.kind](Site(node, inputs, self.graph))
            if inputs and all(each.fixed for each in inputs):
                bounds = replace(bounds, fixed=True, reached=True)
        else:
            bounds = UNKNOWN
        return bounds if node.clamp is None else clamped(bounds, *node.clamp)

    def _looped(self, begin: list[Range], loop: Loop[Tensor]) -> Range:
        """Return bounds that a turn of the loop does not leave, starting from within them."""
        values, iterations = begin, 0
        while (after := self._iterate(values, loop)) != values:
            iterations += 1
            values = [
                new
                if new == old or iterations < (2 if index in loop.collected else 1) * _ITERATIONS
                # What still grows may grow for ever, or not. Lists are given up last: they may
                # hold less than what is carried from one iteration to the next.
                else UNKNOWN
                for index, (old, new) in enumerate(zip(values, after, strict=True))
            ]
        return values[loop.index]

    def _iterate(self, values: list[Range], loop: Loop[Tensor]) -> list[Range]:
        inner = _Analysis(self.graph, dict(zip(loop.arguments, values, strict=True)))
        after = [inner.range_of(each) for each in loop.results]
        return [joined(*pair) for pair in zip(values, after, strict=True)]


_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_LOOPS = frozenset({"While", "StatelessWhile"})
_MOST_CONSTANTS = 4096


@dataclass(frozen=True)
class _TracedTensor:
    """A tensor of a traced function, in one of its calls.

    Attributes:
        tensor: its `ref()`.
        call: the call that its function is in, None for the outermost.
    """

    tensor: Reference
    call: _Call | None = None


@dataclass(frozen=True)
class _Call:
    """A call of a traced function by another."""

    graph: tf.Graph
    arguments: tuple[_TracedTensor, ...]


class TracedComputation:
    """A concrete function of TensorFlow; calls inside it are looked into."""

    def node(self, traced_tensor: _TracedTensor) -> Node[_TracedTensor] | None:
        """Return the operator that makes a tensor; None for an input of the model."""
        tensor, call = traced_tensor.tensor.deref(), traced_tensor.call
        operation = tensor.op
        if operation.type == "Placeholder":
            return self._argument(tensor, call)
        if operation.type in _CALLS:
            return self._called(tensor, call)
        if operation.type in _LOOPS:
            return self._looped(tensor, call)
        options = {}
        if operation.type == "LeakyRelu":
            options["alpha"] = operation.get_attr("alpha")
        return Node(operation.type, _inputs(operation, call), _shape(tensor), options=options)

    def constant(self, traced_tensor: _TracedTensor) -> Array | None:
        """Return the values of a small constant, None for any other tensor."""
        tensor = traced_tensor.tensor.deref()
        if tensor.op.type == "Placeholder" and traced_tensor.call is not None:
            node = self._argument(tensor, traced_tensor.call)
            return self.constant(node.inputs[0]) if node is not None and node.inputs else None
        if tensor.shape.num_elements() is None or tensor.shape.num_elements() > _MOST_CONSTANTS:
            return None
        return tf.get_static_value(tensor)

    def shape(self, traced_tensor: _TracedTensor) -> Shape | None:
        """Return a tensor's shape with the batch, None where not even the rank is known."""
        return _shape(traced_tensor.tensor.deref())

    def _argument(self, tensor: tf.Tensor, call: _Call | None) -> Node[_TracedTensor] | None:
        if call is None:
            captured = any(tensor is each for each in tensor.graph.internal_captures)
            return Node("ReadVariableOp", (), _shape(tensor)) if captured else None
        for own, argument in zip(call.graph.inputs, call.arguments, strict=False):
            if own is tensor:
                return Node("Identity", (argument,), _shape(tensor))
        return None

    def _looped(self, tensor: tf.Tensor, call: _Call | None) -> Node[_TracedTensor]:
        graph, begin = _function(tensor.op, "body"), _inputs(tensor.op, call)
        if graph is None:
            return Node("?", (), _shape(tensor))
        # Of the values in an iteration only the loop's analysis knows: they are no arguments.
        iteration = _Call(graph, ())
        arguments = tuple(_TracedTensor(each.ref(), iteration) for each in graph.inputs)
        results = tuple(_TracedTensor(each.ref(), iteration) for each in graph.outputs)
        lists = frozenset(
            index for index, each in enumerate(graph.inputs) if each.dtype == tf.variant
        )
        loop = Loop(arguments, results, tensor.value_index, lists)
        return Node("While", begin, _shape(tensor), loop=loop)

    def _called(self, tensor: tf.Tensor, call: _Call | None) -> Node[_TracedTensor]:
        graph, arguments = _function(tensor.op, "f"), _inputs(tensor.op, call)
        if graph is None:
            return Node("?", (), _shape(tensor))
        inner = _TracedTensor(graph.outputs[tensor.value_index].ref(), _Call(graph, arguments))
        return Node("Identity", (inner,), _shape(tensor))


def ranges_of_model(model: keras.Model) -> list[Range]:
    """Return the bounds of each output of a functional model, in inference mode."""
    specs = [tf.TensorSpec(each.shape, each.dtype) for each in model.inputs]

    def ask(*tensors: tf.Tensor) -> list[tf.Tensor]:
        inputs = tf.nest.pack_sequence_as(model._nested_inputs, list(tensors))
        return [tf.identity(each) for each in tf.nest.flatten(model(inputs, training=False))]

    function = traced(ask).get_concrete_function(*specs)
    computation = TracedComputation()
    return [range_of(computation, _TracedTensor(each.ref())) for each in function.graph.outputs]


def _function(operation: tf.Operation, attribute: str) -> tf.Graph | None:
    """Return the graph of the function that an operator calls, None where it is not there."""
    function = operation.graph._get_function(operation.get_attr(attribute).name)
    return getattr(function, "graph", None)


def _inputs(operation: tf.Operation, call: _Call | None) -> tuple[_TracedTensor, ...]:
    return tuple(_TracedTensor(each.ref(), call) for each in operation.inputs)


def _shape(tensor: tf.Tensor) -> Shape | None:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())


_KINDS = {
    **{"RESHAPE": "Reshape", "SQUEEZE": "Squeeze", "EXPAND_DIMS": "ExpandDims"},
    **{"TRANSPOSE": "Transpose", "CONCATENATION": "ConcatV2", "PACK": "Pack", "UNPACK": "Unpack"},
    **{"SPLIT": "Split", "SPLIT_V": "SplitV", "SLICE": "Slice", "STRIDED_SLICE": "StridedSlice"},
    **{"GATHER": "GatherV2", "GATHER_ND": "GatherNd", "REVERSE_V2": "ReverseV2", "TILE": "Tile"},
    **{"BROADCAST_TO": "BroadcastTo", "PAD": "Pad", "MIRROR_PAD": "MirrorPad"},
    **{"AVERAGE_POOL_2D": "AvgPool", "MAX_POOL_2D": "MaxPool", "REDUCE_MAX": "Max"},
    **{"REDUCE_MIN": "Min", "MEAN": "Mean", "SUM": "Sum", "TOPK_V2": "TopKV2"},
    **{"RESIZE_BILINEAR": "ResizeBilinear", "DEPTH_TO_SPACE": "DepthToSpace"},
    **{"RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighbor", "SPACE_TO_DEPTH": "SpaceToDepth"},
    **{"BATCH_TO_SPACE_ND": "BatchToSpaceND", "SPACE_TO_BATCH_ND": "SpaceToBatchND"},
    **{"CAST": "Cast", "QUANTIZE": "Quantize", "DEQUANTIZE": "Dequantize"},
    **{"ADD": "AddV2", "ADD_N": "AddN", "SUB": "Sub", "MUL": "Mul", "DIV": "RealDiv"},
    **{"MAXIMUM": "Maximum", "MINIMUM": "Minimum", "SELECT": "Select", "SELECT_V2": "SelectV2"},
    **{"SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "LOG_SOFTMAX": "LogSoftmax"},
    **{"RELU": "Relu", "RELU6": "Relu6", "RELU_0_TO_1": "Relu0To1", "RELU_N1_TO_1": "ReluN1To1"},
    **{"ELU": "Elu", "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "RSQRT": "Rsqrt"},
    **{"SQUARE": "Square", "ABS": "Abs", "NEG": "Neg", "SIN": "Sin", "COS": "Cos"},
    **{"L2_NORMALIZATION": "L2Normalization", "SQUARED_DIFFERENCE": "SquaredDifference"},
    **{"GREATER": "Greater", "LESS": "Less", "EQUAL": "Equal", "NOT_EQUAL": "NotEqual"},
    **{"GREATER_EQUAL": "GreaterEqual", "LESS_EQUAL": "LessEqual", "ONE_HOT": "OneHot"},
    **{"FULLY_CONNECTED": "MatMul", "CONV_2D": "Conv2D", "CONV_3D": "Conv3D"},
    **{"DEPTHWISE_CONV_2D": "DepthwiseConv2dNative", "BATCH_MATMUL": "BatchMatMulV2"},
    **{"TRANSPOSE_CONV": "Conv2DBackpropInput", "CONV_3D_TRANSPOSE": "Conv3DBackpropInputV2"},
    **{"EMBEDDING_LOOKUP": "Embedding", "CUMSUM": "Cumsum", "ZEROS_LIKE": "ZerosLike"},
}
"""TensorFlow's name of each operator of TFLite."""

_CLAMPS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "TANH": (-1.0, 1.0),
}


class FileComputation:
    """The entry subgraph of a .tflite file; tensors are their indices."""

    def __init__(self, graph: Subgraph) -> None:
        self._graph = graph
        self._makers = {index: each for each in graph.operators for index in each.outputs}

    def node(self, tensor: int) -> Node[int] | None:
        """Return the operator that makes a tensor; None for an input of the model."""
        operator = self._makers.get(tensor)
        if operator is None:
            return None
        return Node(
            "?" if operator.custom else _KINDS.get(operator.name, "?"),
            tuple(index for index in operator.inputs if index >= 0),
            self.shape(tensor),
            clamp=_CLAMPS.get(operator.fused_activation),
        )

    def constant(self, tensor: int) -> Array | None:
        """Return the real values of a constant, flat; None for any other tensor."""
        own = self._graph.tensors[tensor]
        stored = values_of(own) if own.constant else None
        if stored is None or len(own.scales) > 1:
            return None
        if own.scales:
            return (stored.astype(np.float64) - own.zero_points[0]) * own.scales[0]
        return stored

    def shape(self, tensor: int) -> Shape | None:
        """Return a tensor's shape; what is open is stored as 1."""
        return self._graph.tensors[tensor].shape


def ranges_of_file(content: bytes) -> dict[int, Range]:
    """Return the bounds of each output of a .tflite file, by its tensor's index.

    Raises:
        ModelError: the content is no TFLite model.
    """
    graph = read(content)[0]
    computation = FileComputation(graph)
    return {index: range_of(computation, index) for index in graph.outputs}
