"""Files that TFLite Micro runs and LiteRT refuses, in a form that LiteRT runs.

Constants in a form of TFLM_DECODE (see `shrink.compact.decode`) become dense, and quantization
along a dimension that a tensor does not have moves to the first one. All figures of such files,
weights and multiply-accumulates among them, are those of the form that LiteRT runs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.tflite.model import MALFORMED, add_buffer, packed, read, text, unpacked

DECODE = "TFLM_DECODE"
"""The name of the custom operator; a firmware's resolver registers it by `AddDecode`."""
NOT_IN_LITERT = (
    f"LiteRT does not know {DECODE}, in whose form TFLite Micro reads this file's weights"
)
DECODE_TABLE, DECODE_MASK = 0, 2
DECODE_HEADER_BYTES = 16
DECODE_VERSION = 1
DECODE_MOST_BITS = 7
_MOST_DENSE_BYTES = 1 << 28
OUT_OF_RANK = (
    "LiteRT refuses this file: tensors are quantized along a dimension that they do not have, as "
    "converters of 2020 wrote biases"
)


def litert_twin(content: bytes) -> bytes:
    """Return a file that computes the same and that LiteRT runs; the same one where it does.

    Raises:
        ModelError: it is no TFLite model, or a constant cannot be decoded.
    """
    content = dense_twin(content)
    if not _is_out_of_rank(content):
        return content
    model = unpacked(content)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            rank = 0 if tensor.shape is None else len(tensor.shape)
            tensor.quantization = in_rank(tensor.quantization, rank)
    return packed(model)


def not_in_litert(content: bytes) -> str:
    """Return why LiteRT does not run a file as it is; empty where nothing of this kind is known.

    Raises:
        ModelError: it is no TFLite model.
    """
    if has_decode(content):
        return NOT_IN_LITERT
    return OUT_OF_RANK if _is_out_of_rank(content) else ""


def in_rank(
    stored: schema.QuantizationParametersT | None, rank: int
) -> schema.QuantizationParametersT | None:
    """Return a tensor's quantization along a dimension that it has.

    Converters of 2020 gave biases the dimension of their kernels, 3: LiteRT refuses such files,
    which TFLite Micro runs.
    """
    if stored is None or stored.quantizedDimension < max(1, rank):
        return stored
    moved = copy.copy(stored)
    moved.quantizedDimension = 0
    return moved


def _is_out_of_rank(content: bytes) -> bool:
    return any(
        bool(tensor.scales) and tensor.quantized_dimension >= max(1, len(tensor.shape))
        for graph in read(content)
        for tensor in graph.tensors
    )


def decoded(stored: Array, ancillary: Array, shape: Sequence[int], scales: int, axis: int) -> Array:
    """Return the int8 constant that TFLM_DECODE's reference kernel writes.

    Args:
        stored: uint8, the mask or the indices.
        ancillary: uint8, how to read them.
        shape: of the constant.
        scales: how many scales it has.
        axis: along which they lie; the first or the last.

    Raises:
        ModelError: the form is not known, or what it needs is not there.
    """
    count = math.prod(shape)
    if not 0 < count <= _MOST_DENSE_BYTES:
        raise _wrong(f"a constant of {count} values")
    if len(ancillary) < DECODE_HEADER_BYTES or not ancillary[1] == ancillary[4] == DECODE_VERSION:
        raise _wrong("a header of another version")
    if ancillary[0] == DECODE_MASK:
        return _from_mask(stored, ancillary[DECODE_HEADER_BYTES:], count).reshape(shape)
    if ancillary[0] != DECODE_TABLE:
        raise _wrong(f"form {ancillary[0]}, which is neither a mask nor a table")
    bits, distance = int(ancillary[5]) & DECODE_MOST_BITS, int(ancillary[6])
    if not bits or 8 * len(stored) < bits * count:
        raise _wrong("fewer indices than values")
    weights = 1 << np.arange(bits - 1, -1, -1)
    indices = np.unpackbits(stored, count=bits * count).reshape(count, bits) @ weights
    places = indices.reshape(shape)
    if scales > 1:
        if axis not in (0, len(shape) - 1) or shape[axis] != scales:
            raise _wrong("scales along another axis than the first or the last")
        along = [1] * len(shape)
        along[axis] = scales
        places = places + distance * np.arange(scales).reshape(along)
    table = ancillary[DECODE_HEADER_BYTES:].view(np.int8)
    if not len(table) or int(places.max()) >= len(table):
        raise _wrong("an index beyond its table")
    return table[places]


