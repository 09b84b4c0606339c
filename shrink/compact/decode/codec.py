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

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shrink.base.types import Array
from shrink.tflite.litert_twin import (
    DECODE_HEADER_BYTES,
    DECODE_MASK,
    DECODE_MOST_BITS,
    DECODE_TABLE,
    DECODE_VERSION,
)


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
    if len(found) <= 1 << DECODE_MOST_BITS:
        indices = np.searchsorted(found, values)
        distance = 0 if channel_axis is not None else len(found)
        yield _tables(indices, found[None], distance, "one table")
    if channel_axis is None:
        return
    channels = np.moveaxis(values, channel_axis, 0).reshape(values.shape[channel_axis], -1)
    tables = [np.unique(channel) for channel in channels]
    longest = max(map(len, tables))
    if longest <= 1 << DECODE_MOST_BITS:
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
    ancillary = [_header(DECODE_MASK), flat[flat != 0].view(np.uint8)]
    return Encoded("bit mask", np.packbits(flat != 0), np.concatenate(ancillary))


def _tables(indices: Array, tables: Array, distance: int, name: str) -> Encoded:
    """Return indices of as few bits as they need, most significant bit first, and their tables."""
    bits = max(1, int(tables.shape[1] - 1).bit_length())
    places = np.arange(bits - 1, -1, -1)
    stored = np.packbits((indices.reshape(-1, 1) >> places & 1).astype(np.uint8).reshape(-1))
    header = _header(DECODE_TABLE)
    header[5], header[6] = bits, distance
    ancillary = np.concatenate([header, tables.astype(np.int8).reshape(-1).view(np.uint8)])
    return Encoded(f"{name}, {bits} bit{'s' * (bits > 1)}", stored, ancillary)


def _header(form: int) -> Array:
    header = np.zeros(DECODE_HEADER_BYTES, np.uint8)
    header[0], header[1], header[4] = form, DECODE_VERSION, DECODE_VERSION
    return header
