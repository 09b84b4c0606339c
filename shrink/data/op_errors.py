"""What TensorFlow's errors say of the data, without what they say of the graph."""

from __future__ import annotations

import tensorflow as tf

_MOST = 300


def reason(error: tf.errors.OpError) -> str:
    """Return the part of TensorFlow's message that is about the data."""
    text = str(error.message).partition(" [Op:")[0].partition("\n\t [[{{")[0]
    return text.rpartition("}} ")[2].strip()[:_MOST] or type(error).__name__