def _from_mask(stored: Array, values: Array, count: int) -> Array:
    if 8 * len(stored) < count:
        raise _wrong("a bit mask that is too short")
    mask = np.unpackbits(stored, count=count).astype(bool)
    if int(mask.sum()) > len(values):
        raise _wrong("fewer values than its bit mask says")
    found = np.zeros(count, np.int8)
    found[mask] = values.view(np.int8)[: int(mask.sum())]
    return found


def _wrong(why: str) -> ModelError:
    return ModelError(f"the weights of this .tflite file cannot be decoded: {why}")


def has_decode(content: bytes) -> bool:
    """Whether a file holds constants in a form of TFLM_DECODE.

    Raises:
        ModelError: the content is no TFLite model.
    """
    if DECODE.encode() not in content:
        return False
    return any(one.custom and one.name == DECODE for g in read(content) for one in g.operators)


def dense_twin(content: bytes) -> bytes:
    """Return the file with its constants dense and without TFLM_DECODE, for LiteRT to run.

    Args:
        content: a .tflite file; returned as it is where it has no such operator.

    Raises:
        ModelError: it is no TFLite model, or a constant cannot be decoded.
    """
    if not has_decode(content):
        return content
    try:
        model = unpacked(content)
        for graph in model.subgraphs:
            _decode_all(model, graph)
        _drop_code(model)
        return packed(model)
    except MALFORMED as error:
        raise _wrong(str(error)) from error


def _decode_all(model: schema.ModelT, graph: schema.SubGraphT) -> None:
    kept = []
    for operator in graph.operators:
        if text(model.operatorCodes[operator.opcodeIndex].customCode) != DECODE:
            kept.append(operator)
            continue
        if len(operator.inputs) != 2 * len(operator.outputs):
            raise _wrong(f"a {DECODE} with {len(operator.inputs)} inputs")
        for place, index in enumerate(operator.outputs):
            stored, ancillary = (
                _bytes(model, graph, operator.inputs[2 * place + one]) for one in (0, 1)
            )
            _fill(model, graph.tensors[index], stored, ancillary)
    graph.operators = kept


def _bytes(model: schema.ModelT, graph: schema.SubGraphT, index: int) -> Array:
    data = model.buffers[graph.tensors[index].buffer].data if index >= 0 else None
    if data is None:
        raise _wrong(f"a {DECODE} that reads what the file does not hold")
    return np.asarray(data, np.uint8)


def _fill(model: schema.ModelT, tensor: schema.TensorT, stored: Array, ancillary: Array) -> None:
    if tensor.type != schema.TensorType.INT8:
        raise _wrong("a constant of another type than int8")
    quantization = tensor.quantization
    scales = quantization.scale if quantization is not None else None
    count = 0 if scales is None else len(scales)
    axis = 0 if quantization is None else quantization.quantizedDimension
    shape = [int(size) for size in tensor.shape]
    values = decoded(stored, ancillary, shape, count, int(axis))
    tensor.buffer = add_buffer(model, values.reshape(-1).view(np.uint8))


def _drop_code(model: schema.ModelT) -> None:
    """Remove the operator's code, whose presence alone makes some runtimes refuse a file."""
    kept = [n for n, code in enumerate(model.operatorCodes) if text(code.customCode) != DECODE]
    places = {old: new for new, old in enumerate(kept)}
    for graph in model.subgraphs:
        for operator in graph.operators:
            operator.opcodeIndex = places[operator.opcodeIndex]
    model.operatorCodes = [model.operatorCodes[one] for one in kept]
