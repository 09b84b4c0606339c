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

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.tflite.litert_twin import DECODE, in_rank
from shrink.tflite.memory import ONLINE, with_plan
from shrink.tflite.model import (
    MALFORMED,
    PLAN_ENTRY,
    Operator,
    Subgraph,
    Tensor,
    corrupt,
    new_code,
    opened,
    packed,
    text,
    values,
)

KNOWN_TYPES = {"INT8", "UINT8", "BOOL", "INT16", "FLOAT16", "INT32", "FLOAT32", "INT64"}
"""Types of activations whose bytes runtimes agree on."""
_STATEFUL = {
    "CALL",
    "CALL_ONCE",
    "IF",
    "WHILE",
    "VAR_HANDLE",
    "READ_VARIABLE",
    "ASSIGN_VARIABLE",
    "CUSTOM",
    "DELEGATE",
    "RANDOM_UNIFORM",
    "RANDOM_STANDARD_NORMAL",
    "MULTINOMIAL",
    "HASHTABLE",
    "HASHTABLE_FIND",
    "HASHTABLE_IMPORT",
}
_OPTIONS: dict[str, type] = {
    "CONV_2D": schema.Conv2DOptionsT,
    "DEPTHWISE_CONV_2D": schema.DepthwiseConv2DOptionsT,
    "AVERAGE_POOL_2D": schema.Pool2DOptionsT,
    "MAX_POOL_2D": schema.Pool2DOptionsT,
    "CONCATENATION": schema.ConcatenationOptionsT,
    "TRANSPOSE_CONV": schema.TransposeConvOptionsT,
    "RESIZE_BILINEAR": schema.ResizeBilinearOptionsT,
    "RESIZE_NEAREST_NEIGHBOR": schema.ResizeNearestNeighborOptionsT,
}
"""The options of operators that passes read."""


@dataclass(frozen=True, eq=False)
class Graph(Subgraph):
    """A model's only subgraph; passes add tensors to it, and leave unread ones behind.

    Attributes:
        model: the file as it was read, for what no pass touches.
    """

    model: schema.ModelT

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


def read_graph(content: bytes) -> Graph:
    """Return the graph of a .tflite file.

    Raises:
        ModelError: it is no TFLite model, or one that cannot be rewritten: several subgraphs,
            variables, unknown dimensions, operators with a state or effects.
    """
    model, subgraphs = opened(content)
    if len(subgraphs) > 1:
        raise _refused(f"it has {len(subgraphs)} subgraphs")
    try:
        (given,) = subgraphs
        graph = Graph(given.tensors, given.operators, given.inputs, given.outputs, model)
        _check_kinds(graph)
        _check_order(graph)
        _check_tables(graph)
        return graph
    except MALFORMED as error:
        raise corrupt(error) from error


def _refused(why: str) -> ModelError:
    return ModelError(
        f"this .tflite file cannot be compacted: {why}",
        hint="compact rewrites a single subgraph of known shapes, a batch of 1 and no state",
    )


def _check_kinds(graph: Graph) -> None:
    for operator in graph.operators:
        if operator.custom and operator.name == DECODE:
            raise _refused(
                f"its kernels are stored for {DECODE} already; compact the file that it was made of"
            )
        if not operator.custom and not hasattr(schema.BuiltinOperator, operator.name):
            raise corrupt(f"an operator of the unknown kind {operator.name}")
        if operator.custom or operator.name in _STATEFUL:
            raise _refused(f"{operator.name} is an operator whose effects are not known")
    for index, tensor in enumerate(graph.tensors):
        name = tensor.name or index
        if tensor.variable:
            raise _refused(f"tensor {name} is a variable, which keeps state between examples")
        if tensor.open_dimensions:
            raise _refused(f"tensor {name} has dimensions that are not known")
        if tensor.dtype not in KNOWN_TYPES and not tensor.constant:
            raise _refused(f"tensor {name} is of a type that is not known")


def _check_order(graph: Graph) -> None:
    """Raise `ModelError` unless every activation is written once, and before it is read."""
    written = set(graph.inputs)
    for operator in graph.operators:
        if not written.issuperset(graph.activations(operator.inputs)):
            raise _refused(f"{operator.name} reads a tensor that nothing has written")
        outputs = operator.outputs
        if written & set(outputs) or len(set(outputs)) < len(outputs) or -1 in outputs:
            raise _refused(f"{operator.name} writes a tensor that is written already")
        if any(not graph.is_activation(index) for index in outputs):
            raise _refused(f"{operator.name} writes a constant")
        written.update(outputs)
    if any(graph.is_activation(index) and index not in written for index in graph.outputs):
        raise _refused("nothing writes one of its outputs")


def _check_tables(graph: Graph) -> None:
    """Raise `ModelError` where a table of the file does not belong to what names it."""
    model = graph.model
    for operator in graph.operators:
        wanted = _OPTIONS.get(operator.name)
        if wanted is not None and not isinstance(operator.options, (wanted, type(None))):
            raise corrupt(f"options of {operator.name}")
    if any(not 0 <= entry.buffer < len(model.buffers) for entry in model.metadata or []):
        raise corrupt("metadata in a buffer that is not there")


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
