"""A look at a model file in a process of its own, before a worker is given it."""

from __future__ import annotations

from shrink.model.guard import guard_model_file
from shrink.model.scan import SCANNED
from shrink.model.trust import Trust
from shrink.recipe.reference import ModelReference
from shrink.tflite.guard import guard_artifact


def guard_reference(reference: ModelReference, trust: Trust) -> None:
    """Scan a Keras model's file, or try a .tflite file; what is code anyway passes.

    Raises:
        ModelError: it is damaged, refused, or brings down the process that looks at it.
    """
    if reference.kind in SCANNED:
        guard_model_file(reference.path, trust)
    elif reference.kind == "tflite":
        guard_artifact(reference.path)
