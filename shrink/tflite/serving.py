"""One TensorFlow function with a batch of 1, static shapes and named inputs, for the converter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.tflite.names import natural_order, output_names, signature_names

SIGNATURE = "serving_default"


@dataclass(frozen=True)
class Serving:
    """What the converter is given.

    Attributes:
        module: the object to save, which keeps alive what `function` needs.
        function: takes one dictionary of tensors, gives another.
        inputs: `tf.TensorSpec` of each input, in the model's order, with a batch of 1.
        outputs: names of what the function gives, in the model's order.
    """

    module: Any
    function: Any
    inputs: tuple[Any, ...]
    outputs: tuple[str, ...]


def serve_keras(model: keras.Model) -> Serving:
    """Return the inference function of a Keras model; inputs in the order of `model.inputs`.

    A single output is called output_0; several have the names of `model.output_names`.

    Raises:
        ModelError: a subclassed model, whose inputs are not known.
    """
    if not model.inputs:
        raise ModelError(
            "the model has no inputs of its own, as subclassed models do not",
            subject=model.name,
            hint="write it as a functional model: keras.Model(inputs, outputs)",
        )
    names = signature_names(model.input_names)
    specs = tuple(
        _spec(tensor.shape, tensor.dtype, name)
        for name, tensor in zip(names, model.inputs, strict=True)
    )

    given = output_names(model.output_names)

    def serve(feed: dict[str, Any]) -> dict[str, Any]:
        arrays = [feed[name] for name in names]
        structure = tf.nest.pack_sequence_as(model.input, arrays)
        outputs = tf.nest.flatten(model(structure, training=False))
        return dict(zip(given, outputs, strict=True))

    return Serving(tf.Module(), _function(serve, specs), specs, tuple(given))


def serve_saved_model(folder: Path) -> Serving:
    """Return the serving signature of a SavedModel; inputs and outputs in the order of their names.

    Raises:
        ModelError: the folder is no SavedModel, or has no signature "serving_default".
    """
    module, signature = load_signature(folder)
    _, named = signature.structured_input_signature
    specs = tuple(
        _spec(named[name].shape, named[name].dtype, name) for name in natural_order(named)
    )
    outputs = natural_order(signature.structured_outputs)
    given = output_names(outputs)

    def serve(feed: dict[str, Any]) -> dict[str, Any]:
        results = signature(**feed)
        return {name: results[own] for name, own in zip(given, outputs, strict=True)}

    return Serving(module, _function(serve, specs), specs, tuple(given))


def load_signature(folder: Path) -> tuple[Any, Any]:
    """Return a scanned SavedModel, which owns the variables, and its serving function.

    Raises:
        ModelError: the folder is no SavedModel, or has no signature "serving_default".
    """
    try:
        module = tf.saved_model.load(str(folder))
    except Exception as error:
        raise ModelError(
            f"cannot be loaded as a SavedModel: {str(error).splitlines()[0]}",
            subject=folder,
            hint="copy the whole folder again, variables/ too, or save the model again",
        ) from error
    if SIGNATURE not in module.signatures:
        raise ModelError(
            f"the SavedModel has no signature {SIGNATURE!r}",
            subject=folder,
            hint="save it with model.export(folder), or tf.saved_model.save(..., signatures=...)",
        )
    return module, module.signatures[SIGNATURE]


def _function(serve: Any, specs: tuple[Any, ...]) -> Any:
    # Without autograph, which leaves generated source files in the temporary folder.
    signature = [{spec.name: spec for spec in specs}]
    return tf.function(serve, input_signature=signature, autograph=False)


def _spec(shape: Any, dtype: Any, name: str) -> Any:
    if shape.rank is None:
        raise ModelError("the input has no known shape", subject=name)
    return tf.TensorSpec([1, *shape[1:]], dtype, name=name)
