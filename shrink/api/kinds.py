"""What the functions take, for type checkers and editors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from shrink.api.results import Run, RunStage

PathGiven: TypeAlias = "str | os.PathLike[str]"


class KerasModel(Protocol):
    """A model of tf-keras or of Keras 3, whatever its backend."""

    name: Any

    def get_weights(self) -> Any:
        """Return the weights."""

    def get_config(self) -> Any:
        """Return the configuration."""


class Array(Protocol):
    """Anything with rows that NumPy can read, such as its own arrays and tensors."""

    @property
    def shape(self) -> Any:
        """Shape, (n, ...)."""

    @property
    def dtype(self) -> Any:
        """Dtype."""


class Dataset(Protocol):
    """A `tf.data.Dataset` of batches (x, y), as `fit` takes it."""

    @property
    def element_spec(self) -> Any:
        """Of one batch."""

    def as_numpy_iterator(self) -> Any:
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
