"""A SavedModel that was just written, converted without being loaded in Python.

The converter's C++ reads the folder. Its Python loads it twice beside that, with all variables and
functions: to see which signatures there are, and for a debug info that is passed on to nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
from tensorflow.core.framework import graph_debug_info_pb2
from tensorflow.lite.python import lite
from tensorflow.python.checkpoint import functional_saver


@dataclass(frozen=True)
class _Described:
    """What the converter asks a loaded SavedModel for.

    Attributes:
        signatures: by name; the functions themselves are not looked at.
        graph_debug_info: where operators were made, of none of them.
    """

    signatures: dict[str, None]
    graph_debug_info: graph_debug_info_pb2.GraphDebugInfo = field(
        default_factory=graph_debug_info_pb2.GraphDebugInfo
    )


@contextlib.contextmanager
def described_by(signatures: Sequence[str]) -> Iterator[None]:
    """Let `tf.lite.TFLiteConverter` take a SavedModel for one with these signatures, unloaded.

    Args:
        signatures: names of all that the folder has.
    """
    # TensorFlow has no public name for it; where another version has none either, it loads.
    own = getattr(lite, "_load", None)
    if own is None:
        yield
        return
    lite._load = lambda *_: _Described(dict.fromkeys(signatures))
    try:
        yield
    finally:
        lite._load = own


@contextlib.contextmanager
def never_saved_again() -> Iterator[None]:
    """Let `tf.saved_model.save` leave out of the graph what would save its variables once more.

    What restores them stays: the converter runs it. The variables themselves are written anyway.
    """
    saver = functional_saver.MultiDeviceSaver
    own = vars(saver).get("_traced_save")
    if own is None:
        yield
        return
    saver._traced_save = lambda _, prefix, *others, **named: tf.identity(prefix)
    try:
        yield
    finally:
        saver._traced_save = own
