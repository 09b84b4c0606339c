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


def row_bytes(tensor: Tensor) -> int:
    """Return the bytes of one row of a tensor (1, height, width, channels)."""
    return tensor.size_bytes // tensor.shape[1]


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
    content = packed(_Writer(graph).model())
    if offsets is None:
        return content
    return with_plan(content, [offsets.get(index, ONLINE) for index in graph.used()])


class _Writer:
    """Numbers tensors and buffers anew, those alone that something reads."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._kept = graph.used()
        self._place = {index: place for place, index in enumerate(self._kept)} | {-1: -1}
        self._stored_buffers = graph.model.buffers
        self._buffers = [self._stored_buffers[0]]
        self._buffer_place = {0: 0}
        self._added: dict[bytes, int] = {}
        self._codes: dict[tuple[str, int, bool], int] = {}

    def model(self) -> schema.ModelT:
        """Return the model, a copy; buffers are shared."""
        model = copy.copy(self._graph.model)
        subgraph = copy.copy(model.subgraphs[0])
        subgraph.tensors = [self._tensor(self._graph.tensors[index]) for index in self._kept]
        subgraph.operators = [self._operator(operator) for operator in self._graph.operators]
        subgraph.inputs = self._places(self._graph.inputs)
        subgraph.outputs = self._places(self._graph.outputs)
        model.subgraphs = [subgraph]
        model.operatorCodes = [self._code(*code) for code in self._codes]
        kept = [one for one in model.signatureDefs or [] if self._holds(one)]
        model.signatureDefs = [self._signature(one) for one in kept]
        model.metadata = self._metadata()
        model.buffers = self._buffers
        return model

    def _places(self, indices: Sequence[int]) -> Array:
        return np.array([self._place[index] for index in indices], np.int32)

    def _tensor(self, tensor: Tensor) -> schema.TensorT:
        stored = schema.TensorT() if tensor.stored is None else copy.copy(tensor.stored)
        stored.type = getattr(schema.TensorType, tensor.dtype)
        stored.buffer = 0
        if tensor.constant:
            own = tensor.buffer >= 0
            stored.buffer = self._moved(tensor.buffer) if own else self._buffer_of(tensor.data)
        stored.quantization = in_rank(stored.quantization, len(tensor.shape))
        if tensor.stored is None or tensor.shape != _shape(tensor.stored):
            stored.shape, stored.shapeSignature = np.array(tensor.shape, np.int32), None
            stored.name = None
        return stored

    def _buffer_of(self, data: Array) -> int:
        content = data.tobytes()
        if content not in self._added:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(content, np.uint8)
            self._buffers.append(buffer)
            self._added[content] = len(self._buffers) - 1
        return self._added[content]

    def _moved(self, index: int) -> int:
        if index not in self._buffer_place:
            self._buffer_place[index] = len(self._buffers)
            self._buffers.append(self._stored_buffers[index])
        return self._buffer_place[index]

    def _operator(self, operator: Operator) -> schema.OperatorT:
        stored = schema.OperatorT() if operator.stored is None else copy.copy(operator.stored)
        code = (operator.name, operator.version, operator.custom)
        stored.opcodeIndex = self._codes.setdefault(code, len(self._codes))
        stored.inputs = self._places(operator.inputs)
        stored.outputs = self._places(operator.outputs)
        if operator.options is not None:
            kind = type(operator.options).__name__.removesuffix("T")
            stored.builtinOptions = operator.options
            stored.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        return stored

    @staticmethod
    def _code(name: str, version: int, custom: bool) -> schema.OperatorCodeT:
        if custom:
            return new_code(schema.BuiltinOperator.CUSTOM, version, name)
        return new_code(getattr(schema.BuiltinOperator, name), version)

    def _holds(self, signature: schema.SignatureDefT) -> bool:
        """Return whether all tensors of a signature are written.

        Tools that put other inputs before those of a file leave its signature behind as it was.
        """
        named = (*(signature.inputs or []), *(signature.outputs or []))
        return all(one.tensorIndex in self._place for one in named)

    def _signature(self, signature: schema.SignatureDefT) -> schema.SignatureDefT:
        moved = copy.copy(signature)
        for field in ("inputs", "outputs"):
            maps = [copy.copy(one) for one in getattr(moved, field) or []]
            for one in maps:
                one.tensorIndex = self._place[one.tensorIndex]
            setattr(moved, field, maps)
        return moved

    def _metadata(self) -> list[schema.MetadataT]:
        entries = [copy.copy(stored) for stored in self._graph.model.metadata or []]
        kept = [entry for entry in entries if text(entry.name) != PLAN_ENTRY]
        for entry in kept:
            entry.buffer = self._moved(entry.buffer)
        return kept


def _shape(stored: schema.TensorT) -> tuple[int, ...]:
    return () if stored.shape is None else tuple(int(size) for size in stored.shape)
