"""The smaller model: plain Keras layers with fewer channels, or the same ones masked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, first_line, listed
from shrink.base.keras_internals import (
    input_structure,
    insert_layers,
    loss_functions,
    output_structure,
    own_state,
    own_weights,
    parts_of,
)
from shrink.base.types import Json, JsonObject
from shrink.graph.groups import (
    ChannelGraph,
    Group,
    LayerChannels,
    Member,
    kept_shapes,
    matches,
)
from shrink.graph.network import Network, Ref, is_batch_norm, is_frozen, map_tensors

Weights = dict[str, list[np.ndarray]]
"""Each layer's weights by its name in the flattened model, in the order of `layer.weights`."""


NO_MODES: Mapping[int, bool | None] = {}


def weights_of(graph: ChannelGraph) -> Weights:
    """Return copies of all weights of a model."""
    layers = graph.network.layers()
    return {graph.network.name(layer): layer.get_weights() for layer in layers}


def parted(arrays: Sequence[np.ndarray], random: np.random.Generator) -> list[np.ndarray]:
    """Return weights of which no two are alike and none is all zeros, as training makes them.

    A file stores equal arrays once, and no biases that are all zero: of weights as layers
    initialise them it would be smaller than of the same ones once they are trained.
    """
    return [
        # More, never less: a variance stays above zero.
        array + 1e-3 * np.abs(random.normal(size=array.shape)).astype(array.dtype)
        if np.issubdtype(array.dtype, np.floating)
        else array
        for array in arrays
    ]


def rebuild(
    graph: ChannelGraph, keep: np.ndarray, weights: Weights, *, fresh: bool = False
) -> keras.Model:
    """Return the model with only the channels that stay, as a plain functional model.

    Call it inside the devices' scope. The new model shares nothing with the old one; layers keep
    their names, and nested models are flattened. Frozen layers that were cut, or that get other
    inputs than before, become trainable.

    Args:
        graph: the model's channels.
        keep: for every label, whether it stays; see `ChannelGraph.keep`.
        weights: all weights at their full size.
        fresh: whether what training learns gets new weights; see `_kept`.
    """
    network = graph.network
    records = {id(layer): graph.layers[network.name(layer)] for layer in network.layers()}
    built = {id(x): _smaller(network, x, records[id(x)], keep) for x in network.layers()}
    cut = {key for key, r in records.items() if kept_shapes(r, keep) != [*map(tuple, r.shapes)]}
    sliced = {key: _sliced(weights[r.name], r, keep) for key, r in records.items() if r.shapes}
    excluded = {key for key, r in records.items() if r.name in graph.excluded}
    return _copied(network, built, sliced, cut, fresh=fresh, excluded=excluded)


def rebuild_without(
    network: Network,
    calls: Collection[int],
    aliases: Mapping[int, int],
    *,
    fresh: bool = False,
    exclude: Sequence[str] = (),
) -> keras.Model:
    """Return the model without some calls, as a plain functional model; inside the devices' scope.

    Frozen layers that get other inputs than before become trainable.

    Args:
        network: the model.
        calls: `id` of each call that goes.
        aliases: for a tensor that is no longer made, the one that takes its place, by index.
        fresh: whether what training learns gets new weights; see `_kept`.
        exclude: shell patterns of layers that stay frozen.
    """
    layers = {id(call.layer): call.layer for call in network.calls if id(call) not in calls}
    built = {key: _from_config(layer, _config(network, layer)) for key, layer in layers.items()}
    weights = {key: layer.get_weights() for key, layer in layers.items() if layer.weights}
    excluded = {key for key, x in layers.items() if matches(network.name(x), exclude)}
    return _copied(network, built, weights, set(), calls, aliases, fresh=fresh, excluded=excluded)


def _copied(
    network: Network,
    built: Mapping[int, keras.layers.Layer],
    weights: Mapping[int, list[np.ndarray]],
    cut: Collection[int],
    without: Collection[int] = (),
    aliases: Mapping[int, int] | None = None,
    *,
    fresh: bool,
    excluded: Collection[int],
) -> keras.Model:
    """Return the built layers as a model, with weights, and trainable where they changed.

    Args:
        network: the original.
        built: the new layers by the `id` of the old ones.
        weights: of the new layers, by the same.
        cut: `id` of each layer with fewer weights than before.
        without: see `connect`.
        aliases: see `connect`.
        fresh: whether what training learns gets new weights.
        excluded: `id` of each layer that stays frozen unless it was cut.
    """
    old = {id(layer): layer for layer in network.layers()}
    new = {key for key in built if fresh and _learns(old[key])}
    behind_new = network.affected(new)
    changed = {*cut, *new}
    behind_change = network.affected(changed, aliases or ())
    thawed = {
        key
        for key in built
        if is_frozen(old[key]) and (key in cut or key in behind_change - {*excluded})
    }
    # As guides to transfer learning have it: few updates are too few for new statistics.
    training = {**dict.fromkeys(thawed, False), **dict.fromkeys(behind_new, None)}
    model = connect(network, built, without, aliases, batch_norm=training)
    for key, arrays in weights.items():
        kept = _kept(old[key], key in behind_new) if fresh else [True] * len(arrays)
        values = arrays
        if not all(kept):
            pairs = zip(arrays, built[key].get_weights(), kept, strict=True)
            values = [array if keeps else drawn for array, drawn, keeps in pairs]
        built[key].set_weights(values)
    for key in thawed:
        built[key].trainable = True
    return model


