"""Conditions on tensors that rules share: each yields why an operator is not taken."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shrink.compact.targets.view import Node, Value

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")

Reasons = Iterator[str]


def name_of(value: Value) -> str:
    """Return how a message calls a tensor."""
    return value.name[:60] or f"tensor {value.index}"


def float_or_int8(*values: Value | None, halves: bool = True) -> Reasons:
    """Yield what is neither float nor of 8 bits with one scale."""
    for value in values:
        if value is None:
            yield "an input that it needs is left out"
        elif value.dtype == "FLOAT32" or (halves and value.dtype == "FLOAT16"):
            continue
        elif not value.is_int8:
            yield f"{name_of(value)} is {value.dtype}"
        elif len(value.scales) != 1:
            yield f"{name_of(value)} has {len(value.scales)} scales, one is taken"


def floats(*values: Value | None) -> Reasons:
    """Yield what is not float."""
    for value in values:
        if value is None or not value.is_float:
            dtype = "left out" if value is None else value.dtype
            yield f"it is taken in float alone, and is {dtype}"


def kernel(value: Value | None, axis: int) -> Reasons:
    """Yield why a kernel is not taken: float, or int8 with scales along one dimension."""
    if value is None:
        yield "an input that it needs is left out"
    elif value.is_float:
        return
    elif value.dtype != "INT8":
        yield f"its weights are {value.dtype}"
    elif not value.scales:
        yield "its weights have no scale"
    elif len(value.scales) > 1 and value.axis != axis:
        yield f"its weights have scales along dimension {value.axis}, not {axis}"


def biased(value: Value | None) -> Reasons:
    """Yield why a bias is not taken, or that there is none."""
    if value is None:
        yield "it has no bias"
    elif not value.is_float and (value.dtype != "INT32" or not value.scales):
        yield f"its bias is {value.dtype}{'' if value.scales else ' without a scale'}"


def fixed(value: Value | None, static: Collection[int], what: str) -> Reasons:
    """Yield that a tensor, called so, is neither a constant nor unpacked from one."""
    if value is None or not (value.constant or value.index in static):
        yield f"its {what} are no constant of the file"


def activation(node: Node) -> Reasons:
    """Yield the activation that is part of an operator and not taken."""
    if node.activation not in ACTIVATIONS:
        yield f"the activation {node.activation} is part of it"


def same_types(*values: Value | None) -> Reasons:
    """Yield the types of tensors that differ."""
    types = {value.dtype for value in values if value is not None}
    if len(types) > 1:
        yield f"it mixes {' and '.join(sorted(types))}"


def scale_between(ratio: float, limits: tuple[float, float], what: str) -> Reasons:
    """Yield that a ratio of scales lies beyond what is taken."""
    if not limits[0] <= ratio < limits[1]:
        yield f"{what} is {ratio:.3g}, {limits[0]:.3g} to {limits[1]:.3g} are taken"


def pairs_of_scales(node: Node) -> Iterator[tuple[float, float]]:
    """Yield each input's scale with the output's, of tensors of 8 bits of one type."""
    output = node.outputs[0]
    for value in node.inputs:
        if value is not None and value.is_int8 and value.dtype == output.dtype:
            yield value.scales[0], output.scales[0]
