"""The operators of a Keras model, traced for inference, as a computation to find bounds of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.model.endings.kinds import Loop, Node, Range, Shape
from shrink.model.endings.ranges import range_of
from shrink.tflite.serving import traced

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_LOOPS = frozenset({"While", "StatelessWhile"})
_MOST_CONSTANTS = 4096


@dataclass(frozen=True)
class _Place:
    """A tensor of a traced function, in one of its calls.

    Attributes:
        tensor: its `ref()`.
        call: the call that its function is in, None for the outermost.
    """

    tensor: Any
    call: _Call | None = None


@dataclass(frozen=True)
class _Call:
    """A call of a traced function by another."""

    graph: Any
    arguments: tuple[_Place, ...]


class TracedComputation:
    """A concrete function of TensorFlow; calls inside it are looked into."""

    def node(self, place: _Place) -> Node | None:
        """Return the operator that makes a tensor; None for an input of the model."""
        tensor, call = place.tensor.deref(), place.call
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

    def constant(self, place: _Place) -> np.ndarray[Any, Any] | None:
        """Return the values of a small constant, None for any other tensor."""
        tensor = place.tensor.deref()
        if tensor.op.type == "Placeholder" and place.call is not None:
            found = self._argument(tensor, place.call)
            return self.constant(found.inputs[0]) if found is not None and found.inputs else None
        if tensor.shape.num_elements() is None or tensor.shape.num_elements() > _MOST_CONSTANTS:
            return None
        return tf.get_static_value(tensor)

    def shape(self, place: _Place) -> Shape | None:
        """Return a tensor's shape with the batch, None where not even the rank is known."""
        return _shape(place.tensor.deref())

    def _argument(self, tensor: Any, call: _Call | None) -> Node | None:
        if call is None:
            captured = any(tensor is each for each in tensor.graph.internal_captures)
            return Node("ReadVariableOp", (), _shape(tensor)) if captured else None
        for own, given in zip(call.graph.inputs, call.arguments, strict=False):
            if own is tensor:
                return Node("Identity", (given,), _shape(tensor))
        return None

    def _looped(self, tensor: Any, call: _Call | None) -> Node:
        graph, begin = _function(tensor.op, "body"), _inputs(tensor.op, call)
        if graph is None:
            return Node("?", (), _shape(tensor))
        # Of the values in a turn only the loop's analysis knows: they are no arguments.
        turn = _Call(graph, ())
        arguments = tuple(_Place(each.ref(), turn) for each in graph.inputs)
        results = tuple(_Place(each.ref(), turn) for each in graph.outputs)
        lists = frozenset(
            place for place, each in enumerate(graph.inputs) if each.dtype == tf.variant
        )
        loop = Loop(arguments, results, tensor.value_index, lists)
        return Node("While", begin, _shape(tensor), loop=loop)

    def _called(self, tensor: Any, call: _Call | None) -> Node:
        graph, arguments = _function(tensor.op, "f"), _inputs(tensor.op, call)
        if graph is None:
            return Node("?", (), _shape(tensor))
        inner = _Place(graph.outputs[tensor.value_index].ref(), _Call(graph, arguments))
        return Node("Identity", (inner,), _shape(tensor))


def output_ranges(model: keras.Model) -> list[Range]:
    """Return the bounds of each output of a functional model, in inference mode."""
    specs = [tf.TensorSpec(each.shape, each.dtype) for each in model.inputs]

    def ask(*given: Any) -> list[Any]:
        inputs = tf.nest.pack_sequence_as(model._nested_inputs, list(given))
        return [tf.identity(each) for each in tf.nest.flatten(model(inputs, training=False))]

    function = traced(ask).get_concrete_function(*specs)
    computation = TracedComputation()
    return [range_of(computation, _Place(each.ref())) for each in function.graph.outputs]


def _function(operation: Any, attribute: str) -> Any:
    """Return the graph of the function that an operator calls, None where it is not there."""
    function = operation.graph._get_function(operation.get_attr(attribute).name)
    return getattr(function, "graph", None)


def _inputs(operation: Any, call: _Call | None) -> tuple[_Place, ...]:
    return tuple(_Place(each.ref(), call) for each in operation.inputs)


def _shape(tensor: Any) -> Shape | None:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
