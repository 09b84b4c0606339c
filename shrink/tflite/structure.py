"""Read the structure of a .tflite file: operators, tensors, constants, quantization."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import flatbuffers.table
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.base.file_kinds import other_format
from shrink.base.types import Array

Read = TypeVar("Read")
_IDENTIFIER = b"TFL3"
_AGAIN = "copy the file again, or convert the model again"
MALFORMED = (
    struct.error,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)


def corrupt(why: object) -> ModelError:
    """Return what is wrong with a .tflite file that is read, but is not what it should be."""
    return ModelError(f"the TFLite file is corrupt ({why})", hint=_AGAIN)


def _names(enumeration: type) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


_INDEX_VECTORS = {
    schema.SparseIndexVector.Int32Vector: schema.Int32Vector,
    schema.SparseIndexVector.Uint16Vector: schema.Uint16Vector,
    schema.SparseIndexVector.Uint8Vector: schema.Uint8Vector,
}
_CALLS = {
    schema.BuiltinOptions.WhileOptions: schema.WhileOptions,
    schema.BuiltinOptions.IfOptions: schema.IfOptions,
}
_MOST_DIMENSIONS = 8
_OPERATOR_NAMES = _names(schema.BuiltinOperator)
_DTYPE_NAMES = _names(schema.TensorType)
_OPTION_NAMES = _names(schema.BuiltinOptions)
_ACTIVATION_NAMES = _names(schema.ActivationFunctionType)


@dataclass(frozen=True)
class Sparsity:
    """Where the stored values of a sparse tensor belong, by rows of its last dimension traversed.

    Attributes:
        order: of the dimensions; all but the last are dense.
        starts: of each row among the values, and the end of the last, (rows + 1,).
        indices: of each value in its row, (values,).
    """

    order: tuple[int, ...]
    starts: Array
    indices: Array


@dataclass(frozen=True)
class Tensor:
    """A tensor of a subgraph.

    Attributes:
        name: as stored.
        shape: as stored; an unknown dimension is 1 here.
        dtype: the schema's name: FLOAT32, FLOAT16, INT8, INT4, ...
        scales: one per tensor or per channel; empty where the tensor is not quantized.
        zero_points: as many as scales.
        buffer: index of the file's buffer that holds its values.
        data: uint8 array of the stored bytes; empty for anything but a constant.
        sparse: the values are stored compressed, and `shape` is the dense one.
        sparsity: where they belong; None for other forms, such as blocks.
        variable: keeps its value between invocations.
        open_dimensions: whether a dimension other than the first is known only when the model
            runs; `shape` has a 1 there.
        quantized_dimension: along which scales go; that of a bias may be one that it has not.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    buffer: int
    data: Array
    sparse: bool
    variable: bool
    sparsity: Sparsity | None = None
    open_dimensions: bool = False
    quantized_dimension: int = 0

    @property
    def constant(self) -> bool:
        """Whether the file holds its values."""
        return self.data.size > 0

    @property
    def elements(self) -> int:
        """The number of values of the dense tensor."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class Operator:
    """An operator of a subgraph.

    Attributes:
        name: CONV_2D and so on, or the name of a custom operator.
        custom: whether it is a custom operator.
        inputs: indices of tensors of the subgraph; -1 for one left out.
        outputs: indices of tensors of the subgraph.
        subgraphs: that it runs: the condition and the body of a WHILE, the branches of an IF.
        fused_activation: the schema's name of what is applied to the outputs, such as RELU6.
        axis: of a CONCATENATION, a GATHER and others that have one; else 0.
    """

    name: str
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraphs: tuple[int, ...] = ()
    fused_activation: str = "NONE"
    axis: int = 0


@dataclass(frozen=True)
class Subgraph:
    """Tensors, operators in order of execution, and the indices of inputs and outputs."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read(content: bytes) -> tuple[Subgraph, ...]:
    """Return the subgraphs of a .tflite file; the first one is the model's entry.

    Raises:
        ModelError: the content is truncated, corrupt, or no TFLite model.
    """
    return _reading(content, lambda reader: reader.subgraphs())


def read_metadata(content: bytes, name: str) -> list[bytes]:
    """Return what the metadata entries of a name hold; few files have more than one.

    Raises:
        ModelError: the content is truncated, corrupt, or no TFLite model.
    """
    return _reading(content, lambda reader: reader.metadata(name))


