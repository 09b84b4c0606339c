"""Let the converter's calibration forget recurrent states between examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.lite.python.optimize.calibrator import Calibrator


@contextmanager
def forgetting_states() -> Iterator[None]:
    """Reset the variables of a model that the TFLite converter calibrates before each example.

    The converter resets them before the first one alone, so that each LSTM starts from where the
    example before left it, and ranges are those of other values than the model ever computes.
    Examples must have the shapes of the model's inputs.
    """
    feed = Calibrator._feed_tensors

    def feed_singly(self: Any, examples: Callable[[], Any], resize_input: bool) -> None:
        for example in examples():
            feed(self, lambda example=example: [example], resize_input)

    Calibrator._feed_tensors = feed_singly
    try:
        yield
    finally:
        Calibrator._feed_tensors = feed
