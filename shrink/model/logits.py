"""A classifier's logits, also where the model ends in a softmax."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tf_keras as keras

from shrink.errors import ModelError


@contextlib.contextmanager
def logits_of(model: keras.Model) -> Iterator[keras.Model]:
    """Yield a model that shares all weights with `model` and gives logits, (n, classes).

    A softmax loses what it rounds to 0 or 1; its argument does not. Within the block a closing
    softmax activation is switched off, so `model` itself must not be called there.

    Raises:
        ModelError: the model ends in an activation that has no logits.
    """
    last = model.layers[-1]
    if isinstance(last, keras.layers.Softmax):
        yield keras.Model(model.inputs, last.input)
        return
    activation = getattr(last, "activation", None)
    name = getattr(activation, "__name__", "linear")
    if name == "linear" or activation is None:
        yield model
        return
    if name != "softmax":
        raise ModelError(
            f"the model {model.name!r} ends in {name}; distillation needs logits or a softmax",
            subject=last.name,
        )
    last.activation = keras.activations.linear
    try:
        yield model
    finally:
        last.activation = activation
