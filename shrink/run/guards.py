"""A look at a model file in a process of its own, before a worker is given it."""

from __future__ import annotations

from shrink.model.guard import guard_model_file
from shrink.model.reference import ModelReference
from shrink.model.scan import SCANNED
from shrink.model.trust import Trust
from shrink.tflite.guard import guard_artifact


def guard_reference(reference: ModelReference, trust: Trust, to_be_quantized: bool = False) -> None:
    """Scan a Keras model's file, or try a .tflite file; what is code anyway passes.

    Args:
        reference: the model.
        trust: what may pass that is not Keras' own.
        to_be_quantized: whether a .tflite file must be a float one.

    Raises:
        ModelError: it is damaged, refused, or brings down the process that looks at it.
    """
    if reference.kind in SCANNED:
        guard_model_file(reference.path, trust)
    elif reference.kind == "tflite":
        guard_artifact(reference.path, to_be_quantized=to_be_quantized)
