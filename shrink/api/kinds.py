"""Types of the functions' arguments, for type checkers and editors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from shrink.api.results import Run, RunStage

PathGiven: TypeAlias = "str | os.PathLike[str]"


class KerasModel(Protocol):
    """A model of tf-keras or of Keras 3, whatever its backend."""

    @property
    def name(self) -> str:
        """Name."""

    def get_weights(self) -> object:
        """Return the weights."""

    def get_config(self) -> object:
        """Return the configuration."""


class Array(Protocol):
    """Anything with rows that NumPy can read, such as its own arrays and tensors."""

    @property
    def shape(self) -> object:
        """Shape, (n, ...)."""

    @property
    def dtype(self) -> object:
        """Dtype."""


class Dataset(Protocol):
    """A `tf.data.Dataset` of batches (x, y), as `fit` takes it."""

    @property
    def element_spec(self) -> object:
        """Of one batch."""

    def as_numpy_iterator(self) -> object:
        """Return an iterator of arrays."""


Columns: TypeAlias = "Array | Mapping[str, Array]"
"""An array, or several by name."""
Split: TypeAlias = "tuple[Columns, Columns] | Dataset"
"""Inputs and targets of one split."""
ModelGiven: TypeAlias = "PathGiven | KerasModel | Run | RunStage"
DataGiven: TypeAlias = (
    "PathGiven | Mapping[str, object] | Split | tuple[tuple[Columns, Columns], "
    "tuple[Columns, Columns]] | None"
)