def unfrozen(network: Network, copy: keras.Model) -> list[str]:
    """Return the names of layers that are frozen in a model and trainable in its copy."""
    trainable = {layer.name for layer in copy.layers if layer.trainable}
    frozen = [network.name(layer) for layer in network.layers() if is_frozen(layer)]
    return [name for name in frozen if name in trainable]


def unfrozen_note(names: Sequence[str]) -> str:
    """Return the sentence of a report that says which frozen layers became trainable."""
    return (
        f"frozen layers became trainable, because their weights or inputs changed: "
        f"{listed(names, 8)}"
    )


def keeps_state(layer: keras.layers.Layer) -> bool:
    """Whether a copy with new weights keeps some of a layer's, batch normalizations aside."""
    if is_frozen(layer):
        return True
    parts = parts_of(layer)
    return any(own_state(part) for part in parts if not is_batch_norm(part))


def _learns(layer: keras.layers.Layer) -> bool:
    return any(part.trainable and own_weights(part) for part in parts_of(layer))


def _kept(layer: keras.layers.Layer, behind_new: bool) -> list[bool]:
    """Return whether a copy with new weights keeps each of a layer's arrays.

    It keeps what gradients do not learn: statistics of inputs, vocabularies, constants, and the
    weights of frozen layers. Moving statistics of a batch normalization behind new weights describe
    activations that no longer exist, and start anew.
    """
    learned = {
        id(weight)
        for part in parts_of(layer)
        for weight in (
            *(own_weights(part) if part.trainable else ()),
            *(own_state(part) if behind_new and is_batch_norm(part) else ()),
        )
    }
    return [id(weight) not in learned for weight in layer.weights]


def masked(graph: ChannelGraph, keep: np.ndarray, weights: Weights) -> Weights:
    """Return the weights at full size with everything that belongs to removed channels at zero.

    Both the weights that make a channel and those that read it become zero, so that the model
    computes what the rebuilt one does whatever lies between. Moving variances become 1.
    """
    return {
        name: [
            _masked(array, mask, 1 if is_variance else 0)
            for array, mask, is_variance in zip(
                arrays, masks[name], _variances(graph, name), strict=True
            )
        ]
        for masks in [weight_masks(graph, keep)]
        for name, arrays in weights.items()
    }


def _masked(array: np.ndarray, mask: np.ndarray, removed: int) -> np.ndarray:
    # Vocabularies and constants belong to no channel, and may be text.
    return array if mask.all() else np.where(mask, array, removed).astype(array.dtype)


def weight_masks(graph: ChannelGraph, keep: np.ndarray) -> Weights:
    """Return, for each weight, 1 where it belongs to channels that stay and 0 elsewhere."""
    masks: Weights = {}
    for name, record in graph.layers.items():
        masks[name] = [np.ones(shape, np.float32) for shape in record.shapes]
        for index, use in record.weights.items():
            for axis in use.axes:
                dimensions = [1] * len(record.shapes[index])
                dimensions[axis.axis] = -1
                masks[name][index] *= keep[axis.labels].reshape(dimensions)
    return masks


def _variances(graph: ChannelGraph, name: str) -> list[bool]:
    layer = next(x for x in graph.network.layers() if graph.network.name(x) == name)
    return [weight is getattr(layer, "moving_variance", None) for weight in layer.weights]


def _sliced(arrays: list[np.ndarray], record: LayerChannels, keep: np.ndarray) -> list[np.ndarray]:
    arrays = list(arrays)
    for index, use in record.weights.items():
        for axis in use.axes:
            arrays[index] = np.compress(keep[axis.labels], arrays[index], axis=axis.axis)
    return arrays


def _smaller(
    network: Network, layer: keras.layers.Layer, record: LayerChannels, keep: np.ndarray
) -> keras.layers.Layer:
    config = _config(network, layer)
    for edit in record.edits:
        config = _edited(config, (*edit.within, edit.key), edit.item, int(keep[edit.labels].sum()))
    return _from_config(layer, config)


def _config(network: Network, layer: keras.layers.Layer) -> JsonObject:
    try:
        return {**layer.get_config(), "name": network.name(layer)}
    except NotImplementedError as error:
        raise _no_copy(layer, error) from error


def _from_config(layer: keras.layers.Layer, config: JsonObject) -> keras.layers.Layer:
    try:
        return type(layer).from_config(config)
    except Exception as error:  # layers raise whatever their constructors raise
        raise _no_copy(layer, error) from error


