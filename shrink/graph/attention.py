"""The rule of multi-head attention: whole heads go together, and so do the channels it works on."""

from __future__ import annotations

from typing import Any

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
from shrink.graph.network import Ref

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
