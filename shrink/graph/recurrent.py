"""The rules of recurrent layers: a unit goes with its part of every gate and of every state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.graph.channels import Channels, Labels
from shrink.graph.effects import (
    Edit,
    Effect,
    Site,
    WeightAxis,
    WeightUse,
    is_elementwise,
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
    given, *states = site.inputs
    for state in states:
        site.sets.unite(state.labels, units)
    _check_activations(site, site.layer, units)
    weights = _cell(site, site.layer, given.labels, units, _positions(site, site.layer))
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
    given, *states = site.inputs
    for state in states:
        site.sets.unite(state.labels, units)
    weights: list[WeightUse] = []
    for way in (forward, backward):
        _check_activations(site, way, units)
        weights += _cell(site, way, given.labels, units, _positions(site, way))
    outputs = tuple(_joined(ref, units) for ref in site.call.outputs)
    return Effect(outputs, tuple(weights), _edits_of_ways(site.layer, units), produces=units)


def _obstacle(site: Site) -> str | None:
    """Return why a call is not understood; None where it is."""
    _, kwargs = site.call.arguments
    if any(isinstance(value, Ref) for value in tf.nest.flatten(kwargs)):
        return "it is called with a mask"
    if getattr(site.layer, "data_format", "channels_last") == "channels_first":
        return "channels_first"
    if getattr(site.layer, "_num_constants", None) or not all(c.is_last for c in site.inputs):
        return "it works along another axis than its input's channels"
    return None


def _obstacle_of_ways(forward: Any, backward: Any) -> str | None:
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

    def use(variable: Any, *axes: WeightAxis, times: int = 0) -> WeightUse:
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
    """Return how often the kernels are multiplied: the steps, and the places of a picture."""
    time = 0 if getattr(layer, "time_major", False) else 1
    steps = site.inputs[0].shape[time] or 1
    places = site.output.shape[:-1][-layer.cell.rank :] if type(layer) in CONVOLUTIONAL else ()
    return int(steps) * math.prod(side or 1 for side in places)


def _last(ref: Ref, labels: Labels) -> Channels:
    return Channels(ref.shape, len(ref.shape) - 1, labels)


def _joined(ref: Ref, units: Labels) -> Channels:
    """Return the channels of an output: both directions' one after the other, or merged."""
    return _last(ref, np.tile(units, (ref.shape[-1] or 0) // len(units)))


def _edits_of_ways(layer: keras.layers.Layer, units: Labels) -> tuple[Edit, ...]:
    config = layer.get_config()
    ways = [name for name in ("layer", "backward_layer") if name in config]
    return tuple(Edit("units", units, within=(name, "config")) for name in ways)