def _no_copy(layer: keras.layers.Layer, error: Exception) -> ModelError:
    return ModelError(
        f"{layer.name}: a {type(layer).__name__} cannot be copied, as its get_config() does not "
        f"give what its constructor takes: {first_line(error, 200)}",
        hint="correct its get_config(), or prune and distill a model without it",
    )


def _edited(config: JsonObject, path: Sequence[str], item: int | None, count: int) -> JsonObject:
    """Return a copy of the configuration with another count; layers may keep what they gave."""
    key, *rest = path
    value: Json = count
    if rest:
        value = _edited(config[key], rest, item, count)
    elif item is not None:
        value = (*config[key][:item], count, *config[key][item + 1 :])
    return {**config, key: value}


def connect(
    network: Network,
    built: Mapping[int, keras.layers.Layer],
    without: Collection[int] = (),
    aliases: Mapping[int, int] | None = None,
    then: Callable[[Ref, tf.Tensor], tf.Tensor] = lambda ref, tensor: tensor,
    batch_norm: Mapping[int, bool | None] = NO_MODES,
) -> keras.Model:
    """Make the calls anew but some, with other tensors in the place of theirs.

    Args:
        network: the model.
        built: the layers that take the places of its own, by their `id`.
        without: `id` of each call that is not made.
        aliases: for a tensor that is no longer made, the one that takes its place, by index.
        then: gives the Keras tensor that stands for one of the network from there on.
        batch_norm: by `id`, the `training` that batch normalizations among these layers are called
            with from now on: False keeps their statistics, None is as the model is called.

    Calls that lead to no output stay too: they make the losses and metrics of the model.

    Raises:
        ModelError: a loss was added as a function, which cannot follow the model.
    """
    _refuse_loss_functions(network)
    tensors: dict[int, tf.Tensor] = {}
    aliases = aliases or {}

    def tensor(ref: Ref) -> tf.Tensor:
        index = ref.index
        while index in aliases:
            index = aliases[index]
        return tensors[index]

    inputs = []
    for layer, ref in network.inputs:
        config = {**layer.get_config(), "name": network.name(layer)}
        inputs.append(type(layer).from_config(config).output)
        tensors[ref.index] = then(ref, inputs[-1])
    for call in network.calls:
        if id(call) in without:
            continue
        args, kwargs = map_tensors(tensor, call.arguments)
        if id(call.layer) in batch_norm and is_batch_norm(call.layer):
            kwargs = {**kwargs, "training": batch_norm[id(call.layer)]}
        outputs = tf.nest.flatten(built[id(call.layer)](*args, **kwargs))
        tensors.update({r.index: then(r, t) for r, t in zip(call.outputs, outputs, strict=True)})
    outputs = [tensor(ref) for ref in network.outputs]
    model = network.model
    connected = keras.Model(
        tf.nest.pack_sequence_as(input_structure(model), inputs),
        tf.nest.pack_sequence_as(output_structure(model), outputs),
        name=model.name,
    )
    _add_losses(connected, {id(call.layer) for call in network.calls}, built)
    return connected


def _add_losses(
    model: keras.Model, called: Collection[int], built: Mapping[int, keras.layers.Layer]
) -> None:
    """Make layers that no output needs part of a model, as Keras does where it loads a file."""
    layers = [built[key] for key in called if key in built and built[key].inbound_nodes]
    known = {id(layer) for layer in model.layers}
    if apart := [layer for layer in layers if id(layer) not in known]:
        insert_layers(model, apart, [node for layer in layers for node in layer.inbound_nodes])


def _refuse_loss_functions(network: Network) -> None:
    for model in (network.model, *network.nested):
        if loss_functions(model):
            raise ModelError(
                f"a loss was added to {model.name!r} as a function, which would still read "
                "the weights of the old model",
                hint="add it as a tensor, model.add_loss(f(x)), in a layer, or as a regularizer",
            )


def over_kernels(
    group: Group, weights: Weights, size: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return each channel's sum of `size` over all kernel slices that make or read it.

    Each kernel's sums are divided by their mean over the group's channels, so that no kernel
    counts more for being larger.

    Args:
        group: the channels.
        weights: of every layer.
        size: element by element, such as the square.

    Returns:
        float64 (channels,).
    """
    total = np.zeros(len(group))
    for member in group.members:
        if member.role in ("output", "input"):
            norms = slices(member, size(weight_of(member, weights)), np.sum)
            total += norms / (norms.mean() or 1.0)
    return total


def weight_of(member: Member, weights: Weights) -> np.ndarray:
    """Return the weight that a member is an axis of, float64."""
    return np.asarray(weights[member.layer][member.weight], np.float64)


def slices(
    member: Member, array: np.ndarray, reduce: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return one number per channel: `reduce` of the array at the channel's positions."""
    return np.array(
        [float(reduce(np.take(array, p, axis=member.axis))) for p in member.positions], np.float64
    )
