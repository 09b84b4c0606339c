"""Models of which only a graph is known, as functional models of a single layer.

They can be asked, as a teacher is, and converted; nothing in them can be pruned or trained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.errors import ModelError
from shrink.tflite.names import natural_order
from shrink.tflite.serving import load_signature

_CLOSING = {"Softmax": "softmax", "Sigmoid": "sigmoid", "Relu": "relu", "Tanh": "tanh"}
_PASSING = frozenset({"Identity", "StopGradient", "EnsureShape", "Cast"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_SMALLEST = float(np.finfo(np.float32).tiny)


class TracedGraph(keras.layers.Layer):
    """A traced function of TensorFlow as one layer, which is not trained.

    Attributes:
        activation: what closes the graph. Where it is switched to linear, the layer gives the
            logits of its probabilities: softmax(log p) is p, and a temperature makes of log p
            what it makes of the logits, which differ by a constant for each example.

    Args:
        function: a concrete function that takes the inputs by name.
        names: of the inputs, in the model's order.
        holder: kept alive, since it owns the function's variables.
    """

    def __init__(self, function: Any, names: Sequence[str], holder: Any, **options: Any) -> None:
        super().__init__(trainable=False, **options)
        self._function, self._names = function, tuple(names)
        self._holder = _Untracked(holder)
        self._closing = closing_activation(function)
        self.activation = keras.activations.get(self._closing)

    def call(self, inputs: Any) -> list[Any]:
        """Return the outputs for inputs in the order of the names, each (n, ...)."""
        fed = dict(zip(self._names, tf.nest.flatten(inputs), strict=True))
        outputs = [tf.cast(each, tf.float32) for each in _in_order(self._function(**fed))]
        switched_off = self.activation is keras.activations.linear
        if not switched_off or self._closing == "linear":
            return outputs
        return [_logits(each, self._closing) for each in outputs]

    def get_config(self) -> dict[str, Any]:
        """Return the name and a digest of graph and weights; the layer cannot be made of it."""
        return {"name": self.name, "sha256": _digest(self._function)}


class _Untracked:
    """Holds an object out of Keras' sight, which would take its variables for the layer's."""

    def __init__(self, value: Any) -> None:
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

    def ask(feed: Mapping[str, Any]) -> dict[str, Any]:
        inputs = tf.nest.pack_sequence_as(spec, [feed[name] for name in names])
        outputs = tf.nest.flatten(model(inputs, training=False))
        return {f"output_{index}": each for index, each in enumerate(outputs)}

    traced = tf.function(lambda **feed: ask(feed), autograph=False)
    return _wrapped(traced.get_concrete_function(**specs), specs, model, model.name)


def closing_activation(function: Any) -> str:
    """Return the activation that closes a concrete function's outputs, `linear` for any other.

    Raises:
        ModelError: its outputs are closed by different ones.
    """
    library = {each.signature.name: each for each in function.graph.as_graph_def().library.function}
    own = function.function_def
    found = {
        _CLOSING.get(_last_operator(own, own.ret[argument.name], library), "linear")
        for argument in own.signature.output_arg
    }
    if len(found) != 1:
        raise ModelError(
            f"its outputs end in {' and '.join(sorted(found))}, which cannot be told apart",
            hint="export a model whose outputs all end in the same activation, or none",
        )
    return found.pop()


def _last_operator(function: Any, reference: str, library: Mapping[str, Any]) -> str:
    """Return the type of the operator that makes a tensor, through calls and what changes none."""
    name, _, rest = reference.partition(":")
    node = next((node for node in function.node_def if node.name == name), None)
    if node is None:
        return ""
    if node.op in _PASSING:
        return _last_operator(function, node.input[0], library)
    if node.op in _CALLS and node.attr["f"].func.name in library:
        inner = library[node.attr["f"].func.name]
        output = inner.signature.output_arg[int(rest.rpartition(":")[2] or 0)].name
        return _last_operator(inner, inner.ret[output], library)
    return str(node.op)


def _wrapped(function: Any, specs: Mapping[str, Any], holder: Any, name: str) -> keras.Model:
    inputs = [
        keras.Input(each.shape[1:], dtype=each.dtype, name=key) for key, each in specs.items()
    ]
    layer = TracedGraph(function, list(specs), holder, name="graph")
    outputs = layer(inputs if len(inputs) > 1 else inputs[0])
    label = "".join(c if c.isalnum() or c in "_.-" else "_" for c in name)
    return keras.Model(inputs, outputs if len(outputs) > 1 else outputs[0], name=label)


def _input_spec(model: keras.Model, path: Path) -> Any:
    try:
        saved = model.save_spec()
    except ValueError:  # it was called on a variable, whose specification has another form
        saved = None
    if saved is not None:
        return saved[0][0]
    shape = getattr(model, "_build_input_shape", None)
    if shape is not None:
        return tf.TensorSpec(shape, tf.float32)
    raise ModelError(
        "this subclassed model was never called, so the shapes of its inputs are not known",
        subject=path,
        hint="call it once on an example before the function returns it: model(example)",
    )


def _in_order(outputs: Any) -> list[Any]:
    return (
        outputs if not isinstance(outputs, dict) else [outputs[n] for n in natural_order(outputs)]
    )


def _logits(probabilities: Any, closing: str) -> Any:
    logarithm = tf.math.log(tf.maximum(probabilities, _SMALLEST))
    if closing == "softmax":
        return logarithm
    return logarithm - tf.math.log(tf.maximum(1.0 - probabilities, _SMALLEST))


def _digest(function: Any) -> str:
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
