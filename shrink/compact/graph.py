"""A .tflite file of one subgraph, as a graph that passes can rewrite.

Tensors and operators are values that graphs share: a pass makes a new graph, and leaves the one
that it was given as it was. What a pass does not touch is written as it was read.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.tflite.litert_twin import DECODE, in_rank
from shrink.tflite.model import (
    MALFORMED,
    OPERATOR_NAMES,
    PLAN_ENTRY,
    Subgraph,
    corrupt,
    new_code,
    packed,
    read,
    text,
    unpacked,
)
from shrink.tflite.offline_plan import ONLINE, with_plan

ITEM_BYTES = {
    schema.TensorType.INT8: 1,
    schema.TensorType.UINT8: 1,
    schema.TensorType.BOOL: 1,
    schema.TensorType.INT16: 2,
    schema.TensorType.FLOAT16: 2,
    schema.TensorType.INT32: 4,
    schema.TensorType.FLOAT32: 4,
    schema.TensorType.INT64: 8,
}
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


_TABLES: dict[str, type] = {
    "CONV_2D": schema.Conv2DOptionsT,
    "DEPTHWISE_CONV_2D": schema.DepthwiseConv2DOptionsT,
    "AVERAGE_POOL_2D": schema.Pool2DOptionsT,
    "MAX_POOL_2D": schema.Pool2DOptionsT,
    "CONCATENATION": schema.ConcatenationOptionsT,
    "TRANSPOSE_CONV": schema.TransposeConvOptionsT,
    "RESIZE_BILINEAR": schema.ResizeBilinearOptionsT,
    "RESIZE_NEAREST_NEIGHBOR": schema.ResizeNearestNeighborOptionsT,
}
"""The options of operators that passes look into."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor.

    Attributes:
        shape: all dimensions, the batch among them.
        type: of `schema.TensorType`.
        stored: the file's own description, whose type, quantization and name it keeps; None for a
            constant that a pass added.
        data: values of a constant that a pass added, as they are stored.
        constant: whether the file holds its values.
        loose: whether it lies apart from what it is cut from, and from what it is put into.
    """

    shape: tuple[int, ...]
    type: int
    stored: schema.TensorT | None = None
    data: Array | None = None
    constant: bool = False
    loose: bool = False

    @property
    def name(self) -> str:
        """As the file has it; empty where it has none."""
        return "" if self.stored is None else text(self.stored.name)

    @functools.cached_property
    def size_bytes(self) -> int:
        """The bytes of its values, without alignment."""
        return math.prod(self.shape) * ITEM_BYTES[self.type]

    @property
    def row_bytes(self) -> int:
        """The bytes of one row of a tensor (1, height, width, channels)."""
        return self.size_bytes // self.shape[1]


def mean_the_same(one: Tensor, other: Tensor) -> bool:
    """Whether values of two tensors of the file stand for the same numbers."""
    if one.stored is None or other.stored is None or one.type != other.type:
        return False
    given, found = one.stored.quantization, other.stored.quantization
    if given is None or found is None:
        return given is found
    same = np.array_equal(given.scale, found.scale)
    return same and np.array_equal(given.zeroPoint, found.zeroPoint)


Options: TypeAlias = (
    "schema.Conv2DOptionsT | schema.DepthwiseConv2DOptionsT | schema.Pool2DOptionsT | "
    "schema.ConcatenationOptionsT | schema.ResizeNearestNeighborOptionsT"
)
"""An operator's table of the schema, of those that passes look into; None where it has none."""


