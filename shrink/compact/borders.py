"""Inputs and outputs of uint8 and float32, made int8.

Files made for phones or by older tools take uint8 or float32 and begin with a QUANTIZE, and end
with one or with a DEQUANTIZE. A firmware that has int8 at hand needs neither the operators nor,
where it is float32, four times the memory. The int8 tensor behind the converting operator becomes
the input or output: of uint8 where it is the same values less 128, of float32 with the reported
scale and zero point.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shrink.base.types import Array
from shrink.compact.graph import Graph
from shrink.compact.passes import without_unread
from shrink.contract.compaction import Int8Border
from shrink.tflite.model import Tensor

_NAMES = {"UINT8": "uint8", "FLOAT32": "float32"}


class Bordered(NamedTuple):
    """A graph with other inputs and outputs.

    Attributes:
        graph: the rewritten one.
        borders: those that are int8 now.
        left: why others are not, a line each.
    """

    graph: Graph
    borders: tuple[Int8Border, ...] = ()
    left: tuple[str, ...] = ()

    def as_given(self, examples: Sequence[Array]) -> list[Array]:
        """Return inputs (n, ...) of this graph as those of the graph that was given."""
        inputs = {border.place: border for border in self.borders if border.side == "input"}
        return [
            _as_given(inputs[position], values) if position in inputs else values
            for position, values in enumerate(examples)
        ]


def _as_given(border: Int8Border, values: Array) -> Array:
    """Return int8 values (...) as the given file takes them."""
    wide = values.astype(np.int32)
    if border.given_type == "uint8":
        return (wide + 128).astype(np.uint8)
    return np.float32(border.scale) * (wide - border.zero_point).astype(np.float32)


def with_int8_borders(graph: Graph) -> Bordered:
    """Return the graph with int8 in place of uint8 and float32 at inputs and outputs.

    An input or output keeps its type unless one QUANTIZE or DEQUANTIZE separates it from an int8
    tensor; uint8 also needs the same scale and a zero point 128 higher.
    """
    found = Bordered(graph)
    for side, ends in (("input", graph.inputs), ("output", graph.outputs)):
        for position, index in enumerate(ends):
            outer = graph.tensors[index]
            if outer.dtype == "INT8":
                continue
            inner = _behind(found.graph, side, index) if outer.dtype in _NAMES else None
            if inner is None:
                line = f"{side} {_name(outer)} stays {outer.dtype.lower()}: {_why(side, outer)}"
                found = found._replace(left=(*found.left, line))
                continue
            tensor = found.graph.tensors[inner]
            border = Int8Border(
                side=side,
                place=position,
                name=_name(outer),
                given_type=_NAMES[outer.dtype],
                scale=tensor.scales[0],
                zero_point=tensor.zero_points[0],
            )
            replaced = _replaced(found.graph, side, position, index, inner)
            found = Bordered(replaced, (*found.borders, border), found.left)
    return found._replace(graph=without_unread(found.graph)) if found.borders else found


def _why(side: str, outer: Tensor) -> str:
    """Return why an input or output cannot become int8."""
    if outer.dtype not in _NAMES:
        return "only uint8 and float32 can become int8"
    reads, is_float = side == "input", outer.dtype == "FLOAT32"
    name = "DEQUANTIZE" if is_float and not reads else "QUANTIZE"
    scale = "" if is_float else " with the same scale"
    ends = "to int8 reads" if reads else "from int8 writes"
    return f"no single {name} {ends} it{scale}"


def _behind(graph: Graph, side: str, index: int) -> int | None:
    """Return the int8 tensor that can take the place of an input or output."""
    reads, names = side == "input", ("QUANTIZE", "DEQUANTIZE")
    users = [o for o in graph.operators if index in (o.inputs if reads else o.outputs)]
    if len(users) != 1 or users[0].name not in names or (reads and index in graph.outputs):
        return None
    inner = users[0].outputs[0] if reads else users[0].inputs[0]
    outer, tensor = graph.tensors[index], graph.tensors[inner]
    if inner in (*graph.inputs, *graph.outputs) or not graph.is_activation(inner):
        return None
    if tensor.dtype != "INT8" or len(tensor.scales) != 1 or len(tensor.zero_points) != 1:
        return None
    shifted = (tensor.scales, (tensor.zero_points[0] + 128,))
    return inner if outer.dtype == "FLOAT32" or outer.quantization == shifted else None


def _replaced(graph: Graph, side: str, position: int, outer: int, inner: int) -> Graph:
    """Return a graph with one more int8 input or output, under the name that it had before."""
    ends = {"input": list(graph.inputs), "output": list(graph.outputs)}
    ends[side][position] = inner
    tensor, given = graph.tensors[inner], graph.tensors[outer]
    assert tensor.stored is not None, "the file has both"
    assert given.stored is not None, "the file has both"
    stored = copy.copy(tensor.stored)
    stored.name = given.stored.name
    tensors = list(graph.tensors)
    tensors[inner] = dataclasses.replace(tensor, name=given.name, stored=stored)
    model = copy.copy(graph.model)
    model.signatureDefs = [copy.copy(one) for one in model.signatureDefs or []]
    for signature in model.signatureDefs:
        maps = [copy.copy(one) for one in getattr(signature, f"{side}s") or []]
        for one in maps:
            one.tensorIndex = inner if one.tensorIndex == outer else one.tensorIndex
        setattr(signature, f"{side}s", maps)
    gone = inner if side == "input" else None
    return dataclasses.replace(
        graph,
        tensors=tuple(tensors),
        operators=tuple(o for o in graph.operators if gone not in o.outputs),
        inputs=tuple(ends["input"]),
        outputs=tuple(ends["output"]),
        model=model,
    )


def _name(tensor: Tensor) -> str:
    return tensor.name or "without a name"
