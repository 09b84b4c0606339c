"""Operators of a .tflite file with their tensors and options, for rules of placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import ModelError
from shrink.base.types import Array
from shrink.tflite.model import MALFORMED, corrupt, unpacked

_TYPES = {v: k for k, v in vars(schema.TensorType).items() if isinstance(v, int)}
_KINDS = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
_ACTIVATIONS = {v: k for k, v in vars(schema.ActivationFunctionType).items() if isinstance(v, int)}
_INTEGERS = {"INT32": "<i4", "INT64": "<i8"}


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor as an operator reads or writes it.

    Attributes:
        index: among the tensors of the subgraph.
        name: as stored.
        shape: as stored.
        dtype: the schema's name: FLOAT32, INT8, ...
        scales: one per tensor or per channel; empty where it is not quantized.
        zero_points: as many as scales, or none.
        axis: the dimension of its channels, where it has several scales.
        data: uint8 array of the stored bytes; empty for anything but a constant.
        open_dimensions: whether a dimension is known only when the model runs.
        sparse: whether it is stored without its zeros.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int
    data: Array
    open_dimensions: bool
    sparse: bool

    @property
    def constant(self) -> bool:
        """Whether the file holds its values."""
        return self.data.size > 0

    @property
    def is_float(self) -> bool:
        """Whether it holds 16 or 32-bit floating-point numbers."""
        return self.dtype in ("FLOAT32", "FLOAT16")

    @property
    def is_int8(self) -> bool:
        """Whether it holds signed or unsigned integers of 8 bits."""
        return self.dtype in ("INT8", "UINT8")

    @property
    def zero_point(self) -> int:
        """The first zero point; 0 where there is none."""
        return self.zero_points[0] if self.zero_points else 0

    def integers(self) -> list[int]:
        """Return the values of an int32 or int64 constant; none of any other tensor."""
        if self.dtype not in _INTEGERS:
            return []
        return [int(one) for one in np.frombuffer(self.data.tobytes(), _INTEGERS[self.dtype])]


@dataclass(frozen=True, eq=False)
class Node:
    """An operator.

    Attributes:
        place: in the order of execution, from 0.
        kind: the schema's name, or the name of a custom operator.
        custom: whether it is a custom operator.
        inputs: None for one left out.
        outputs: what it writes.
        options: the schema's table of its options, or None.
    """

    place: int
    kind: str
    custom: bool
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    options: object

    def option(self, name: str, default: int = 0) -> int:
        """Return an option by the schema's name for it, `strideW` and so on."""
        return int(getattr(self.options, name, default))

    @property
    def activation(self) -> str:
        """The schema's name of the activation that is part of the operator."""
        return _ACTIVATIONS.get(self.option("fusedActivationFunction"), "?")

    def given(self, position: int) -> Value | None:
        """Return an input; None where it has none there."""
        return self.inputs[position] if position < len(self.inputs) else None

    @property
    def read(self) -> tuple[Value, ...]:
        """All inputs that it has."""
        return tuple(one for one in self.inputs if one is not None)

    @property
    def values(self) -> tuple[Value, ...]:
        """All inputs that it has, and all outputs."""
        return (*self.read, *self.outputs)


@dataclass(frozen=True, eq=False)
class View:
    """The operators of a file, and the indices of its inputs and outputs."""

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read_view(content: bytes) -> View:
    """Return the operators of a .tflite file of one subgraph.

    Raises:
        ModelError: it is no TFLite model, or has several subgraphs.
    """
    try:
        model = unpacked(content)
        count = len(model.subgraphs)
        if count == 1:
            return _view(model)
    except MALFORMED as error:
        raise corrupt(error) from error
    raise ModelError(
        f"this .tflite file has {count} subgraphs; where operators run is known of one alone",
        hint="convert the model without loops and branches",
    )


def _view(model: schema.ModelT) -> View:
    graph = model.subgraphs[0]
    values = [_value(model, place, stored) for place, stored in enumerate(graph.tensors or [])]
    nodes = []
    for place, stored in enumerate(graph.operators or []):
        code = model.operatorCodes[stored.opcodeIndex]
        builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
        custom = builtin == schema.BuiltinOperator.CUSTOM
        kind = _text(code.customCode) if custom else _KINDS.get(builtin, str(builtin))
        inputs = tuple(None if i < 0 else values[i] for i in _indices(stored.inputs))
        outputs = tuple(values[i] for i in _indices(stored.outputs))
        nodes.append(Node(place, kind, custom, inputs, outputs, stored.builtinOptions))
    return View(tuple(nodes), _indices(graph.inputs), _indices(graph.outputs))


def _value(model: schema.ModelT, index: int, stored: schema.TensorT) -> Value:
    data = model.buffers[stored.buffer].data
    empty = data is None or len(data) == 0
    quantization = stored.quantization
    scale = None if quantization is None else quantization.scale
    zero = None if quantization is None else quantization.zeroPoint
    return Value(
        index=index,
        name=_text(stored.name),
        shape=_indices(stored.shape),
        dtype=_TYPES[stored.type],
        scales=() if scale is None else tuple(float(one) for one in scale),
        zero_points=_indices(zero),
        axis=0 if quantization is None else int(quantization.quantizedDimension),
        data=np.zeros(0, np.uint8) if empty else np.asarray(data, np.uint8),
        open_dimensions=any(size < 0 for size in _indices(stored.shapeSignature)[1:]),
        sparse=stored.sparsity is not None,
    )


def _indices(stored: Sequence[int] | None) -> tuple[int, ...]:
    return () if stored is None else tuple(int(value) for value in stored)


def _text(raw: bytes | str | None) -> str:
    return raw if isinstance(raw, str) else (raw or b"").decode("utf-8", "replace")
