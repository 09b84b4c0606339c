"""Constants with many zeros stored by their other values alone, and made dense again by DENSIFY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.tflite.model import Sparsity, add_tensor_like, operator_code, packed, unpacked

_STORED: dict[int, np.dtype[Any]] = {
    schema.TensorType.FLOAT32: np.dtype("<f4"),
    schema.TensorType.FLOAT16: np.dtype("<f2"),
    schema.TensorType.INT8: np.dtype("i1"),
}
# LiteRT 2.3's XNNPACK refuses dense layers of int8 weights that were made dense, and convolutions
# of them whose activations are float32.
# Other operators than these were given float16 weights of which nothing was right.
_LAYERS = {
    schema.BuiltinOperator.CONV_2D,
    schema.BuiltinOperator.DEPTHWISE_CONV_2D,
    schema.BuiltinOperator.FULLY_CONNECTED,
}
_DENSE_LAYER = schema.BuiltinOperator.FULLY_CONNECTED
_WIDENS = schema.BuiltinOperator.DEQUANTIZE
_WEIGHTS = 1
# An operator, a tensor with its name, and the metadata of each dimension; a scale and a zero point.
_OVERHEAD_BYTES, _SCALE_BYTES = 400, 12


def with_sparse_constants(content: bytes) -> bytes:
    """Return the model with each constant stored sparsely that takes fewer bytes so.

    Looked at are the float32, float16 and symmetric int8 weights of convolutions and dense layers.
    The values other than 0 are kept, with their places in the last dimension traversed, in the
    order of dimensions that takes the fewest bytes (one compressed level of the format of Kjolstad
    et al. 2017, "The Tensor Algebra Compiler"). The runtime makes them dense again when it loads
    the model, so that outputs are the same to the bit.

    Args:
        content: the .tflite file.
    """
    model = unpacked(content)
    graph = model.subgraphs[0]
    for index in range(len(graph.tensors)):
        dense = _constant(model, graph, index)
        if dense is None:
            continue
        axes = range(dense.ndim)
        orders = ((*(axis for axis in axes if axis != last), last) for last in axes)
        encodings = (_encode(dense, order) for order in orders)
        sparse = min(encodings, key=lambda encoding: encoding.size_bytes)
        quantization = graph.tensors[index].quantization
        scales = None if quantization is None else quantization.scale
        overhead = _OVERHEAD_BYTES + _SCALE_BYTES * (0 if scales is None else len(scales))
        if sparse.size_bytes + overhead < dense.nbytes:
            _make_sparse(model, graph, index, sparse)
    return packed(model)


@dataclass(frozen=True)
class _Encoding:
    """A tensor's values other than 0, (n,), and where they belong."""

    values: Array
    sparsity: Sparsity

    @property
    def size_bytes(self) -> int:
        """Bytes of the values and of their indices."""
        return self.values.nbytes + self.sparsity.indices.nbytes + self.sparsity.starts.nbytes


def _encode(dense: Array, order: tuple[int, ...]) -> _Encoding:
    rows = np.ascontiguousarray(dense.transpose(order)).reshape(-1, dense.shape[order[-1]])
    row, column = np.nonzero(rows)
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(rows)))])
    return _Encoding(rows[row, column], Sparsity(order, _narrow(starts), _narrow(column)))


def _narrow(numbers: Array) -> Array:
    largest = int(numbers.max(initial=0))
    for dtype in (np.uint8, np.uint16):
        if largest <= np.iinfo(dtype).max:
            return numbers.astype(dtype)
    return numbers.astype(np.int32)


