"""A .tflite file of one subgraph, as a graph that passes can rewrite.

Tensors and operators are values that graphs share: a pass makes a new graph, and leaves the one
that it was given as it was. What a pass does not touch is written as it was read.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.tflite.litert_twin import in_rank
from shrink.tflite.memory import ONLINE, with_plan
from shrink.tflite.model import (
    PLAN_ENTRY,
    Operator,
    Subgraph,
    Tensor,
    new_code,
    packed,
    text,
    values,
)


@dataclass(frozen=True, eq=False)
class Graph(Subgraph):
    """A model's only subgraph; passes add tensors to it, and leave unread ones behind.

    Attributes:
        model: the file as it was read, for what no pass touches.
    """

    model: schema.ModelT

    @property
    def origins(self) -> tuple[int | None, ...]:
        """The number, in the file, of what each operator is or is a tile of; None for others."""
        numbers = {id(one): n for n, one in enumerate(self.model.subgraphs[0].operators)}
        return tuple(numbers.get(id(operator.stored)) for operator in self.operators)

    def values(self, index: int) -> Array:
        """Return the values of an integer constant, in its shape."""
        found = values(self.tensors[index])
        assert found is not None, "integers are known"
        return found.reshape(self.tensors[index].shape)

    def with_operators(self, operators: Sequence[Operator]) -> Graph:
        """Return the graph with other operators on the same tensors."""
        return dataclasses.replace(self, operators=tuple(operators))


def mean_the_same(one: Tensor, other: Tensor) -> bool:
    """Whether values of two tensors stand for the same numbers."""
    return (one.dtype, one.quantization) == (other.dtype, other.quantization)


def write_graph(graph: Graph, offsets: Mapping[int, int] | None = None) -> bytes:
    """Return the .tflite file of a graph, without what nothing reads.

    Args:
        graph: to write.
        offsets: bytes from the arena's start by tensor, written as a memory plan; TFLite Micro
            places the activations that are not named. None for no plan.

    Raises:
        ModelError: the plan is wrong; see `shrink.tflite.memory`.
    """
    model = _Writer(graph).model()
    if offsets is None:
        return packed(model)
    return with_plan(model, [offsets.get(index, ONLINE) for index in graph.used()])


class _Writer:
    """Numbers tensors and buffers anew, those alone that something reads."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._kept = graph.used()
        self._number = {index: number for number, index in enumerate(self._kept)} | {-1: -1}
        self._buffers: list[schema.BufferT] = []
        self._buffer_number: dict[int | bytes, int] = {}
        self._buffer(0, graph.model.buffers[0])
        self._codes: dict[tuple[str, int, bool], int] = {}

    def model(self) -> schema.ModelT:
        """Return the model, a copy; buffers are shared."""
        model = copy.copy(self._graph.model)
        subgraph = copy.copy(model.subgraphs[0])
        subgraph.tensors = [self._tensor(self._graph.tensors[index]) for index in self._kept]
        subgraph.operators = [self._operator(operator) for operator in self._graph.operators]
        subgraph.inputs = self._renumbered(self._graph.inputs)
        subgraph.outputs = self._renumbered(self._graph.outputs)
        model.subgraphs = [subgraph]
        model.operatorCodes = [
            new_code(
                schema.BuiltinOperator.CUSTOM if custom else getattr(schema.BuiltinOperator, name),
                version,
                name * custom,
            )
            for name, version, custom in self._codes
        ]
        model.signatureDefs = [*filter(None, map(self._signature, model.signatureDefs or []))]
        model.metadata = [
            copy.copy(one) for one in model.metadata or [] if text(one.name) != PLAN_ENTRY
        ]
        for entry in model.metadata:
            entry.buffer = self._buffer(entry.buffer, self._graph.model.buffers[entry.buffer])
        model.buffers = self._buffers
        return model

    def _renumbered(self, indices: Sequence[int]) -> Array:
        return np.array([self._number[index] for index in indices], np.int32)

    def _tensor(self, tensor: Tensor) -> schema.TensorT:
        stored = schema.TensorT() if tensor.stored is None else copy.copy(tensor.stored)
        stored.type = getattr(schema.TensorType, tensor.dtype)
        stored.buffer = 0
        if tensor.constant and tensor.buffer >= 0:
            stored.buffer = self._buffer(tensor.buffer, self._graph.model.buffers[tensor.buffer])
        elif tensor.constant:
            added = schema.BufferT()
            added.data = tensor.data
            stored.buffer = self._buffer(tensor.data.tobytes(), added)
        stored.quantization = in_rank(stored.quantization, len(tensor.shape))
        if tensor.stored is None or list(tensor.shape) != list(
            [] if tensor.stored.shape is None else tensor.stored.shape
        ):
            stored.shape, stored.shapeSignature = np.array(tensor.shape, np.int32), None
            stored.name = None
        return stored

    def _buffer(self, key: int | bytes, buffer: schema.BufferT) -> int:
        """Return the new number of a buffer, by its number in the file or by its content."""
        if key not in self._buffer_number:
            self._buffer_number[key] = len(self._buffers)
            self._buffers.append(buffer)
        return self._buffer_number[key]

    def _operator(self, operator: Operator) -> schema.OperatorT:
        stored = schema.OperatorT() if operator.stored is None else copy.copy(operator.stored)
        code = (operator.name, operator.version, operator.custom)
        stored.opcodeIndex = self._codes.setdefault(code, len(self._codes))
        stored.inputs = self._renumbered(operator.inputs)
        stored.outputs = self._renumbered(operator.outputs)
        if operator.options is not None:
            kind = type(operator.options).__name__.removesuffix("T")
            stored.builtinOptions = operator.options
            stored.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        return stored

    def _signature(self, signature: schema.SignatureDefT) -> schema.SignatureDefT | None:
        """Return a signature of the new numbers; None where it names a tensor that is gone.

        Tools that put other inputs before those of a file leave its signature behind as it was.
        """
        moved = copy.copy(signature)
        for field in ("inputs", "outputs"):
            maps = [copy.copy(one) for one in getattr(moved, field) or []]
            for one in maps:
                if one.tensorIndex not in self._number:
                    return None
                one.tensorIndex = self._number[one.tensorIndex]
            setattr(moved, field, maps)
        return moved
