"""Kernels that were rounded before import: their own steps become the scales of the file.

Quantization-aware training ends with kernels on a grid. Its step is that of the range before the
last update, which the largest weight left does not tell: a scale of `max |w| / 127` would round
every weight again, by up to half a step. The step is found from the weights. They are all whole
multiples of it, and random weights are not: nine of them are near multiples of any step that leaves
127 codes with a probability below 1e-15.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.tflite.model import Operator, Subgraph, Tensor, packed, read, unpacked, values

_KERNEL, _BIAS = 1, 2
_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_MOST, _FEWEST = 127, 4
"""Codes on either side of zero: as many as there are, and too few to tell a grid by."""
_HALF = 0.501
_NEAR = 2e-3
"""Of a step, by which a weight on the grid is off: float32 and a folded normalisation."""


@dataclass(frozen=True)
class _Rounded:
    """A quantized operator whose float kernel lies on a grid.

    Attributes:
        kernel: index of its tensor.
        codes: int8, in the kernel's shape.
        steps: the grid's, one for each scale of the kernel.
        bias: index of its tensor; None for none.
        bias_codes: int32, in steps of `bias_steps`, which are those of the input times `steps`.
    """

    kernel: int
    codes: Array
    steps: Array
    bias: int | None
    bias_codes: Array
    bias_steps: Array


def with_grids_of_kernels(content: bytes, reference: bytes) -> bytes:
    """Return an int8 model with the scales of the grids on which the float model's kernels lie.

    Args:
        content: the quantized .tflite file; returned as it is where no kernel lies on one.
        reference: the float one that it was made from.
    """
    graph, original = read(content)[0], read(reference)[0]
    found = list(_rounded(graph, original))
    if not found:
        return content
    model = unpacked(content)
    stored = model.subgraphs[0]
    for one in found:
        _write(model, stored.tensors[one.kernel], one.codes, one.steps)
        if one.bias is not None:
            _write(model, stored.tensors[one.bias], one.bias_codes, one.bias_steps)
    return packed(model)


def _write(model: schema.ModelT, tensor: schema.TensorT, codes: Array, steps: Array) -> None:
    tensor.quantization.scale = steps.astype(np.float32).tolist()
    model.buffers[tensor.buffer].data = np.frombuffer(codes.tobytes(), np.uint8)


def _rounded(graph: Subgraph, original: Subgraph) -> Iterator[_Rounded]:
    """Yield the operators whose kernels lie on a grid, and are theirs alone."""
    floats = [one for one in original.operators if one.name in _WEIGHTED]
    for operator in graph.operators:
        if operator.name not in _WEIGHTED:
            continue
        parts = [i for i in operator.inputs[_KERNEL:] if i >= 0]
        alike = [one for one in floats if _is_rounded(graph, operator, original, one)]
        if len(alike) == 1 and all(_is_its_alone(graph, i) for i in parts):
            found = _of_operator(graph, operator, original, alike[0])
            if found is not None:
                yield found


def _is_rounded(graph: Subgraph, operator: Operator, original: Subgraph, before: Operator) -> bool:
    """Whether an operator's kernel is a float one's, rounded."""
    kernel = graph.tensors[operator.inputs[_KERNEL]]
    weights, stored = _floats(original, before, _KERNEL), values(kernel)
    if operator.name != before.name or weights is None or stored is None:
        return False
    if original.tensors[before.inputs[_KERNEL]].shape != kernel.shape or not kernel.scales:
        return False
    scales = np.asarray(kernel.scales)[:, None]
    now = _by_scale(stored.astype(np.float64).reshape(kernel.shape), kernel) * scales
    before_it = _by_scale(weights.reshape(kernel.shape), kernel)
    return bool((np.abs(now - before_it) <= _HALF * scales).all())


def _is_its_alone(graph: Subgraph, index: int) -> bool:
    """Whether one operator reads a constant, and no other tensor has its values."""
    tensor = graph.tensors[index]
    readers = sum(operator.inputs.count(index) for operator in graph.operators)
    sharers = sum(other.buffer == tensor.buffer for other in graph.tensors)
    return tensor.constant and not tensor.sparse and readers == sharers == 1


def _of_operator(
    graph: Subgraph, operator: Operator, original: Subgraph, before: Operator
) -> _Rounded | None:
    kernel = graph.tensors[operator.inputs[_KERNEL]]
    weights = _floats(original, before, _KERNEL)
    source = graph.tensors[operator.inputs[0]]
    if weights is None or kernel.dtype != "INT8":
        return None
    if source.dtype != "INT8" or len(source.scales) != 1 or any(kernel.zero_points):
        return None
    rows = _by_scale(weights.reshape(kernel.shape), kernel)
    steps = grid_steps(rows, np.asarray(kernel.scales))
    if steps is None:
        return None
    stored = steps.astype(np.float32).astype(np.float64)
    codes = np.rint(rows / stored[:, None]).astype(np.int8)
    has_bias = len(operator.inputs) > _BIAS and operator.inputs[_BIAS] >= 0
    bias_steps = stored * source.scales[0]
    bias = _floats(original, before, _BIAS) if has_bias else np.zeros(0)
    if bias is None:
        return None
    limits = np.iinfo(np.int32)
    bias_codes = np.clip(np.rint(bias / bias_steps), limits.min, limits.max) if has_bias else bias
    return _Rounded(
        kernel=operator.inputs[_KERNEL],
        codes=_as_stored(codes, kernel),
        steps=steps,
        bias=operator.inputs[_BIAS] if has_bias else None,
        bias_codes=bias_codes.astype(np.int32),
        bias_steps=bias_steps,
    )


def _floats(graph: Subgraph, operator: Operator, position: int) -> Array | None:
    """Return a float constant, flat, in float64; None where there is none."""
    index = operator.inputs[position] if len(operator.inputs) > position else -1
    if index < 0 or graph.tensors[index].dtype != "FLOAT32":
        return None
    stored = values(graph.tensors[index])
    return None if stored is None else stored.astype(np.float64)


def _by_scale(weights: Array, kernel: Tensor) -> Array:
    """Return a row of weights for each scale of a kernel."""
    axis = kernel.quantized_dimension if len(kernel.scales) > 1 else 0
    return np.moveaxis(weights, axis, 0).reshape(len(kernel.scales), -1)


def _as_stored(rows: Array, kernel: Tensor) -> Array:
    """Return rows in the kernel's shape."""
    axis = kernel.quantized_dimension if len(kernel.scales) > 1 else 0
    moved = np.moveaxis(np.empty(kernel.shape, np.int8), axis, 0).shape
    return np.ascontiguousarray(np.moveaxis(rows.reshape(moved), 0, axis))


def grid_steps(rows: Array, scales: Array) -> Array | None:
    """Return the step of the finest grid of 255 codes for each row; None where one lies on none.

    Args:
        rows: weights, (rows, weights).
        scales: what a row has whose weights are all zero, (rows,).
    """
    most = np.abs(rows).max(axis=1, initial=0.0)
    steps = np.asarray(scales, np.float64).copy()
    is_open = most > 0
    for codes in range(_MOST, _FEWEST, -1):
        if not is_open.any():
            break
        candidates = most[is_open] / codes
        multiples = rows[is_open] / candidates[:, None]
        fits = (np.abs(multiples - np.rint(multiples)) <= _NEAR).all(axis=1)
        found = np.flatnonzero(is_open)[fits]
        steps[found] = candidates[fits]
        is_open[found] = False
    return None if is_open.any() else steps
