"""A classifier's logits, also where the model ends in a softmax or a sigmoid."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.base.keras_internals import made_by, mask_of, node_of
from shrink.base.types import JsonObject
from shrink.graph.network import Network, read_network, with_losses
from shrink.model.output_kind import output_kinds

L = keras.layers

_ACTIVATED = (
    *(L.Activation, L.Dense, L.EinsumDense, L.Conv1D, L.Conv2D, L.Conv3D, L.Conv1DTranspose),
    *(L.Conv2DTranspose, L.Conv3DTranspose, L.SeparableConv1D, L.SeparableConv2D),
    *(L.DepthwiseConv1D, L.DepthwiseConv2D, L.LocallyConnected1D, L.LocallyConnected2D),
)
"""Layers whose outputs are their activation of something; that of an LSTM is not."""

_RANDOM = (L.Dropout, L.GaussianNoise, L.GaussianDropout, L.AlphaDropout)
_SMALLEST = float(np.finfo(np.float32).tiny)
_SMALLEST_REST = 2.0**-25
"""Half of the least difference of a float32 from 1: what a rest of 0 may have been."""


class LogProbabilities(keras.layers.Layer):
    """Logits of which a model's outputs are the probabilities.

    softmax(log p) is p, and a temperature makes of log p what it makes of the logits, which
    differ by a constant for each example. log p - log(1 - p) is the argument of a sigmoid.

    Args:
        kind: softmax or sigmoid.
    """

    def __init__(self, kind: str, **options: object) -> None:
        super().__init__(trainable=False, dtype="float32", **options)
        self.kind = kind
        self.supports_masking = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return logits of probabilities, (n, ..., classes)."""
        probabilities = tf.cast(inputs, tf.float32)
        logarithm = tf.math.log(tf.maximum(probabilities, _SMALLEST))
        if self.kind == "softmax":
            return logarithm
        return logarithm - tf.math.log(tf.maximum(1.0 - probabilities, _SMALLEST_REST))

    def get_config(self) -> JsonObject:
        """Return how to make the layer again."""
        return {**super().get_config(), "kind": self.kind}


@contextlib.contextmanager
def logits_of(
    model: keras.Model,
    *final_activations: Sequence[str],
    from_logits: Sequence[bool] | None = None,
    exact: bool = False,
) -> Iterator[keras.Model]:
    """Yield a model that shares all weights with `model` and gives logits, (n, ..., classes).

    A softmax loses what it rounds to 0 or 1; its argument does not. A final activation is left
    out; that of a layer with weights is replaced within the block, so `model` itself must not be
    called there. Elsewhere the logarithm of the probabilities is given (`LogProbabilities`), as
    of an average of several.

    Args:
        model: with one or several outputs.
        final_activations: the function that turns logits into the model's outputs, softmax by
            default: one for all outputs, or one for each, empty for an output that is given as
            it is.
        from_logits: whether each output is logits already; by default by the last operator.
        exact: refuse where only the logarithm can be had.

    Raises:
        ModelError: an output is neither logits nor probabilities, or not `exact`.
    """
    each = final_activations or (("softmax",),)
    names = each * len(model.outputs) if len(each) == 1 else each
    known = list(from_logits or ())
    if not known:
        kinds = output_kinds(model)
        known = [kind == "logits" for kind in kinds]
        for index, kind in enumerate(kinds):
            if names[index] and kind is None:
                raise _no_logits(model, index, names[index][0])
    network = read_network(model)
    with contextlib.ExitStack() as replaced:
        outputs = list(model.outputs)
        for index, own in enumerate(names):
            if not own or known[index]:
                continue
            before = _before_activation(network, index, own[0])
            if isinstance(before, keras.layers.Layer):
                linear = keras.activations.linear
                replaced.enter_context(_replaced(before, "activation", linear))
            elif before is not None:
                outputs[index] = before
            elif exact:
                raise ModelError(
                    "its outputs are probabilities, and their logits cannot be recovered"
                )
            else:
                outputs[index] = LogProbabilities(own[0])(outputs[index])
        if all(a is b for a, b in zip(outputs, model.outputs, strict=True)):
            yield model
            return
        opened = keras.Model(model.inputs, outputs if len(outputs) > 1 else outputs[0])
        yield with_losses(model, opened)


def takes_logarithm(model: keras.Model) -> bool:
    """Whether `logits_of` gave logarithms of probabilities for an output."""
    return any(isinstance(layer, LogProbabilities) for layer in model.layers)


def _no_logits(model: keras.Model, index: int, kind: str) -> ModelError:
    layer = made_by(model.outputs[index])[0]
    activation = getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__)
    return ModelError(
        f"the model {model.name!r} ends in {activation}; distillation needs logits or a {kind}",
        subject=layer.name,
        hint="set task.from_logits to what its outputs are",
    )


def _before_activation(
    network: Network, index: int, kind: str
) -> keras.layers.Layer | tf.Tensor | None:
    """Return the layer whose activation is an output's, or the tensor that it is a function of.

    Raises:
        ModelError: the output is probabilities with some left out at random.
    """
    ref = network.outputs[index].index
    call = next((c for c in network.calls if ref in [each.index for each in c.outputs]), None)
    if call is None:
        return None
    layer = call.layer
    if isinstance(layer, _RANDOM):
        raise ModelError(
            f"the model {network.model.name!r} ends in {type(layer).__name__} after its {kind}, so "
            "that it cannot be trained on logits",
            subject=layer.name,
            hint="leave that layer out",
        )
    tensor = network.model.outputs[index]
    node = node_of(tensor)
    is_function = node.layer is layer and len(tf.nest.flatten(node.keras_inputs)) == 1
    is_softmax = kind == "softmax" and type(layer) is L.Softmax and layer.axis == -1
    is_softmax = is_softmax and mask_of(tensor) is None
    function = None if isinstance(layer, L.Lambda) else getattr(layer, "function", None)
    if is_function and (is_softmax or _computes(function, kind)):
        return tf.nest.flatten(node.keras_inputs)[0]
    others = [each.index for i, each in enumerate(network.outputs) if i != index]
    read = [each.index for c in network.calls for each in c.inputs]
    is_alone = sum(c.layer is layer for c in network.calls) == 1 and ref not in [*others, *read]
    own = type(layer).__module__.startswith("tf_keras.") and isinstance(layer, _ACTIVATED)
    return layer if is_alone and own and _computes(layer.activation, kind) else None


def _computes(function: Callable[..., tf.Tensor] | None, kind: str) -> bool:
    """Whether a function is a softmax or a sigmoid, whatever its name."""
    if function is None or function is keras.activations.linear:
        return False
    x = np.array([[-1.5, 0.25, 2.0], [3.0, -0.5, 1.0]], np.float32)
    expected = 1 / (1 + np.exp(-x))
    if kind == "softmax":
        expected = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
    try:
        with tf.init_scope():
            values = np.asarray(function(tf.constant(x)))
    except Exception:  # a function of other arguments is neither
        return False
    return values.shape == x.shape and bool(np.allclose(values, expected, rtol=1e-5))


@contextlib.contextmanager
def _replaced(
    owner: keras.layers.Layer, name: str, value: Callable[..., tf.Tensor]
) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