def _constant(model: schema.ModelT, graph: schema.SubGraphT, index: int) -> Array | None:
    """Return a tensor's values where it can be stored sparsely."""
    tensor = graph.tensors[index]
    data = model.buffers[tensor.buffer].data
    holders = sum(t.buffer == tensor.buffer for g in model.subgraphs for t in g.tensors)
    if tensor.type not in _STORED or data is None or not len(data) or holders > 1:
        return None
    scaled = tensor.quantization
    symmetric = scaled is None or scaled.zeroPoint is None or not np.any(scaled.zeroPoint)
    readers = [operator for operator in graph.operators if index in operator.inputs]
    plain = len(tensor.shape) > 1 and tensor.sparsity is None and symmetric
    if not (plain and readers and all(_reads_sparse(model, graph, o, index) for o in readers)):
        return None
    dense = np.frombuffer(data.tobytes(), _STORED[tensor.type]).reshape(tensor.shape)
    return dense if dense.any() else None  # a tensor of no stored value would be no constant


def _reads_sparse(
    model: schema.ModelT, graph: schema.SubGraphT, operator: schema.OperatorT, index: int
) -> bool:
    """Whether the runtime runs the operator when DENSIFY writes this input of it."""
    code = model.operatorCodes[operator.opcodeIndex].builtinCode
    if code == _WIDENS:
        (widened,) = operator.outputs
        readers = [o for o in graph.operators if widened in o.inputs]
        return all(_has_weights(model, reader, widened) for reader in readers)
    if not _has_weights(model, operator, index):
        return False
    activations, weights = (graph.tensors[i].type for i in operator.inputs[: _WEIGHTS + 1])
    if weights != schema.TensorType.INT8:
        return True
    return code != _DENSE_LAYER and activations == schema.TensorType.INT8


def _has_weights(model: schema.ModelT, operator: schema.OperatorT, index: int) -> bool:
    """Whether a tensor is the weights of a convolution or a dense layer, and nothing else."""
    code = model.operatorCodes[operator.opcodeIndex].builtinCode
    positions = [position for position, i in enumerate(operator.inputs) if i == index]
    return code in _LAYERS and positions == [_WEIGHTS]


def _make_sparse(
    model: schema.ModelT, graph: schema.SubGraphT, index: int, sparse: _Encoding
) -> None:
    """Store a tensor sparsely, and give its readers what DENSIFY makes of it."""
    tensor = graph.tensors[index]
    dense = add_tensor_like(graph, index, ";dense")
    graph.tensors[dense].buffer = 0
    readers = [number for number, o in enumerate(graph.operators) if index in o.inputs]
    for number in readers:
        operator = graph.operators[number]
        operator.inputs = [dense if i == index else i for i in operator.inputs]
    densify = schema.OperatorT()
    densify.opcodeIndex = operator_code(model, schema.BuiltinOperator.DENSIFY, version=1)
    densify.inputs, densify.outputs = [index], [dense]
    graph.operators.insert(min(readers), densify)
    model.buffers[tensor.buffer].data = np.frombuffer(sparse.values.tobytes(), np.uint8)
    tensor.sparsity = _parameters(sparse.sparsity, tensor.shape)


def _parameters(sparse: Sparsity, shape: Sequence[int]) -> schema.SparsityParametersT:
    parameters = schema.SparsityParametersT()
    parameters.traversalOrder = list(sparse.order)
    parameters.dimMetadata = []
    for axis in sparse.order[:-1]:
        level = schema.DimensionMetadataT()
        level.format, level.denseSize = schema.DimensionType.DENSE, shape[axis]
        parameters.dimMetadata.append(level)
    level = schema.DimensionMetadataT()
    level.format = schema.DimensionType.SPARSE_CSR
    level.arraySegmentsType, level.arraySegments = _vector(sparse.starts)
    level.arrayIndicesType, level.arrayIndices = _vector(sparse.indices)
    parameters.dimMetadata.append(level)
    return parameters


def _vector(
    numbers: Array,
) -> tuple[int, schema.Uint8VectorT | schema.Uint16VectorT | schema.Int32VectorT]:
    kind, made = {
        "uint8": (schema.SparseIndexVector.Uint8Vector, schema.Uint8VectorT),
        "uint16": (schema.SparseIndexVector.Uint16Vector, schema.Uint16VectorT),
        "int32": (schema.SparseIndexVector.Int32Vector, schema.Int32VectorT),
    }[numbers.dtype.name]
    vector = made()
    vector.values = numbers
    return kind, vector
