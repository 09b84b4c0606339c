"""TensorFlow and Keras, imported when an attribute of them is first used.

Modules that measure .tflite files take them from here: such files are evaluated where TensorFlow is
not installed, and need not wait for its import where it is.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras as keras
else:
    tf, keras = _Lazy("tensorflow"), _Lazy("tf_keras")

__all__ = ["keras", "tf"]
