"""Inputs and outputs by name.

A Keras model, its .tflite file and TFLite Micro each have an order of inputs, and these differ: the
TFLite converter sorts. An array therefore carries its input's name, the one that the artifact's
signature has, and is put into an order only where a runtime takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError, ModelError
from shrink.tflite.branches import traced

Named = Mapping[str, np.ndarray[Any, Any]]
"""Arrays (n, ...) by the name of the model's input, as `signature_names` has it."""

LONE = "x"
"""What a lone array is called: a model with one input takes it whatever its input's name is."""

LONE_OUTPUT = "output_0"
"""What the signature of an artifact calls a single output, whatever the Keras model called it."""


def signature_names(names: Sequence[str]) -> list[str]:
    """Return one legal and unique signature name for each Keras input name, in the same order."""
    plain = [re.sub(r"\W", "_", name) for name in names]
    if len(set(plain)) == len(plain):
        return plain
    return [f"{name}_{index}" for index, name in enumerate(plain)]


def output_names(names: Sequence[str]) -> list[str]:
    """Return the signature names of a Keras model's outputs; a single one is LONE_OUTPUT."""
    return [LONE_OUTPUT] if len(names) == 1 else signature_names(names)


def natural_order(names: Iterable[str]) -> list[str]:
    """Return names sorted, with the numbers in them by their value: output_2 before output_10."""
    return sorted(names, key=lambda name: [_numeric(part) for part in re.split(r"(\d+)", name)])


def _numeric(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


def named(arrays: Sequence[np.ndarray[Any, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return arrays by name.

    Args:
        arrays: one for each input of a model.
        names: of these inputs, in the order of the arrays; a lone array may do without.

    Raises:
        DataError: there are not as many names as arrays.
    """
    if len(arrays) == 1 and len(names) <= 1:
        return {(*names, LONE)[0]: arrays[0]}
    if len(arrays) != len(names):
        raise DataError(
            f"there are {len(arrays)} arrays for {len(names)} inputs ({', '.join(names)})",
            subject="data.inputs",
            hint="name one array for each input of the model",
        )
    return dict(zip(names, arrays, strict=True))


def ordered(
    arrays: Named | np.ndarray[Any, Any], names: Sequence[str]
) -> list[np.ndarray[Any, Any]]:
    """Return arrays in the order of these inputs.

    Args:
        arrays: by name; a model with one input takes one array whatever its name.
        names: the inputs, in the order in which something takes them.

    Raises:
        DataError: the arrays are not those of the inputs.
    """
    given = {LONE: arrays} if isinstance(arrays, np.ndarray) else arrays
    if len(given) == len(names) == 1:
        return list(given.values())
    if set(given) != set(names):
        raise DataError(
            f"the model's inputs are {', '.join(names)}, the arrays are {', '.join(given)}",
            hint="give one array for each input, by its name",
        )
    return [given[name] for name in names]


def row_count(arrays: Named) -> int:
    """Return the number of examples that the arrays hold."""
    return len(next(iter(arrays.values())))


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
    return traced(serve, input_signature=[{spec.name: spec for spec in specs}])


def _spec(shape: Any, dtype: Any, name: str) -> Any:
    if shape.rank is None:
        raise ModelError("the input has no known shape", subject=name)
    return tf.TensorSpec([1, *shape[1:]], dtype, name=name)
