"""Temperature and alpha over the updates of a training."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from shrink.stages.distill.config import Ramp


def value_at(setting: float | Ramp, progress: Any) -> Any:
    """Return a setting at some point of the training.

    Args:
        setting: a number, or how it changes.
        progress: fraction of the updates made so far, 0 to 1, a float32 () tensor.

    Returns:
        A float for a constant setting, else float32 ().
    """
    if not isinstance(setting, Ramp):
        return setting
    share = tf.clip_by_value(progress / setting.until, 0.0, 1.0)
    if setting.shape == "cosine":
        share = (1.0 - tf.cos(math.pi * share)) / 2.0
    return setting.start + (setting.end - setting.start) * share
