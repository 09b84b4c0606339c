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
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.graph import Graph
from shrink.contract.compaction import Int8Border
from shrink.tflite.model import Operator, Tensor

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
    for place, index in enumerate(graph.inputs):
        if graph.tensors[index].dtype in _NAMES:
            found = _with_input(found, place, index)
    for place, index in enumerate(graph.outputs):
        if graph.tensors[index].dtype in _NAMES and index not in graph.inputs:
            found = _with_output(found, place, index)
    return found


def _with_input(found: Bordered, place: int, index: int) -> Bordered:
    graph = found.graph
    readers = [operator for operator in graph.operators if index in operator.inputs]
    if not readers or index in graph.outputs:
        return _left(found, "input", index, "nothing reads it" if not readers else "an output too")
    inner = [operator.outputs[0] for operator in readers]
    if any(operator.name != "QUANTIZE" for operator in readers):
        others = sorted({o.name for o in readers} - {"QUANTIZE"})
        return _left(found, "input", index, f"{', '.join(others)} reads it")
    if set(inner) & set(graph.outputs):
        return _left(found, "input", index, "its quantized tensor is an output")
    if why := _why_not(graph, index, inner):
        return _left(found, "input", index, why)
    moved = dict.fromkeys(inner[1:], inner[0])
    operators = [_reading(o, moved) for o in graph.operators if o not in readers]
    inputs = (*graph.inputs[:place], inner[0], *graph.inputs[place + 1 :])
    graph = dataclasses.replace(graph, operators=tuple(operators), inputs=inputs)
    return _renamed(found._replace(graph=graph), "input", place, index, inner[0])


def _with_output(found: Bordered, place: int, index: int) -> Bordered:
    graph = found.graph
    writer = next(operator for operator in graph.operators if index in operator.outputs)
    if writer.name not in ("QUANTIZE", "DEQUANTIZE"):
        return _left(found, "output", index, f"{writer.name} writes it")
    inner = writer.inputs[0]
    if inner in (*graph.inputs, *graph.outputs) or not graph.is_activation(inner):
        return _left(found, "output", index, "it is an input or another output, too")
    if why := _why_not(graph, index, [inner]):
        return _left(found, "output", index, why)
    outputs = (*graph.outputs[:place], inner, *graph.outputs[place + 1 :])
    readers = any(index in operator.inputs for operator in graph.operators)
    operators = [o for o in graph.operators if o is not writer or readers or index in outputs]
    graph = dataclasses.replace(graph, operators=tuple(operators), outputs=outputs)
    return _renamed(found._replace(graph=graph), "output", place, index, inner)


def _reading(operator: Operator, moved: Mapping[int, int]) -> Operator:
    inputs = tuple(moved.get(index, index) for index in operator.inputs)
    return operator if inputs == operator.inputs else dataclasses.replace(operator, inputs=inputs)


def _why_not(graph: Graph, outer: int, inner: Sequence[int]) -> str:
    """Return why int8 tensors cannot replace an input or output; empty where they can."""
    if any(graph.tensors[index].dtype != "INT8" for index in inner):
        return "what stands behind it is not int8"
    scales = {_scale(graph.tensors[index]) for index in inner}
    if len(scales) > 1 or None in scales:
        return "it is quantized in several ways" if len(scales) > 1 else "it has no scale"
    own, other = _scale(graph.tensors[outer]), scales.pop()
    if graph.tensors[outer].dtype == "FLOAT32":
        return ""
    shifted = own is not None and (own[0], own[1] - 128) == other
    return "" if shifted else "its values are rescaled, not only shifted by 128"


def _scale(tensor: Tensor) -> tuple[float, int] | None:
    """Return scale and zero point of all of a tensor."""
    if len(tensor.scales) != 1 or len(tensor.zero_points) != 1:
        return None
    return tensor.scales[0], tensor.zero_points[0]


def _left(found: Bordered, side: str, index: int, why: str) -> Bordered:
    tensor = found.graph.tensors[index]
    line = f"{side} {_name(tensor)} stays {_NAMES[tensor.dtype]}: {why}"
    return found._replace(left=(*found.left, line))


def _renamed(
    found: Bordered, side: Literal["input", "output"], place: int, outer: int, inner: int
) -> Bordered:
    """Return the graph with one more int8 input or output, under the name that it had before."""
    graph = found.graph
    tensor, given = graph.tensors[inner], graph.tensors[outer]
    scale = _scale(tensor)
    assert tensor.stored is not None, "the file has both"
    assert given.stored is not None, "the file has both"
    assert scale is not None, "checked before"
    stored = copy.copy(tensor.stored)
    stored.name = given.stored.name
    tensors = list(graph.tensors)
    tensors[inner] = dataclasses.replace(tensor, name=given.name, stored=stored)
    model = copy.copy(graph.model)
    model.signatureDefs = list(_signatures(graph, side, outer, inner))
    graph = dataclasses.replace(graph, tensors=tuple(tensors), model=model)
    border = Int8Border(
        side=side,
        place=place,
        name=_name(given),
        given_type=_NAMES[given.dtype],
        scale=scale[0],
        zero_point=scale[1],
    )
    return Bordered(graph, (*found.borders, border), found.left)


def _signatures(graph: Graph, side: str, outer: int, inner: int) -> Iterator[schema.SignatureDefT]:
    field = f"{side}s"
    for signature in graph.model.signatureDefs or []:
        moved = copy.copy(signature)
        maps = [copy.copy(one) for one in getattr(moved, field) or []]
        for one in maps:
            if one.tensorIndex == outer:
                one.tensorIndex = inner
        setattr(moved, field, maps)
        yield moved


def _name(tensor: Tensor) -> str:
    return tensor.name or "without a name"