def _reading(content: bytes, get: Callable[[_Reader], Read]) -> Read:
    if content[4:8] != _IDENTIFIER:
        raise ModelError("not a TFLite model: the identifier TFL3 is missing", hint=_AGAIN)
    try:
        return get(_Reader(content))
    except MALFORMED as error:
        short = isinstance(error, struct.error)
        why = "what it points to lies beyond its end" if short else error
        raise ModelError(f"the TFLite file is cut short or corrupt ({why})", hint=_AGAIN) from error


def read_file(path: Path) -> tuple[Subgraph, ...]:
    """Return the subgraphs of the .tflite file at `path`; see `read`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", subject=path) from error
    if content[4:8] != _IDENTIFIER and (other := other_format(path)):
        raise ModelError(f"not a TFLite model: {other}", subject=path, hint=_AGAIN)
    return read(content)


class _Reader:
    """Reads with a budget: in a corrupt file, lengths can be anything, and vectors can overlap."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._budget = 8 * len(content)
        self._model = schema.Model.GetRootAs(content, 0)
        self._codes = self._each(self._model.OperatorCodesLength(), self._model.OperatorCodes)
        self._buffers = self._each(self._model.BuffersLength(), self._model.Buffers)

    def subgraphs(self) -> tuple[Subgraph, ...]:
        """Return every subgraph of the file, the model's entry first."""
        graphs = self._each(self._model.SubgraphsLength(), self._model.Subgraphs)
        if not graphs:
            raise ValueError("it holds no subgraph")
        return tuple(self._subgraph(graph) for graph in graphs)

    def metadata(self, name: str) -> list[bytes]:
        """Return what the metadata entries of a name hold."""
        entries = self._each(self._model.MetadataLength(), self._model.Metadata)
        buffers = [entry.Buffer() for entry in entries if _text(entry.Name()) == name]
        return [self._data(self._buffers[buffer]).tobytes() for buffer in buffers]

    def _subgraph(self, graph: schema.SubGraph) -> Subgraph:
        tensors = self._each(graph.TensorsLength(), graph.Tensors)
        operators = self._each(graph.OperatorsLength(), graph.Operators)
        count = len(tensors)
        return Subgraph(
            tensors=tuple(self._tensor(tensor) for tensor in tensors),
            operators=tuple(self._operator(operator, count) for operator in operators),
            inputs=self._indices(graph.InputsLength(), graph.InputsAsNumpy, count),
            outputs=self._indices(graph.OutputsLength(), graph.OutputsAsNumpy, count),
        )

    def _operator(self, operator: schema.Operator, tensors: int) -> Operator:
        code = self._codes[operator.OpcodeIndex()]
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        custom = builtin == schema.BuiltinOperator.CUSTOM
        name = _text(code.CustomCode()) if custom else _OPERATOR_NAMES.get(builtin, str(builtin))
        return Operator(
            name=name,
            custom=custom,
            inputs=self._indices(operator.InputsLength(), operator.InputsAsNumpy, tensors),
            outputs=self._indices(operator.OutputsLength(), operator.OutputsAsNumpy, tensors),
            subgraphs=self._called(operator),
            fused_activation=_ACTIVATION_NAMES[_option(operator, "FusedActivationFunction")],
            axis=_option(operator, "Axis"),
        )

    def _called(self, operator: schema.Operator) -> tuple[int, ...]:
        if operator.BuiltinOptionsType() not in _CALLS:
            return ()
        options = _CALLS[operator.BuiltinOptionsType()]()
        table = operator.BuiltinOptions()
        options.Init(table.Bytes, table.Pos)
        if isinstance(options, schema.WhileOptions):
            called = (options.CondSubgraphIndex(), options.BodySubgraphIndex())
        else:
            called = (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
        if any(not 0 <= index < self._model.SubgraphsLength() for index in called):
            raise ValueError("an operator runs a subgraph that does not exist")
        return called

    def _tensor(self, tensor: schema.Tensor) -> Tensor:
        shape = self._numbers(tensor.ShapeLength(), tensor.ShapeAsNumpy)
        if any(size < 0 for size in shape):
            raise ValueError("a tensor has a negative dimension")
        quantization = tensor.Quantization()
        scales: tuple[float, ...] = ()
        zero_points: tuple[int, ...] = ()
        dimension = 0
        if quantization is not None and quantization.ScaleLength():
            q = quantization
            scales = tuple(map(float, self._numbers(q.ScaleLength(), q.ScaleAsNumpy)))
            zero_points = self._numbers(q.ZeroPointLength(), q.ZeroPointAsNumpy)
            dimension = int(q.QuantizedDimension())
        return Tensor(
            name=_text(tensor.Name()),
            shape=shape,
            dtype=_DTYPE_NAMES[tensor.Type()],
            scales=scales,
            zero_points=zero_points,
            buffer=tensor.Buffer(),
            data=self._data(self._buffers[tensor.Buffer()]),
            sparse=tensor.Sparsity() is not None,
            variable=bool(tensor.IsVariable()),
            sparsity=self._sparsity(tensor.Sparsity(), shape),
            open_dimensions=any(size < 0 for size in self._signature(tensor)[1:]),
            quantized_dimension=dimension,
        )

    def _signature(self, tensor: schema.Tensor) -> tuple[int, ...]:
        return self._numbers(tensor.ShapeSignatureLength(), tensor.ShapeSignatureAsNumpy)

    def _sparsity(
        self, stored: schema.SparsityParameters | None, shape: tuple[int, ...]
    ) -> Sparsity | None:
        if stored is None:
            return None
        order = self._numbers(stored.TraversalOrderLength(), stored.TraversalOrderAsNumpy)
        levels = self._each(stored.DimMetadataLength(), stored.DimMetadata)
        formats = [level.Format() for level in levels]
        dense, compressed = schema.DimensionType.DENSE, schema.DimensionType.SPARSE_CSR
        if formats != [dense] * (len(shape) - 1) + [compressed]:
            return None
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError(f"a sparse tensor has {len(shape)} dimensions")
        starts = self._union(levels[-1].ArraySegmentsType(), levels[-1].ArraySegments())
        indices = self._union(levels[-1].ArrayIndicesType(), levels[-1].ArrayIndices())
        if sorted(order) != list(range(len(shape))):
            raise ValueError("a sparse tensor does not name each of its dimensions once")
        rows = math.prod(shape[axis] for axis in order[:-1])
        steps = np.diff(starts)
        if len(starts) != rows + 1 or starts[0] or np.any(steps < 0) or starts[-1] != len(indices):
            raise ValueError("the rows of a sparse tensor do not follow each other")
        if np.any(indices < 0) or np.any(indices >= shape[order[-1]]):
            raise ValueError("a sparse tensor has values beyond its dimensions")
        return Sparsity(order, starts, indices)

    def _union(self, kind: int, table: flatbuffers.table.Table) -> Array:
        vector = _INDEX_VECTORS[kind]()
        vector.Init(table.Bytes, table.Pos)
        numbers = self._numbers(vector.ValuesLength(), vector.ValuesAsNumpy)
        return np.array(numbers, np.int64)

    def _data(self, buffer: schema.Buffer) -> Array:
        if buffer.Offset() > 1:  # a file of more than 2 GB keeps its weights behind the flatbuffer
            start, size = buffer.Offset(), buffer.Size()
            if start + size > len(self._content):
                raise ValueError("a buffer lies beyond the end")
            return np.frombuffer(self._content, np.uint8, size, start)
        if not buffer.DataLength():
            return np.zeros(0, np.uint8)
        return np.asarray(buffer.DataAsNumpy(), np.uint8)

    def _each(self, length: int, get: Callable[[int], Read]) -> list[Read]:
        self._spend(length)
        return [get(index) for index in range(length)]

    def _numbers(self, length: int, get: Callable[[], Array]) -> tuple[int, ...]:
        self._spend(length)
        return tuple(get().tolist()) if length else ()

    def _indices(self, length: int, get: Callable[[], Array], tensors: int) -> tuple[int, ...]:
        indices = self._numbers(length, get)
        if any(not -1 <= index < tensors for index in indices):
            raise ValueError("an operator names a tensor that does not exist")
        return indices

    def _spend(self, elements: int) -> None:
        self._budget -= elements
        if self._budget < 0:
            raise ValueError("its vectors are longer than the file")


def _option(operator: schema.Operator, name: str) -> int:
    """Return an option of an operator by the name of its getter; 0 where it has none."""
    table = operator.BuiltinOptions()
    options = getattr(schema, _OPTION_NAMES.get(operator.BuiltinOptionsType(), ""), None)
    if table is None or options is None or not hasattr(options, name):
        return 0
    own = options()
    own.Init(table.Bytes, table.Pos)
    return int(getattr(own, name)())


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
