"""TensorFlow and Keras, imported when an attribute of them is first used.

Modules that measure .tflite files take them from here: such files are evaluated where TensorFlow is
not installed, and need not wait for its import where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shrink.base.lazy import Lazy

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras as keras
else:
    tf, keras = Lazy("tensorflow"), Lazy("tf_keras")

__all__ = ["keras", "tf"]
