"""Models saved by Keras 3, rebuilt from tf-keras' layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tf_keras as keras

from shrink.errors import ModelError


def import_keras3(path: Path, config: Any) -> keras.Model:
    """Return the tf-keras model that computes what a model of Keras 3 computes."""
    raise ModelError("Keras 3 saved it, and shrink trains with tf-keras 2", subject=path)
