"""A classifier's logits, also where the model ends in a softmax or a sigmoid."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tf_keras as keras

from shrink.errors import ModelError
from shrink.graph.losses import with_losses


@contextlib.contextmanager
def logits_of(model: keras.Model, *closing: Sequence[str]) -> Iterator[keras.Model]:
    """Yield a model that shares all weights with `model` and gives logits, (n, ..., classes).

    A softmax loses what it rounds to 0 or 1; its argument does not. Within the block closing
    activations are switched off, so `model` itself must not be called there.

    Args:
        model: with one or several outputs.
        closing: names of the activations that turn logits into the model's outputs, softmax by
            default: one sequence for all outputs, or one for each, empty for an output that is
            given as it is.

    Raises:
        ModelError: the model ends in an activation that has no logits.
    """
    each = closing or (("softmax",),)
    names = each * len(model.outputs) if len(each) == 1 else each
    ends = [_end(model, tensor, own) for tensor, own in zip(model.outputs, names, strict=True)]
    switched = {id(layer): layer for layer, _ in ends if layer is not None}
    activations = {key: layer.activation for key, layer in switched.items()}
    for layer in switched.values():
        layer.activation = keras.activations.linear
    try:
        same = all(before is after for (_, after), before in zip(ends, model.outputs, strict=True))
        if same:
            yield model
        else:
            yield with_losses(model, keras.Model(model.inputs, [tensor for _, tensor in ends]))
    finally:
        for key, layer in switched.items():
            layer.activation = activations[key]


def _end(model: keras.Model, tensor: Any, closing: Sequence[str]) -> tuple[Any, Any]:
    """Return the layer whose activation closes an output, or None, and the output to take."""
    if not closing:
        return None, tensor
    history = tensor._keras_history
    layer = history.layer
    if isinstance(layer, keras.layers.Softmax):
        return None, layer.get_input_at(history.node_index)
    if isinstance(layer, keras.Model):
        return _nested_end(model, layer, history.tensor_index, closing), tensor
    activation = getattr(layer, "activation", None)
    name = getattr(activation, "__name__", "linear")
    if name == "linear" or activation is None:
        return None, tensor
    if name not in closing:
        raise ModelError(
            f"the model {model.name!r} ends in {name}; distillation needs logits or a "
            f"{' or '.join(closing)}",
            subject=layer.name,
        )
    return layer, tensor


def _nested_end(model: keras.Model, nested: keras.Model, index: int, closing: Sequence[str]) -> Any:
    own = nested.outputs[index]
    layer, tensor = _end(nested, own, closing)
    if tensor is not own:
        raise ModelError(
            f"the model {model.name!r} ends in a model that ends in a Softmax layer",
            subject=nested.name,
            hint="end the outer model in the softmax, or give logits",
        )
    return layer
