"""Named arrays of a data set and the inputs and outputs of a model: which array goes where.

By name, where the arrays are called as the model calls its inputs, whatever their order in the
recipe; by position where no array is, with a note that says what goes where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base.errors import DataError
from shrink.base.keras_internals import input_structure, output_structure
from shrink.data.dataset import Dataset
from shrink.data.examples import Examples
from shrink.data.views import View
from shrink.tflite.interpreter import load
from shrink.tflite.lazy import keras
from shrink.tflite.names import natural_order, signature_names
from shrink.tflite.names import output_names as signature_outputs

Aliases = tuple[str, ...]


@dataclass(frozen=True)
class ModelNames:
    """What a model calls its inputs and outputs, in its order.

    Attributes:
        inputs: every name of each input, first the one that its artifact's signature has.
        outputs: likewise; a recipe calls an output by any of its names.
    """

    inputs: tuple[Aliases, ...]
    outputs: tuple[Aliases, ...]


def needs_names(dataset: Dataset) -> bool:
    """Whether there is anything to match: several inputs, or several targets."""
    return max(len(dataset.input_names), len(dataset.target_names)) > 1


def in_model_order(dataset: Dataset, model: ModelNames) -> Dataset:
    """Return the data set with its inputs and targets in the order of a model.

    Its arrays then have the model's names. Where there are not as many arrays as inputs, or targets
    as outputs, that side stays as it is, for `check_shapes` to refuse.

    Raises:
        DataError: by position an array would go to another input than the one of its name.
    """
    inputs, said = _order(dataset.input_names, model.inputs, "input")
    if dataset.target_names == dataset.input_names:  # an autoencoder's are one
        targets, said_of_targets = inputs, ""
    else:
        targets, said_of_targets = _order(dataset.target_names, model.outputs, "output")
    return replace(
        dataset,
        train=_arranged(dataset.train, inputs, targets),
        validation=_arranged(dataset.validation, inputs, targets),
        test=_arranged(dataset.test, inputs, targets),
        input_names=_first(model.inputs, dataset.input_names, inputs),
        target_names=_first(model.outputs, dataset.target_names, targets),
        input_arrays=tuple(dataset.input_names[index] for index in inputs),
        target_arrays=tuple(dataset.target_names[index] for index in targets),
        notes=(*dataset.notes, *filter(None, (said, said_of_targets))),
    )


def indices_by_name(names: Sequence[str], wanted: Sequence[Aliases]) -> list[int] | None:
    """Return the index among the given names of each thing wanted; None where not all match."""
    indices = [[i for i, name in enumerate(names) if name in aliases] for aliases in wanted]
    if len(names) != len(wanted) or any(len(matches) != 1 for matches in indices):
        return None
    flat = [matches[0] for matches in indices]
    return flat if len(set(flat)) == len(names) else None


def _order(arrays: Sequence[str], wanted: Sequence[Aliases], kind: str) -> tuple[list[int], str]:
    """Return the index of each input's array, and what to say about it."""
    straight = list(range(len(arrays)))
    if len(arrays) < 2 or len(arrays) != len(wanted):
        return straight, ""
    by_name = indices_by_name(arrays, wanted)
    if by_name is not None:
        return by_name, ""
    names = [aliases[0] for aliases in wanted]
    for name, aliases in zip(arrays, wanted, strict=True):
        own = next((other[0] for other in wanted if name in other), None)
        if own is not None and name not in aliases:
            raise DataError(
                f"by position the array {name} belongs to the model's {kind} {aliases[0]}, but it "
                f"has the name of its {kind} {own}; the {kind}s are {', '.join(names)}, the arrays "
                f"{', '.join(arrays)}",
                subject=f"data.{_KEYS[kind]}",
                hint=f"name all arrays like the {kind}s, or none and use the model's order",
            )
    pairs = ", ".join(f"{name} to {one}" for name, one in zip(arrays, names, strict=True))
    key = _KEYS[kind]
    return straight, f"{key} by position, as their names are not the model's: {pairs}"


_KEYS = {"input": "inputs", "output": "targets"}


def _first(
    model: Sequence[Aliases], names: tuple[str, ...], order: Sequence[int]
) -> tuple[str, ...]:
    return tuple(one[0] for one in model) if len(model) == len(order) > 1 else names


def _arranged(examples: Examples, inputs: list[int], targets: list[int]) -> Examples:
    if inputs == sorted(inputs) and targets == sorted(targets):
        return examples
    return View(examples, inputs=inputs, targets=targets)


def keras_names(model: keras.Model) -> ModelNames:
    """Return the names of a Keras model: its layers', and the keys where it takes or gives a dict.

    Args:
        model: functional or sequential.
    """
    return ModelNames(
        _aliases(signature_names(model.input_names), model.input_names, input_structure(model)),
        _aliases(
            signature_outputs(model.output_names), model.output_names, output_structure(model)
        ),
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
    from shrink.tflite.serving import load_signature

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
    inputs = _indices(names.inputs, (dataset.input_names, dataset.input_arrays))
    outputs = _indices(names.outputs, (dataset.target_names, dataset.target_arrays))
    if inputs == sorted(inputs) and outputs == sorted(outputs):
        return model
    return keras.Model(
        [model.inputs[index] for index in inputs],
        [model.outputs[index] for index in outputs],
        name=model.name,
    )


def _indices(own: Sequence[Aliases], known: Sequence[Sequence[str]]) -> list[int]:
    """Return which of the model's own takes the place of each of the data set's."""
    if len(own) > 1:
        for names in known:
            indices = indices_by_name(names, own)
            if indices is not None:
                return [indices.index(index) for index in range(len(indices))]
    return list(range(len(own)))


def _aliases(
    signature: Sequence[str], layers: Sequence[str], structure: object
) -> tuple[Aliases, ...]:
    keys = sorted(structure) if isinstance(structure, Mapping) else []
    if len(keys) != len(signature):
        keys = list(layers)
    every = zip(signature, layers, keys, strict=True)
    return tuple(tuple(dict.fromkeys(map(str, names))) for names in every)
