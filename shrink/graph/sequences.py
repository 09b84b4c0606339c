"""Rules of layers over sequences: recurrent ones and attention."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.keras_internals import attention_parts, has_constants, heads_and_shape
from shrink.graph.channels import (
    Channels,
    Edit,
    Effect,
    Labels,
    Site,
    WeightAxis,
    WeightUse,
    is_elementwise,
    positions,
    weight_index,
)
from shrink.graph.network import Ref

L = keras.layers
CONVOLUTIONAL = (L.ConvLSTM1D, L.ConvLSTM2D, L.ConvLSTM3D)
RECURRENT = (L.LSTM, L.GRU, L.SimpleRNN, *CONVOLUTIONAL)
_IN_BOTH_DIRECTIONS = (L.LSTM, L.GRU, L.SimpleRNN)


def recurrent(site: Site) -> Effect:
    """Return what an LSTM, a GRU, a plain or a convolutional recurrent layer does with channels.

    A unit without its weights neither reads nor is read, by other units at later steps included,
    so that it is nothing but a number that is not used. States that are given or returned have
    the units' labels.
    """
    reason = _obstacle(site)
    if reason is not None:
        return site.protect(f"{site.name}: {reason}")
    units = site.produce(_units(site.layer))
    inputs, *states = site.inputs
    for state in states:
        site.sets.unite(state.labels, units)
    _check_activations(site, site.layer, units)
    weights = _cell(site, site.layer, inputs.labels, units, _positions(site, site.layer))
    outputs = tuple(_last(ref, units) for ref in site.call.outputs)
    edits = (Edit("filters" if isinstance(site.layer, CONVOLUTIONAL) else "units", units),)
    return Effect(outputs, weights, edits, produces=units)


def bidirectional(site: Site) -> Effect:
    """Return what a `Bidirectional` does: a unit goes with its counterpart of the other way."""
    forward, backward = site.layer.forward_layer, site.layer.backward_layer
    reason = _obstacle(site) or _obstacle_of_ways(forward, backward)
    if reason is not None:
        return site.protect(f"{site.name}: {reason}")
    units = site.produce(_units(forward))
    inputs, *states = site.inputs
    for state in states:
        site.sets.unite(state.labels, units)
    weights: list[WeightUse] = []
    for way in (forward, backward):
        _check_activations(site, way, units)
        weights += _cell(site, way, inputs.labels, units, _positions(site, way))
    outputs = tuple(_joined(ref, units) for ref in site.call.outputs)
    return Effect(outputs, tuple(weights), _edits_of_ways(site.layer, units), produces=units)


def _obstacle(site: Site) -> str | None:
    """Return why a call is not understood; None where it is."""
    _, kwargs = site.call.arguments
    if any(isinstance(value, Ref) for value in tf.nest.flatten(kwargs)):
        return "it is called with a mask"
    if getattr(site.layer, "data_format", "channels_last") == "channels_first":
        return "channels_first"
    if has_constants(site.layer) or not all(c.is_last for c in site.inputs):
        return "it works along another axis than its input's channels"
    return None


def _obstacle_of_ways(forward: keras.layers.Layer, backward: keras.layers.Layer) -> str | None:
    if type(forward) not in _IN_BOTH_DIRECTIONS or type(backward) is not type(forward):
        return f"no rule for the channels of {type(forward).__name__} in both directions"
    if _units(forward) != _units(backward):
        return "its directions have different numbers of units"
    return None


def _units(layer: keras.layers.Layer) -> int:
    return int(layer.filters if isinstance(layer, CONVOLUTIONAL) else layer.units)


def _check_activations(site: Site, layer: keras.layers.Layer, units: Labels) -> None:
    for name in ("activation", "recurrent_activation"):
        if not is_elementwise(getattr(layer, name, None)):
            site.sets.protect(units, f"{site.name}: its {name} mixes its units")


def _cell(
    site: Site, layer: keras.layers.Layer, inputs: Labels, units: Labels, positions: int
) -> tuple[WeightUse, ...]:
    """Return the weights of one cell: gates stand one after the other along the last axis."""
    cell = layer.cell
    last = cell.kernel.shape.rank - 1
    gates = np.tile(units, cell.kernel.shape[-1] // len(units))

    def use(variable: tf.Variable, *axes: WeightAxis, times: int = 0) -> WeightUse:
        return WeightUse(weight_index(site.layer, variable), axes, times)

    made = WeightAxis(last, gates, "output")
    uses = [
        use(cell.kernel, WeightAxis(last - 1, inputs, "input"), made, times=positions),
        use(cell.recurrent_kernel, WeightAxis(last - 1, units, "input"), made, times=positions),
    ]
    if cell.bias is not None:
        uses.append(use(cell.bias, WeightAxis(cell.bias.shape.rank - 1, gates, "channel")))
    return tuple(uses)


def _positions(site: Site, layer: keras.layers.Layer) -> int:
    """Return how often the kernels are multiplied: the steps, and the positions of an image."""
    time = 0 if getattr(layer, "time_major", False) else 1
    steps = site.inputs[0].shape[time] or 1
    dimensions = site.output.shape[:-1][-layer.cell.rank :] if type(layer) in CONVOLUTIONAL else ()
    return int(steps) * math.prod(length or 1 for length in dimensions)


def _last(ref: Ref, labels: Labels) -> Channels:
    return Channels(ref.shape, len(ref.shape) - 1, labels)


def _joined(ref: Ref, units: Labels) -> Channels:
    """Return the channels of an output: both directions' one after the other, or merged."""
    return _last(ref, np.tile(units, (ref.shape[-1] or 0) // len(units)))


def _edits_of_ways(layer: keras.layers.Layer, units: Labels) -> tuple[Edit, ...]:
    config = layer.get_config()
    ways = [name for name in ("layer", "backward_layer") if name in config]
    return tuple(Edit("units", units, within=(name, "config")) for name in ways)


_ARGUMENTS = ("query", "value", "key")


def multi_head_attention(site: Site) -> Effect:
    """Return what a `MultiHeadAttention` does with channels; its heads are what it produces.

    Without a head the output is what the others add to it, exactly: kernels, biases and the
    output's kernel are slices by head.
    """
    inputs = _inputs(site)
    layer = site.layer
    count, output_shape = heads_and_shape(layer)
    if inputs is None or output_shape is not None or len(site.call.outputs) > 1:
        return site.protect(f"{site.name}: attention with masks, scores or an output shape")
    heads = site.produce(count)
    query = inputs["query"].labels
    weights = [
        *(
            use
            for name in ("query", "key", "value")
            for use in _projection(site, attention_parts(layer)[name], inputs[name], heads)
        ),
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
    arguments = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Ref)}
    if len(args) > len(_ARGUMENTS) or set(tensors) - set(_ARGUMENTS) or "value" not in tensors:
        return None
    tensors.setdefault("key", tensors["value"])
    by_argument = {name: known[tensors[name].index] for name in _ARGUMENTS}
    return by_argument if all(channels.is_last for channels in by_argument.values()) else None


def _projection(
    site: Site, dense: keras.layers.Layer, inputs: Channels, heads: Labels
) -> list[WeightUse]:
    axes = (WeightAxis(0, inputs.labels, "input"), WeightAxis(1, heads, "output"))
    return _uses(site, dense, axes, WeightAxis(0, heads, "channel"), positions(inputs))


def _output(site: Site, heads: Labels, query: Labels) -> list[WeightUse]:
    dense = attention_parts(site.layer)["output"]
    axes = (WeightAxis(0, heads, "input"), WeightAxis(2, query, "output"))
    return _uses(site, dense, axes, WeightAxis(0, query, "channel"), positions(site.output))


def _uses(
    site: Site,
    dense: keras.layers.Layer,
    axes: tuple[WeightAxis, ...],
    bias: WeightAxis,
    count: int,
) -> list[WeightUse]:
    uses = [WeightUse(weight_index(site.layer, dense.kernel), axes, count)]
    if dense.bias is not None:
        uses.append(WeightUse(weight_index(site.layer, dense.bias), (bias,)))
    return uses
