"""What a model of any form calls its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tf_keras as keras

from shrink.data.dataset import Dataset
from shrink.data.matching import Aliases, ModelNames, places_by_name
from shrink.tflite.interpreter import load
from shrink.tflite.names import natural_order, signature_names
from shrink.tflite.names import output_names as signature_outputs
from shrink.tflite.serving import load_signature


def keras_names(model: keras.Model) -> ModelNames:
    """Return the names of a Keras model: its layers', and the keys where it takes or gives a dict.

    Args:
        model: functional or sequential.
    """
    return ModelNames(
        _aliases(signature_names(model.input_names), model.input_names, model._nested_inputs),
        _aliases(signature_outputs(model.output_names), model.output_names, model._nested_outputs),
    )


def artifact_names(artifact: Path) -> ModelNames:
    """Return the names of a .tflite file: its signature's, else its tensors', in its order."""
    runner = load(artifact)
    return ModelNames(
        tuple((detail.name,) for detail in runner.input_details),
        tuple((detail.name,) for detail in runner.output_details),
    )


def saved_model_names(folder: Path) -> ModelNames:
    """Return the names of a scanned SavedModel's signature, sorted, as it is converted."""
    _, signature = load_signature(folder)
    outputs = natural_order(signature.structured_outputs)
    return ModelNames(
        tuple((name,) for name in natural_order(signature.structured_input_signature[1])),
        _aliases(signature_outputs(outputs), outputs, None),
    )


def fed_like(model: keras.Model, dataset: Dataset) -> keras.Model:
    """Return a model that takes and gives what the data set has, in the data set's order.

    By name, as far as its names are those of the data set: a teacher has an order of its own.

    Args:
        model: any functional model.
        dataset: in the order of another model.
    """
    names = keras_names(model)
    inputs = _places(names.inputs, (dataset.input_names, dataset.input_arrays))
    outputs = _places(names.outputs, (dataset.target_names, dataset.target_arrays))
    if inputs == sorted(inputs) and outputs == sorted(outputs):
        return model
    return keras.Model(
        [model.inputs[place] for place in inputs],
        [model.outputs[place] for place in outputs],
        name=model.name,
    )


def _places(own: Sequence[Aliases], known: Sequence[Sequence[str]]) -> list[int]:
    """Return which of the model's own takes the place of each of the data set's."""
    if len(own) > 1:
        for names in known:
            found = places_by_name(names, own)
            if found is not None:
                return [found.index(place) for place in range(len(found))]
    return list(range(len(own)))


def _aliases(
    signature: Sequence[str], layers: Sequence[str], structure: Any
) -> tuple[Aliases, ...]:
    keys = sorted(structure) if isinstance(structure, Mapping) else []
    if len(keys) != len(signature):
        keys = list(layers)
    every = zip(signature, layers, keys, strict=True)
    return tuple(tuple(dict.fromkeys(map(str, names))) for names in every)
