"""Inputs and outputs by name.

A Keras model, its .tflite file and TFLite Micro each have an order of inputs, and these differ: the
TFLite converter sorts. An array therefore carries its input's name, the one that the artifact's
signature has, and is put into an order only where a runtime takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from shrink.base.errors import DataError
from shrink.base.types import Array

Named = Mapping[str, Array]
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


def named(arrays: Sequence[Array], names: Sequence[str]) -> dict[str, Array]:
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


def ordered(arrays: Named | Array, names: Sequence[str]) -> list[Array]:
    """Return arrays in the order of these inputs.

    Args:
        arrays: by name; a model with one input takes one array whatever its name.
        names: the inputs, in the order in which something takes them.

    Raises:
        DataError: the arrays are not those of the inputs.
    """
    by_name = {LONE: arrays} if isinstance(arrays, np.ndarray) else arrays
    if len(by_name) == len(names) == 1:
        return list(by_name.values())
    if set(by_name) != set(names):
        raise DataError(
            f"the model's inputs are {', '.join(names)}, the arrays are {', '.join(by_name)}",
            hint="give one array for each input, by its name",
        )
    return [by_name[name] for name in names]


def row_count(arrays: Named) -> int:
    """Return the number of examples that the arrays hold."""
    return len(next(iter(arrays.values())))
