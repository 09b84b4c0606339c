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
            _as_given(inputs[place], values) if place in inputs else values
            for place, values in enumerate(examples)
        ]


def _as_given(border: Int8Border, values: Array) -> Array:
    """Return int8 values (...) as the given file takes them."""
    wide = values.astype(np.int32)
    if border.given_type == "uint8":
        return (wide + 128).astype(np.uint8)
    return np.float32(border.scale) * (wide - border.zero_point).astype(np.float32)


def with_int8_borders(graph: Graph) -> Bordered:
    """Return the graph with int8 in place of uint8 and float32 at inputs and outputs.

    An output keeps its type where int8 values are not what the file quantizes or dequantizes, or
    differ from its own by more than 128; an input likewise.
    """
    found = Bordered(graph)
    for side, ends in (("input", graph.inputs), ("output", graph.outputs)):
        for place, index in enumerate(ends):
            outer = graph.tensors[index]
            if outer.dtype not in _NAMES:
                continue
            inner = _behind(found.graph, side, index)
            if isinstance(inner, str):
                line = f"{side} {_name(outer)} stays {_NAMES[outer.dtype]}: {inner}"
                found = found._replace(left=(*found.left, line))
                continue
            scale = _scale(found.graph.tensors[inner])
            assert scale is not None, "checked before"
            border = Int8Border(
                side=side,
                place=place,
                name=_name(outer),
                given_type=_NAMES[outer.dtype],
                scale=scale[0],
                zero_point=scale[1],
            )
            replaced = _replaced(found.graph, side, place, index, inner)
            found = Bordered(replaced, (*found.borders, border), found.left)
    return found


def _behind(graph: Graph, side: str, index: int) -> int | str:
    """Return the int8 tensor that can take the place of an input or output, or why none can."""
    if side == "input":
        users = [operator for operator in graph.operators if index in operator.inputs]
        others = sorted({operator.name for operator in users} - {"QUANTIZE"})
        if others or len(users) != 1 or index in graph.outputs:
            if others:
                return f"{', '.join(others)} reads it"
            if index in graph.outputs:
                return "it is an output, too"
            return "several operators read it" if users else "no operator reads it"
        inner = users[0].outputs[0]
    else:
        users = [operator for operator in graph.operators if index in operator.outputs]
        if not users or users[0].name not in ("QUANTIZE", "DEQUANTIZE"):
            return f"{users[0].name if users else 'nothing'} writes it"
        inner = users[0].inputs[0]
    if inner in (*graph.inputs, *graph.outputs) or not graph.is_activation(inner):
        return "the tensor behind it is an input or another output, too"
    own, other = (_scale(graph.tensors[one]) for one in (index, inner))
    if graph.tensors[inner].dtype != "INT8" or other is None:
        return "what stands behind it is not int8 of one scale"
    is_float = graph.tensors[index].dtype == "FLOAT32"
    if not is_float and (own is None or (own[0], own[1] - 128) != other):
        return "its values are rescaled, not only shifted by 128"
    return inner


def _scale(tensor: Tensor) -> tuple[float, int] | None:
    """Return scale and zero point of all of a tensor."""
    if len(tensor.scales) != 1 or len(tensor.zero_points) != 1:
        return None
    return tensor.scales[0], tensor.zero_points[0]


def _replaced(graph: Graph, side: str, place: int, outer: int, inner: int) -> Graph:
    """Return a graph with one more int8 input or output, under the name that it had before."""
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    (inputs if side == "input" else outputs)[place] = inner
    needed = {*outputs, *(index for operator in graph.operators for index in operator.inputs)}
    gone = inner if side == "input" else None if outer in needed else outer
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
    return dataclasses.replace(
        graph,
        tensors=tuple(tensors),
        operators=tuple(o for o in graph.operators if gone not in o.outputs),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        model=model,
    )


def _name(tensor: Tensor) -> str:
    return tensor.name or "without a name"
