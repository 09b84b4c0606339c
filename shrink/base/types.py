"""Type aliases for arrays and other values without a published type.

TensorFlow and Keras ship no types: `tf.Tensor`, `tf.Variable`, `keras.Model` and
`keras.layers.Layer` say what a value is and are used as they are. What these do not name
is named here, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from shrink.base.foreign import Json as Json
from shrink.base.foreign import JsonObject as JsonObject

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""A NumPy array of any shape and dtype; its docstring says which."""

Tensors: TypeAlias = Any
"""A tensor, or a nested list, tuple or dict of tensors, as a Keras model takes and gives them."""


@dataclass(frozen=True)
class Spec:
    """Shape and stored dtype of one array of an example, without the batch."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size of one example's array."""
        return math.prod(self.shape) * self.dtype.itemsize


Specs: TypeAlias = Any
"""A `Spec`, or a nested tuple or dict of them."""


def leaves(values: Any) -> list[Any]:
    """Return what nested tuples, lists and dicts (by sorted keys) hold, as `tf.nest.flatten`."""
    if isinstance(values, dict):
        values = [values[key] for key in sorted(values)]
    if isinstance(values, tuple | list):
        return [leaf for part in values for leaf in leaves(part)]
    return [values]