class OperatorCode(NamedTuple):
    """What an operator is: of `schema.BuiltinOperator`, with the version of its kernel.

    A custom one, which passes alone can bring, has a name of its own.
    """

    builtin: int
    version: int
    custom: str = ""


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator.

    Attributes:
        code: what it is.
        inputs: tensors' indices; -1 for one left out.
        outputs: tensors' indices.
        options: the schema's table, or None.
        options_type: of `schema.BuiltinOptions`.
        stored: the file's own operator; None for one that a pass added.
    """

    code: OperatorCode
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Options = None
    options_type: int = 0
    stored: schema.OperatorT | None = None

    @property
    def name(self) -> str:
        """Of the schema, CONV_2D and so on; of a custom one, its own."""
        return self.code.custom or OPERATOR_NAMES[self.code.builtin]


@dataclass(frozen=True, eq=False)
class Graph:
    """A model.

    Attributes:
        tensors: that operators name by index; passes add some, and leave unread ones behind.
        operators: in the order in which they run.
        inputs: tensors' indices.
        outputs: tensors' indices.
        model: the file as it was read, for what no pass touches.
    """

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    model: schema.ModelT

    def is_activation(self, index: int) -> bool:
        """Whether an operator's input or output is a tensor of the arena."""
        return index >= 0 and not self.tensors[index].constant

    def activations(self, indices: Sequence[int]) -> list[int]:
        """Return those of an operator's inputs or outputs that are tensors of the arena."""
        return [index for index in indices if self.is_activation(index)]

    def values(self, index: int) -> Array:
        """Return the values of an int32 or int64 constant, in its shape."""
        tensor = self.tensors[index]
        if tensor.data is not None:
            return tensor.data
        assert tensor.stored is not None, "a constant is of the file, or has data"
        stored = self.model.buffers[tensor.stored.buffer].data
        dtype = "<i8" if tensor.type == schema.TensorType.INT64 else "<i4"
        return np.frombuffer(bytes(stored), dtype).reshape(tensor.shape)

    def used(self) -> list[int]:
        """Return the indices of the tensors that inputs, outputs and operators name, in order."""
        named = {*self.inputs, *self.outputs}
        for operator in self.operators:
            named.update(operator.inputs, operator.outputs)
        return sorted(named - {-1})

    def with_operators(self, operators: Sequence[Operator]) -> Graph:
        """Return the graph with other operators on the same tensors."""
        return dataclasses.replace(self, operators=tuple(operators))


def read_graph(content: bytes) -> Graph:
    """Return the graph of a .tflite file.

    Raises:
        ModelError: it is no TFLite model, or one that cannot be rewritten: several subgraphs,
            variables, unknown dimensions, operators with a state or effects.
    """
    subgraphs = read(content)
    if len(subgraphs) > 1:
        raise _refused(f"it has {len(subgraphs)} subgraphs")
    try:
        model = unpacked(content)
        _check(subgraphs[0])
        return _graph(model)
    except MALFORMED as error:
        raise corrupt(error) from error


def _refused(why: str) -> ModelError:
    return ModelError(
        f"this .tflite file cannot be compacted: {why}",
        hint="compact rewrites a single subgraph of known shapes, a batch of 1 and no state",
    )


def _check(subgraph: Subgraph) -> None:
    for operator in subgraph.operators:
        if operator.custom and operator.name == DECODE:
            raise _refused(
                f"its kernels are stored for {DECODE} already; compact the file that it was made of"
            )
        if operator.custom or operator.name in _STATEFUL:
            raise _refused(f"{operator.name} is an operator whose effects are not known")
    for index, tensor in enumerate(subgraph.tensors):
        name = tensor.name or index
        if tensor.variable:
            raise _refused(f"tensor {name} is a variable, which keeps state between examples")
        if tensor.open_dimensions:
            raise _refused(f"tensor {name} has dimensions that are not known")


def _graph(model: schema.ModelT) -> Graph:
    subgraph = model.subgraphs[0]
    tensors = tuple(_tensor(model, stored) for stored in subgraph.tensors)
    operators = tuple(_operator(model, stored) for stored in subgraph.operators or [])
    inputs, outputs = _indices(subgraph.inputs), _indices(subgraph.outputs)
    graph = Graph(tensors, operators, inputs, outputs, model)
    _check_order(graph)
    _check_tables(graph)
    return graph


