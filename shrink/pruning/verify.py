"""Checks of a pruned model: frozen layers stay, masked and rebuilt outputs are equal."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, StageError
from shrink.graph.groups import ChannelGraph
from shrink.model.logits import logits_of


class FrozenMasks:
    """Multiplies variables with fixed masks after every update; a hook for the engine.

    Create it inside the devices' scope.

    Args:
        pairs: variables, each with its mask of 0 and 1 of the same shape.
    """

    def __init__(self, pairs: Sequence[tuple[tf.Variable, np.ndarray]]) -> None:
        self._pairs = [
            (variable, tf.Variable(tf.cast(mask, variable.dtype), trainable=False))
            for variable, mask in pairs
        ]

    def __call__(self, strategy: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Apply the masks, whatever the step."""
        for variable, mask in self._pairs:
            strategy.extended.update(variable, _apply, args=(mask,))


def _apply(variable: tf.Variable, mask: tf.Variable) -> None:
    variable.assign(variable.read_value() * mask.read_value())


TOLERANCE = 1e-4
"""Largest difference, relative to the largest output, that rounding may explain."""


def check_same(
    masked: keras.Model,
    rebuilt: keras.Model,
    graph: ChannelGraph,
    keep: np.ndarray,
    x: Sequence[np.ndarray],
) -> float:
    """Return the largest relative difference of the outputs, before a closing softmax.

    Args:
        masked: the model at its full size, with everything removed at zero.
        rebuilt: the smaller model.
        x: examples, one array per input.

    Raises:
        StageError: the difference is more than rounding; the first layer that differs is named.
    """
    found = max(_differences(_outputs(masked, x), _outputs(rebuilt, x)))
    if not found <= TOLERANCE:
        raise StageError(
            f"the rebuilt model's outputs differ from the masked one's by {found:.1e}; the first "
            f"layer that differs is {_first_difference(masked, rebuilt, graph, keep, x)}",
            subject="prune",
            hint="exclude that layer (prune.exclude), and please report this",
        )
    return found


def feed(model: keras.Model, x: Sequence[np.ndarray]) -> Any:
    """Return arrays, one per input, in the model's structure and dtypes."""
    tensors = [tf.cast(part, t.dtype) for part, t in zip(x, model.inputs, strict=True)]
    return tf.nest.pack_sequence_as(model._nested_inputs, tensors)


def _outputs(model: keras.Model, x: Sequence[np.ndarray]) -> list[np.ndarray]:
    with contextlib.ExitStack() as stack:
        before = model
        # Without logits, as after a sigmoid, the outputs themselves have to do.
        with contextlib.suppress(ModelError):
            before = stack.enter_context(logits_of(model, exact=True))
        outputs = before(feed(before, x), training=False)
        return [np.asarray(y, np.float64) for y in tf.nest.flatten(outputs)]


def _differences(wanted: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> list[float]:
    return [
        float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) or 1.0))
        for a, b in zip(wanted, given, strict=True)
    ]


def _first_difference(
    masked: keras.Model,
    rebuilt: keras.Model,
    graph: ChannelGraph,
    keep: np.ndarray,
    x: Sequence[np.ndarray],
) -> str:
    for layer in graph.layers.values():
        if layer.produces is None:
            continue
        full, small = (
            np.asarray(_at(model, layer.name, x), np.float64) for model in (masked, rebuilt)
        )
        if _differences([full[..., keep[layer.produces]]], [small])[0] > TOLERANCE:
            return layer.name
    return "one without channels of its own"


def _at(model: keras.Model, name: str, x: Sequence[np.ndarray]) -> Any:
    tensor = model.get_layer(name).get_output_at(0)
    probe = keras.Model(model._nested_inputs, tensor)
    return probe(feed(probe, x), training=False)
