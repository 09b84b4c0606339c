"""A .tflite file as plain objects, by the schema that LiteRT ships."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

DTYPES = {
    schema.TensorType.FLOAT32: "float32",
    schema.TensorType.FLOAT16: "float16",
    schema.TensorType.INT32: "int32",
    schema.TensorType.UINT8: "uint8",
    schema.TensorType.INT64: "int64",
    schema.TensorType.STRING: "string",
    schema.TensorType.BOOL: "bool",
    schema.TensorType.INT16: "int16",
    schema.TensorType.COMPLEX64: "complex64",
    schema.TensorType.INT8: "int8",
    schema.TensorType.FLOAT64: "float64",
    schema.TensorType.INT4: "int4",
}
_NAMES = {
    value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)
}


@dataclass(frozen=True)
class Tensor:
    """One tensor.

    Attributes:
        shape: dimensions; -1 where the signature leaves one open.
        values: of a constant, dense and unpacked, as stored (not dequantized); None otherwise.
        zero_point: the stored number that stands for 0.
        buffer: where the file holds the values; equal constants may share one.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    values: np.ndarray | None
    variable: bool
    zero_point: int = 0
    buffer: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def zeros(self) -> int:
        """Number of elements of a constant that stand for 0."""
        return 0 if self.values is None else int(np.sum(self.values == self.zero_point))


@dataclass(frozen=True)
class Operator:
    """One operator with its tensors; an input that is left out is None."""

    name: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    options: Any
    constants: list[np.ndarray | None] = field(default_factory=list)


@dataclass(frozen=True)
class Graph:
    """A subgraph."""

    tensors: list[Tensor]
    operators: list[Operator]
    inputs: list[Tensor]
    outputs: list[Tensor]


@dataclass(frozen=True)
class File:
    """A .tflite file.

    Attributes:
        graphs: all subgraphs; the first is the entry.
        signature: names of inputs and outputs of the first signature, by tensor index.
    """

    graphs: list[Graph]
    signature_inputs: dict[int, str]
    signature_outputs: dict[int, str]


def read(path: Path) -> File:
    """Read a file."""
    content = path.read_bytes()
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
    graphs = [_graph(model, subgraph, content) for subgraph in model.subgraphs]
    inputs: dict[int, str] = {}
    outputs: dict[int, str] = {}
    for signature in (model.signatureDefs or [])[:1]:
        inputs = {m.tensorIndex: _text(m.name) for m in signature.inputs or []}
        outputs = {m.tensorIndex: _text(m.name) for m in signature.outputs or []}
    return File(graphs, inputs, outputs)


def _graph(model: Any, subgraph: Any, content: bytes) -> Graph:
    tensors = [_tensor(model, i, t, content) for i, t in enumerate(subgraph.tensors)]
    operators = [
        Operator(
            _operator_name(model.operatorCodes[op.opcodeIndex]),
            [tensors[i] if i >= 0 else None for i in _indices(op.inputs)],
            [tensors[i] for i in _indices(op.outputs)],
            op.builtinOptions,
        )
        for op in subgraph.operators or []
    ]
    ends = ([tensors[i] for i in _indices(side)] for side in (subgraph.inputs, subgraph.outputs))
    return Graph(tensors, operators, *ends)


def _indices(values: Any) -> list[int]:
    return [] if values is None else [int(v) for v in values]


def _operator_name(code: Any) -> str:
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    return _text(code.customCode) if code.customCode else _NAMES[number]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _tensor(model: Any, index: int, tensor: Any, content: bytes) -> Tensor:
    shape = tuple(_indices(tensor.shape))
    dtype = DTYPES.get(tensor.type, f"type {tensor.type}")
    raw = _data(model.buffers[tensor.buffer], content)
    values = None if raw is None or dtype == "string" else _values(raw, dtype, shape, tensor)
    name, variable = _text(tensor.name), bool(tensor.isVariable)
    points = _indices(tensor.quantization.zeroPoint) if tensor.quantization else []
    point = points[0] if len(points) == 1 else 0  # of each channel it is 0
    return Tensor(index, name, shape, dtype, values, variable, point, tensor.buffer)


def _data(buffer: Any, content: bytes) -> bytes | None:
    if buffer.data is not None and len(buffer.data):
        return bytes(bytearray(buffer.data))
    if getattr(buffer, "offset", 0) > 1:
        return content[buffer.offset : buffer.offset + buffer.size]
    return None


def _values(raw: bytes, dtype: str, shape: tuple[int, ...], tensor: Any) -> np.ndarray | None:
    if dtype == "int4":
        packed = np.frombuffer(raw, np.int8)
        pairs = np.stack([(packed << 4).astype(np.int8) >> 4, packed >> 4], -1).ravel()
        return pairs[: math.prod(shape)].reshape(shape)
    if dtype.startswith("type"):
        return None
    flat = np.frombuffer(raw, dtype)
    return _dense(flat, shape, tensor.sparsity) if tensor.sparsity else flat.reshape(shape)


def _dense(flat: np.ndarray, shape: tuple[int, ...], sparsity: Any) -> np.ndarray:
    """Undo `SparsityParameters`: a traversal order, blocks, dense and CSR dimensions."""
    order = _indices(sparsity.traversalOrder)
    blocks = _indices(sparsity.blockMap)
    rank = len(shape)
    sizes = list(shape)
    inner = [d.denseSize for d in sparsity.dimMetadata[rank:]]
    for which, dimension in enumerate(blocks):
        sizes[dimension] //= inner[which]
    filled = np.zeros(shape, flat.dtype)
    for place, at in enumerate(_places(sparsity.dimMetadata, 0, 0, ())):
        position = dict(zip(order, at, strict=True))
        index = [position[d] for d in range(rank)]
        for which, dimension in enumerate(blocks):
            index[dimension] = index[dimension] * inner[which] + position[rank + which]
        filled[tuple(index)] = flat[place]
    return filled


def _places(levels: Any, level: int, parent: int, at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the position of each stored value, in storage order."""
    if level == len(levels):
        yield at
        return
    here = levels[level]
    if here.format == schema.DimensionType.DENSE:
        for i in range(here.denseSize):
            yield from _places(levels, level + 1, parent * here.denseSize + i, (*at, i))
        return
    segments, indices = _indices(here.arraySegments.values), _indices(here.arrayIndices.values)
    for place in range(segments[parent], segments[parent + 1]):
        yield from _places(levels, level + 1, place, (*at, indices[place]))
