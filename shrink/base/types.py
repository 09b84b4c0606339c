"""Names for values whose types no library publishes.

TensorFlow and Keras ship no types: `tf.Tensor`, `tf.Variable`, `keras.Model` and
`keras.layers.Layer` say what a value is and are used as they are. What these do not name
is named here, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from shrink.base.foreign import Json as Json
from shrink.base.foreign import JsonObject as JsonObject

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""A NumPy array of any shape and dtype; its docstring says which."""

Tensors: TypeAlias = Any
"""A tensor, or a nested list, tuple or dict of tensors, as a Keras model takes and gives them."""

Specs: TypeAlias = Any
"""A `tf.TensorSpec` of one example, or a nested tuple or dict of them."""
