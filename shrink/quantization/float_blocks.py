"""Blocks of a transformer that stay float, because integers are too coarse for them.

A mask is added to the scores of a softmax as 0 or a number near -1e9, or put in their place. An
integer tensor that holds both has steps of millions: all scores become equal.

A layer normalisation divides each position by its deviation. Where positions differ much, as blank
patches of a picture and others do, the smallest variances are one or two steps of an integer whose
scale is that of the largest, and their reciprocal roots are off by tens of percent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np

from shrink.quantization.calibration import Batches
from shrink.tflite.edit import exposing
from shrink.tflite.interpreter import load
from shrink.tflite.model import Operator, Subgraph, read, values

MASKED = -1e4
"""Scores at or below this are masked: no model has such scores of its own."""
_MOVING = frozenset(
    {"RESHAPE", "EXPAND_DIMS", "SQUEEZE", "TRANSPOSE", "STRIDED_SLICE", "SLICE", "BROADCAST_TO"}
)
_BIAS = {"FULLY_CONNECTED": 2, "CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "TRANSPOSE_CONV": 3}
"""Which input of an operator is its bias; the first one of TRANSPOSE_CONV is a shape."""
_WIDEST = 50.0
"""Largest over least variance that 255 steps hold well: the least has five of them."""
_CHUNK = 16


def coarse_blocks(
    content: bytes, batches: Batches, bits: Literal[8, 16], trained: Collection[str] = ()
) -> tuple[frozenset[str], list[str]]:
    """Return the output tensors of the operators that should stay float, and a note for each block.

    Args:
        content: a float .tflite model.
        batches: examples, by the names of the model's inputs, on which variances are measured.
        bits: of the activations; 16 hold normalisations as they are.
        trained: names of the tensors with trained ranges: blocks around them are left as they are.
    """
    graph = read(content)[0]
    settled = {index for index, one in enumerate(graph.tensors) if one.name in trained}
    made = {index: o for o in graph.operators for index in o.outputs}
    names, notes = set[str](), list[str]()
    for operator in graph.operators:
        block = _masked_softmax(graph, made, operator) if operator.name == "SOFTMAX" else set[int]()
        if block and not settled & _inside(graph, block):
            names |= {graph.tensors[i].name for i in block}
            notes.append(f"{graph.tensors[operator.outputs[0]].name} stays float32 with its mask")
    roots = [o for o in graph.operators if o.name == "RSQRT"] if bits == 8 else []
    norms = {
        root.inputs[0]: block
        for root in roots
        if (block := _normalisation(graph, made, root)) and not settled & _inside(graph, block)
    }
    for shifted, ratio in _variance_ratios(content, list(norms), batches).items():
        if ratio > _WIDEST:
            names |= {graph.tensors[i].name for i in norms[shifted]}
            notes.append(
                f"the normalisation around {graph.tensors[shifted].name} stays float32: variances "
                f"differ by a factor of {ratio:,.0f}"
            )
    return frozenset(names), notes


def _inside(graph: Subgraph, block: set[int]) -> set[int]:
    """Return the tensors of a block that it reads itself; its result may have a trained range."""
    return block & {i for o in graph.operators if block & {*o.outputs} for i in o.inputs}


def _masked_softmax(graph: Subgraph, made: Mapping[int, Operator], softmax: Operator) -> set[int]:
    """Return the tensors between a mask and the softmax that it is for; empty without a mask."""
    block = {softmax.outputs[0]}
    source = _through(made, softmax.inputs[0], block)
    # The converter adds a mask that is the same at all positions to the bias of a layer before it.
    if source is None or source.name not in (*_BIAS, "ADD", "SELECT", "SELECT_V2"):
        return set()
    block.add(source.outputs[0])
    if source.name in _BIAS:
        biases = source.inputs[_BIAS[source.name] :]  # none, or -1, of a layer without a bias
        return block if any(i >= 0 and _is_mask(graph, i) for i in biases) else set()
    for index in source.inputs:
        if _is_mask(graph, index):
            return block
        chain = set[int]()
        product = _through(made, index, chain)
        if product is None or product.name != "MUL":
            continue
        if any(_is_mask(graph, i) for i in product.inputs):
            # The number that says what is masked has to be exactly 0 or 1.
            waiting = [product]
            while waiting:
                operator = waiting.pop()
                chain |= {*operator.outputs}
                before = (_through(made, i, chain) for i in operator.inputs)
                waiting += [o for o in before if o is not None and o.name in ("SUB", "CAST")]
            return block | chain
    return set()


def _through(made: Mapping[int, Operator], index: int, passed: set[int]) -> Operator | None:
    """Return what makes a tensor, behind operators that only move values, which are noted."""
    while index in made and made[index].name in _MOVING:
        passed.add(index)
        index = made[index].inputs[0]
    return made.get(index)


def _is_mask(graph: Subgraph, index: int) -> bool:
    """Whether a tensor is a constant of numbers that mask."""
    tensor = graph.tensors[index]
    stored = values(tensor) if tensor.constant and tensor.dtype == "FLOAT32" else None
    return stored is not None and bool(np.any(stored <= MASKED))


def _normalisation(graph: Subgraph, made: Mapping[int, Operator], root: Operator) -> set[int]:
    """Return the tensors inside of a layer normalisation, its output included; else none.

    The converter writes `x * gain + (beta - mean * gain)` with `gain = gamma * root` and `root =
    rsqrt(variance + epsilon)`.
    """
    shifted = made.get(root.inputs[0])
    if shifted is None or shifted.name != "ADD":
        return set()
    means = [made[i] for i in shifted.inputs if i in made and made[i].name == "MEAN"]
    squares = made.get(means[0].inputs[0]) if means else None
    if squares is None or squares.name != "SQUARED_DIFFERENCE":
        return set()
    averages = [i for i in squares.inputs if i in made and made[i].name == "MEAN"]
    inside = {*squares.outputs, *means[0].outputs, *shifted.outputs, *root.outputs, *averages}
    for operator in graph.operators:
        given = {i for i in operator.inputs if i >= 0 and not graph.tensors[i].constant}
        inner = operator.name in ("MUL", "SUB", "ADD") and given & inside
        if inner and given <= inside | {*squares.inputs}:
            inside |= {*operator.outputs}
    return inside


def _variance_ratios(
    content: bytes, shifted: Collection[int], batches: Batches
) -> dict[int, float]:
    """Return the largest over the least of variance + epsilon over all positions, by tensor."""
    if not shifted:
        return {}
    runner = load(exposing(content, list(shifted)))
    found = [runner.predict(arrays, batch_size=_CHUNK) for arrays in batches]
    ends = (
        (min(float(a.min()) for a in column), max(float(a.max()) for a in column))
        for column in zip(*found, strict=True)
    )
    return {index: most / least for index, (least, most) in zip(shifted, ends, strict=True)}
