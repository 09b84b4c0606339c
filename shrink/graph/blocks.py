"""Blocks of layers that are one thing: attention, residual blocks.

A tensor through which everything passes cuts a model in two. Between neighbouring cuts lie single
layers, or whole residual blocks; a block begins at each kernel or branch and takes in what follows
it, such as its batch norm and activation, up to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tf_keras as keras

from shrink.graph.channels import Channels, Labels
from shrink.graph.effects import (
    Edit,
    Effect,
    Role,
    Site,
    WeightAxis,
    WeightUse,
    positions,
    weight_index,
)
from shrink.graph.network import Call, Network, Ref

_ARGUMENTS = ("query", "value", "key")


def multi_head_attention(site: Site) -> Effect:
    """Return what a `MultiHeadAttention` does with channels; its heads are what it produces.

    Without a head the output is what the others add to it, exactly: kernels, biases and the
    output's kernel are slices by head.
    """
    inputs = _inputs(site)
    layer = site.layer
    if inputs is None or layer._output_shape is not None or len(site.call.outputs) > 1:
        return site.protect(f"{site.name}: attention with masks, scores or an output shape")
    heads = site.produce(layer._num_heads)
    query = inputs["query"].labels
    weights = [
        *_projection(site, layer._query_dense, inputs["query"], heads),
        *_projection(site, layer._key_dense, inputs["key"], heads),
        *_projection(site, layer._value_dense, inputs["value"], heads),
        *_output(site, heads, query),
    ]
    sizes = [
        Edit(f"{name}_shape", channels.labels, len(channels.shape) - 1)
        for name, channels in inputs.items()
    ]
    edits = (Edit("num_heads", heads), *sizes)
    return Effect(site.passes(query), tuple(weights), edits, produces=heads)


def _inputs(site: Site) -> dict[str, Channels] | None:
    """Return the channels by argument; None where a tensor is another argument, such as a mask."""
    known = {r.index: c for r, c in zip(site.call.inputs, site.inputs, strict=True)}
    args, kwargs = site.call.arguments
    given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    tensors = {name: value for name, value in given.items() if isinstance(value, Ref)}
    if len(args) > len(_ARGUMENTS) or set(tensors) - set(_ARGUMENTS) or "value" not in tensors:
        return None
    tensors.setdefault("key", tensors["value"])
    found = {name: known[tensors[name].index] for name in _ARGUMENTS}
    return found if all(channels.is_last for channels in found.values()) else None


def _projection(site: Site, dense: Any, given: Channels, heads: Labels) -> list[WeightUse]:
    axes = (WeightAxis(0, given.labels, "input"), WeightAxis(1, heads, "output"))
    return _uses(site, dense, axes, WeightAxis(0, heads, "channel"), positions(given))


def _output(site: Site, heads: Labels, query: Labels) -> list[WeightUse]:
    dense = site.layer._output_dense
    axes = (WeightAxis(0, heads, "input"), WeightAxis(2, query, "output"))
    return _uses(site, dense, axes, WeightAxis(0, query, "channel"), positions(site.output))


def _uses(
    site: Site, dense: Any, axes: tuple[WeightAxis, ...], bias: WeightAxis, count: int
) -> list[WeightUse]:
    uses = [WeightUse(weight_index(site.layer, dense.kernel), axes, count)]
    if dense.bias is not None:
        uses.append(WeightUse(weight_index(site.layer, dense.bias), (bias,)))
    return uses


def normalisation_by_channel(site: Site) -> Effect:
    """Return the channels of a layer normalisation as they are: for copies, not for pruning.

    Over fewer channels it gives other values, which a student learns to live with.
    """
    channels = site.inputs[0]
    axis = site.layer.axis
    axes = axis if isinstance(axis, list | tuple) else [axis]
    if [a % len(channels.shape) for a in axes] != [channels.axis]:
        return site.protect(f"{site.name}: normalises along other axes than the channels")
    role: Role = "channel"
    weights = tuple(
        WeightUse(index, (WeightAxis(0, channels.labels, role),))
        for index in range(len(site.layer.weights))
    )
    return Effect(site.passes(channels.labels, channels.axis), weights)


_DEPTHWISE = (keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D)


@dataclass(frozen=True)
class Block:
    """Calls between two cuts.

    Attributes:
        calls: of the block, in order.
        start: the tensor that comes in.
        end: the tensor that goes out.
    """

    calls: tuple[Call, ...]
    start: Ref
    end: Ref

    @property
    def is_removable(self) -> bool:
        """Whether the model is still whole without it."""
        return self.start.shape == self.end.shape


def find_blocks(network: Network) -> list[Block]:
    """Return a model's blocks in order; none before everything passes through one tensor.

    The last block, which makes the model's output, is not among them.
    """
    blocks: list[Block] = []
    for segment in _segments(network):
        before = blocks[-1] if blocks else None
        if (
            before is not None
            and before.end.index == segment.start.index
            and _joins(before, segment)
        ):
            blocks[-1] = Block((*before.calls, *segment.calls), before.start, segment.end)
        else:
            blocks.append(segment)
    return blocks[:-1]


def stages(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return the runs of removable blocks that work at the same shape."""
    found: list[list[Block]] = []
    before: Block | None = None
    for block in blocks:
        if block.is_removable:
            follows = before is not None and before.is_removable
            follows = follows and before is not None and before.end.index == block.start.index
            if follows and found:
                found[-1].append(block)
            else:
                found.append([block])
        before = block
    return found


def _segments(network: Network) -> list[Block]:
    """Return what lies between neighbouring cuts; stretches that make an output are left out."""
    last_use = _last_uses(network)
    outputs = {ref.index for ref in network.outputs}
    alive = {ref.index: ref for _, ref in network.inputs if ref.index in last_use}
    found, calls = [], []
    start = next(iter(alive.values())) if len(alive) == 1 else None
    for place, call in enumerate(network.calls):
        calls.append(call)
        for ref in call.outputs:
            alive[ref.index] = ref
        alive = {i: r for i, r in alive.items() if last_use.get(i, -1) > place}
        if len(alive) == 1:
            (cut,) = alive.values()
            made = {ref.index for each in calls for ref in each.outputs}
            if start is not None and not made & outputs:
                found.append(Block(tuple(calls), start, cut))
            start, calls = cut, []
    if start is not None and calls:
        found.append(Block(tuple(calls), start, calls[-1].outputs[0]))
    return found


def _last_uses(network: Network) -> dict[int, int]:
    """Return the place of the last call that reads each tensor."""
    return {ref.index: place for place, call in enumerate(network.calls) for ref in call.inputs}


def _joins(block: Block, segment: Block) -> bool:
    """Whether a segment belongs to the block before it."""
    if not _has_kernel(segment):
        return True
    kernels = [call for call in block.calls if _kernel_rank(call)]
    # A depthwise convolution and the pointwise one after it are one separable convolution.
    separable = len(kernels) == 1 and isinstance(kernels[0].layer, _DEPTHWISE)
    return separable and len(segment.calls) == 1


def _has_kernel(segment: Block) -> bool:
    return len(segment.calls) > 1 or any(_kernel_rank(call) for call in segment.calls)


def _kernel_rank(call: Call) -> bool:
    return any(weight.shape.rank > 1 for weight in call.layer.weights)
