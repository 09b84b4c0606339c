"""Which elements of an output count: the masks that a Keras model's layers carry to its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.masking import masked_outputs
from shrink.tflite.structure import Subgraph

_SEQUENCE_AXES = 3
Masks = list[np.ndarray[Any, Any] | None]


class OutputMasks:
    """Computes the masks of a model's outputs, such as those of `Embedding(mask_zero=True)`.

    A converted artifact has the outputs but not the masks: they come from the Keras model.

    Args:
        model: a functional or sequential model.
    """

    def __init__(self, model: keras.Model) -> None:
        # Only the masks are fetched, so that TensorFlow computes nothing else of the model.
        @tf.function(reduce_retracing=True)
        def masks(x: Any) -> list[Any]:
            outputs = tf.nest.flatten(model(x, training=False))
            return [getattr(output, "_keras_mask", None) for output in outputs]

        self._masks = masks

    def of(self, x: Any) -> Masks:
        """Return the mask of each output, bool (n, ...); None for an output without one.

        Args:
            x: the model's inputs, (n, ...) each, nested as the model takes them.
        """
        found = self._masks(tf.nest.map_structure(tf.convert_to_tensor, x))
        return [None if mask is None else np.asarray(mask, bool) for mask in found]


def masks_of(model: keras.Model | None) -> OutputMasks | None:
    """Return what computes a model's masks; None where no output of it has one."""
    return OutputMasks(model) if model is not None and masked_outputs(model) else None


def unmasked_notes(model: keras.Model | None, graph: Subgraph) -> list[str]:
    """Return a sentence where an artifact may have had masks that nobody can know any more.

    Args:
        model: the Keras model behind the artifact; None where the artifact is all there is.
        graph: of the artifact. Masks are of outputs with an axis of steps, (1, steps, ...).
    """
    steps = any(len(graph.tensors[place].shape) == _SEQUENCE_AXES for place in graph.outputs)
    if model is not None or not steps:
        return []
    return [
        "metrics count every element of the outputs: an artifact alone does not tell padding from "
        "steps; evaluate the Keras model, or what a run made of it, where the model has masks"
    ]
