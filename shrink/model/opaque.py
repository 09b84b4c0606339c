"""Models with a graph but no layers (SavedModels), as functional models of one layer.

They can be asked, as a teacher is, and converted; nothing in them can be pruned or trained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.base.keras_internals import unbuilt_input_shape
from shrink.base.types import Tensors
from shrink.tflite.names import natural_order
from shrink.tflite.serving import load_signature, traced

if TYPE_CHECKING:
    from tensorflow.types.experimental import ConcreteFunction


class TracedGraph(keras.layers.Layer):
    """A traced function of TensorFlow as one layer, which is not trained.

    Args:
        function: a concrete function that takes the inputs by name.
        names: of the inputs, in the model's order.
        holder: kept alive, since it owns the function's variables.
    """

    def __init__(
        self, function: ConcreteFunction, names: Sequence[str], holder: object, **options: object
    ) -> None:
        super().__init__(trainable=False, **options)
        self._function, self._names = function, tuple(names)
        self._holder = _Untracked(holder)

    def call(self, inputs: Tensors) -> list[tf.Tensor]:
        """Return the outputs for inputs in the order of the names, each (n, ...)."""
        fed = dict(zip(self._names, tf.nest.flatten(inputs), strict=True))
        return [tf.cast(each, tf.float32) for each in _in_order(self._function(**fed))]

    def get_config(self) -> dict[str, str]:
        """Return the name and a digest of graph and weights; the layer cannot be made of it."""
        return {"name": self.name, "sha256": _digest(self._function)}


class _Untracked:
    """Holds an object out of Keras' sight, which would take its variables for the layer's."""

    def __init__(self, value: object) -> None:
        self.value = value


def graph_model(folder: Path) -> keras.Model:
    """Return the serving signature of a scanned SavedModel as a model of one layer.

    Raises:
        ModelError: it cannot be loaded, has no signature, or takes batches of one size alone.
    """
    module, signature = load_signature(folder)
    specs = signature.structured_input_signature[1]
    fixed = [name for name in specs if specs[name].shape.rank and specs[name].shape[0] is not None]
    if fixed:
        raise ModelError(
            f"it was exported for batches of {specs[fixed[0]].shape[0]} alone",
            subject=folder,
            hint="export it with an open batch: tf.TensorSpec([None, ...])",
        )
    ordered = {name: specs[name] for name in natural_order(specs)}
    model = _wrapped(signature, ordered, module, folder.name)
    if len(model.outputs) > 1:  # by which targets and a student's outputs are matched
        model.output_names = natural_order(signature.structured_outputs)
    return model


def subclassed_model(model: keras.Model, path: Path) -> keras.Model:
    """Return a subclassed model, traced for inference, as a model of one layer.

    Raises:
        ModelError: it was never called, so that the shapes of its inputs are not known.
    """
    spec = _input_spec(model, path)
    flat = tf.nest.flatten(spec)
    names = [f"input_{index}" for index in range(len(flat))]
    specs = {
        name: tf.TensorSpec([None, *each.shape[1:]], each.dtype, name)
        for name, each in zip(names, flat, strict=True)
    }

    def ask(feed: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        inputs = tf.nest.pack_sequence_as(spec, [feed[name] for name in names])
        outputs = tf.nest.flatten(model(inputs, training=False))
        return {f"output_{index}": each for index, each in enumerate(outputs)}

    function = traced(lambda **feed: ask(feed)).get_concrete_function(**specs)
    return _wrapped(function, specs, model, model.name)


def _wrapped(
    function: ConcreteFunction, specs: Mapping[str, tf.TensorSpec], holder: object, name: str
) -> keras.Model:
    inputs = [
        keras.Input(each.shape[1:], dtype=each.dtype, name=key) for key, each in specs.items()
    ]
    layer = TracedGraph(function, list(specs), holder, name="graph")
    outputs = layer(inputs if len(inputs) > 1 else inputs[0])
    label = "".join(c if c.isalnum() or c in "_.-" else "_" for c in name)
    return keras.Model(inputs, outputs if len(outputs) > 1 else outputs[0], name=label)


def _input_spec(model: keras.Model, path: Path) -> Tensors:
    """Return the specification of each input, in the structure that the model takes."""
    try:
        saved = model.save_spec()
    except ValueError:  # it was called on a variable, whose specification has another form
        saved = None
    if saved is not None:
        return saved[0][0]
    shape = unbuilt_input_shape(model)
    if shape is not None:
        return tf.TensorSpec(shape, tf.float32)
    raise ModelError(
        "this subclassed model was never called, so the shapes of its inputs are not known",
        subject=path,
        hint="call it once on an example before the function returns it: model(example)",
    )


def _in_order(outputs: Tensors) -> list[tf.Tensor]:
    return (
        outputs if not isinstance(outputs, dict) else [outputs[n] for n in natural_order(outputs)]
    )


def _digest(function: ConcreteFunction) -> str:
    """Return a hash of operators, constants and weights; names differ from trace to trace."""
    digest, graph = hashlib.sha256(), function.graph.as_graph_def()
    bodies = [graph.node, *(each.node_def for each in graph.library.function)]
    for node in (node for body in bodies for node in body):
        digest.update(node.op.encode())
        for name in sorted(node.attr):
            if not name.startswith("_") and node.attr[name].WhichOneof("value") != "func":
                digest.update(node.attr[name].SerializeToString(deterministic=True))
    weights = [np.ascontiguousarray(variable.numpy()).tobytes() for variable in function.variables]
    for each in sorted(hashlib.sha256(values).digest() for values in weights):
        digest.update(each)  # the function keeps them in no order
    return digest.hexdigest()
