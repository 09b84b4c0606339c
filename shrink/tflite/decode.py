"""Constants as TFLite Micro's operator TFLM_DECODE reads them: fewer bytes of flash.

Before each operator that reads such a constant stands a TFLM_DECODE with two inputs, what is stored
and how to read it, which writes the dense tensor into the arena. How to read it begins with 16
bytes: the form (0 table, 2 bit mask), version 1, two of nothing, and from byte 4 on version 1 of
the form, then for tables the bits of an index and the distance from one channel's table to the
next. Tables, or the values that are not zero, stand behind them.

Channels are those of the output's scales: with several, the kernel goes on by that distance from
one table to the next, without an error where there is no other. One table for all of them is
therefore written with a distance of 0.

Source: tensorflow/tflite-micro 90b983c, tensorflow/lite/micro/kernels/decode.cc,
decode_state_prune.cc and decode_state_lut.cc.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.tflite.model import MALFORMED, packed, read, unpacked

DECODE = "TFLM_DECODE"
"""The name of the custom operator; a firmware's resolver registers it by `AddDecode`."""
NOT_IN_LITERT = (
    f"LiteRT does not know {DECODE}, in whose form TFLite Micro reads this file's weights"
)

_TABLE, _MASK = 0, 2
_HEADER_BYTES = 16
_VERSION = 1
_MOST_BITS = 7
_MOST_DENSE_BYTES = 1 << 28


class Encoded(NamedTuple):
    """A constant as TFLM_DECODE reads it.

    Attributes:
        form: what it is, for people.
        stored: uint8, the bit mask or the indices.
        ancillary: uint8, the header, and the values or tables behind it.
    """

    form: str
    stored: Array
    ancillary: Array

    @property
    def size_bytes(self) -> int:
        """Of both, without alignment."""
        return len(self.stored) + len(self.ancillary)


def smallest_form(values: Array, channel_axis: int | None) -> Encoded:
    """Return the smallest form of an int8 constant whose zero point is 0.

    Args:
        values: int8, of the tensor's shape.
        channel_axis: the first or the last axis where there is a scale for each of its channels;
            None for one scale.
    """
    return min(_forms(values, channel_axis), key=lambda one: one.size_bytes)


def _forms(values: Array, channel_axis: int | None) -> Iterator[Encoded]:
    yield bit_mask(values)
    found = np.unique(values)
    if len(found) <= 1 << _MOST_BITS:
        indices = np.searchsorted(found, values)
        distance = 0 if channel_axis is not None else len(found)
        yield _tables(indices, found[None], distance, "one table")
    if channel_axis is None:
        return
    channels = np.moveaxis(values, channel_axis, 0).reshape(values.shape[channel_axis], -1)
    tables = [np.unique(channel) for channel in channels]
    longest = max(map(len, tables))
    if longest <= 1 << _MOST_BITS:
        rows = [np.searchsorted(t, c) for t, c in zip(tables, channels, strict=True)]
        moved = np.moveaxis(values, channel_axis, 0).shape
        indices = np.moveaxis(np.stack(rows).reshape(moved), 0, channel_axis)
        filled = np.zeros((len(tables), longest), np.int8)
        for row, table in zip(filled, tables, strict=True):
            row[: len(table)] = table
        yield _tables(indices, filled, longest, "a table a channel")


def bit_mask(values: Array) -> Encoded:
    """Return an int8 constant as a bit for each value, and those that are not zero."""
    flat = values.reshape(-1)
    ancillary = [_header(_MASK), flat[flat != 0].view(np.uint8)]
    return Encoded("bit mask", np.packbits(flat != 0), np.concatenate(ancillary))


def _tables(indices: Array, tables: Array, distance: int, name: str) -> Encoded:
    """Return indices of as few bits as they need, most significant bit first, and their tables."""
    bits = max(1, int(tables.shape[1] - 1).bit_length())
    places = np.arange(bits - 1, -1, -1)
    stored = np.packbits((indices.reshape(-1, 1) >> places & 1).astype(np.uint8).reshape(-1))
    header = _header(_TABLE)
    header[5], header[6] = bits, distance
    ancillary = np.concatenate([header, tables.astype(np.int8).reshape(-1).view(np.uint8)])
    return Encoded(f"{name}, {bits} bit{'s' * (bits > 1)}", stored, ancillary)


def _header(form: int) -> Array:
    header = np.zeros(_HEADER_BYTES, np.uint8)
    header[0], header[1], header[4] = form, _VERSION, _VERSION
    return header


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
    if len(ancillary) < _HEADER_BYTES or not ancillary[1] == ancillary[4] == _VERSION:
        raise _wrong("a header of another version")
    if ancillary[0] == _MASK:
        return _from_mask(stored, ancillary[_HEADER_BYTES:], count).reshape(shape)
    if ancillary[0] != _TABLE:
        raise _wrong(f"form {ancillary[0]}, which is neither a mask nor a table")
    bits, distance = int(ancillary[5]) & _MOST_BITS, int(ancillary[6])
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
    table = ancillary[_HEADER_BYTES:].view(np.int8)
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
        if _custom_name(model.operatorCodes[operator.opcodeIndex]) != DECODE:
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
    buffer = schema.BufferT()
    buffer.data = values.reshape(-1).view(np.uint8)
    model.buffers.append(buffer)
    tensor.buffer = len(model.buffers) - 1


def _drop_code(model: schema.ModelT) -> None:
    """Remove the operator's code, whose presence alone makes some runtimes refuse a file."""
    kept = [n for n, code in enumerate(model.operatorCodes) if _custom_name(code) != DECODE]
    places = {old: new for new, old in enumerate(kept)}
    for graph in model.subgraphs:
        for operator in graph.operators:
            operator.opcodeIndex = places[operator.opcodeIndex]
    model.operatorCodes = [model.operatorCodes[one] for one in kept]


def _custom_name(code: schema.OperatorCodeT) -> str:
    return (code.customCode or b"").decode("utf-8", "replace")