def _tensor(model: schema.ModelT, stored: schema.TensorT) -> Tensor:
    data = model.buffers[stored.buffer].data
    constant = data is not None and len(data) > 0
    if stored.type not in ITEM_BYTES and not constant:
        raise _refused(f"tensor {text(stored.name)} is of a type that is not known")
    return Tensor(_indices(stored.shape), stored.type, stored, None, constant)


def _operator(model: schema.ModelT, stored: schema.OperatorT) -> Operator:
    code = model.operatorCodes[stored.opcodeIndex]
    return Operator(
        OperatorCode(code.builtinCode, code.version),
        _indices(stored.inputs),
        _indices(stored.outputs),
        stored.builtinOptions,
        stored.builtinOptionsType,
        stored,
    )


def _indices(stored: Sequence[int] | None) -> tuple[int, ...]:
    return () if stored is None else tuple(int(value) for value in stored)


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
        wanted = _TABLES.get(operator.name)
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
        ModelError: the plan is wrong; see `shrink.tflite.offline_plan`.
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

    def model(self) -> schema.ModelT:
        """Return the model, a copy; buffers are shared."""
        model = copy.copy(self._graph.model)
        subgraph = copy.copy(model.subgraphs[0])
        subgraph.tensors = [self._tensor(self._graph.tensors[index]) for index in self._kept]
        codes = list(dict.fromkeys(operator.code for operator in self._graph.operators))
        subgraph.operators = [self._operator(o, codes) for o in self._graph.operators]
        subgraph.inputs = self._places(self._graph.inputs)
        subgraph.outputs = self._places(self._graph.outputs)
        model.subgraphs = [subgraph]
        model.operatorCodes = [new_code(*code) for code in codes]
        kept = [one for one in model.signatureDefs or [] if self._holds(one)]
        model.signatureDefs = [self._signature(one) for one in kept]
        model.metadata = self._metadata()
        model.buffers = self._buffers
        return model

    def _places(self, indices: Sequence[int]) -> Array:
        return np.array([self._place[index] for index in indices], np.int32)

    def _tensor(self, tensor: Tensor) -> schema.TensorT:
        stored = schema.TensorT() if tensor.stored is None else copy.copy(tensor.stored)
        if tensor.data is not None:
            stored.type, stored.buffer = tensor.type, self._buffer_of(tensor.data)
        else:
            stored.buffer = self._moved_buffer(stored.buffer) if tensor.constant else 0
        stored.quantization = in_rank(stored.quantization, len(tensor.shape))
        if tensor.stored is None or tensor.shape != _indices(tensor.stored.shape):
            stored.shape, stored.shapeSignature = np.array(tensor.shape, np.int32), None
            stored.name = None
        return stored

    def _buffer_of(self, data: Array) -> int:
        content = np.ascontiguousarray(data).tobytes()
        if content not in self._added:
            self._added[content] = self._new_buffer(content)
        return self._added[content]

    def _new_buffer(self, content: bytes) -> int:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(content, np.uint8)
        self._buffers.append(buffer)
        return len(self._buffers) - 1

    def _moved_buffer(self, index: int) -> int:
        if index not in self._buffer_place:
            self._buffer_place[index] = len(self._buffers)
            self._buffers.append(self._stored_buffers[index])
        return self._buffer_place[index]

    def _operator(self, operator: Operator, codes: list[OperatorCode]) -> schema.OperatorT:
        stored = schema.OperatorT() if operator.stored is None else copy.copy(operator.stored)
        stored.opcodeIndex = codes.index(operator.code)
        stored.inputs = self._places(operator.inputs)
        stored.outputs = self._places(operator.outputs)
        stored.builtinOptions = operator.options
        stored.builtinOptionsType = operator.options_type
        return stored

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
            entry.buffer = self._moved_buffer(entry.buffer)
        return kept
