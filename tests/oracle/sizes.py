"""Bytes, parameters and zeros of artifacts."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

from tests.oracle.flatbuffer import File, Operator, Tensor, read

KERNEL_INPUT = {
    "CONV_2D": 1,
    "CONV_3D": 1,
    "DEPTHWISE_CONV_2D": 1,
    "TRANSPOSE_CONV": 1,
    "FULLY_CONNECTED": 1,
}
"""Operators with one kernel, and which input that is."""
BIASES = {
    **{name: (kernel + 1,) for name, kernel in KERNEL_INPUT.items()},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (12, 13, 14, 15),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (3,),
}
"""Inputs that hold biases, which integer kernels take as int32 or int64."""
STATES = {"UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19), "UNIDIRECTIONAL_SEQUENCE_RNN": (4,)}
"""Inputs that hold a state: what was given out last, and the cell."""
SHAPES = {
    "RESHAPE": (1,),
    "SQUEEZE": (),
    "TRANSPOSE": (1,),
    "TRANSPOSE_CONV": (0,),
    "MEAN": (1,),
    "SUM": (1,),
    "REDUCE_MAX": (1,),
    "REDUCE_MIN": (1,),
    "REDUCE_PROD": (1,),
    "PAD": (1,),
    "PADV2": (1, 2),
    "MIRROR_PAD": (1,),
    "SLICE": (1, 2),
    "STRIDED_SLICE": (1, 2, 3),
    "SPLIT": (0,),
    "SPLIT_V": (1, 2),
    "EXPAND_DIMS": (1,),
    "TILE": (1,),
    "FILL": (0,),
    "BROADCAST_TO": (1,),
    "RESIZE_BILINEAR": (1,),
    "RESIZE_NEAREST_NEIGHBOR": (1,),
    "ARG_MAX": (1,),
    "REVERSE_V2": (1,),
}
"""Inputs that say how an operator works: shapes, axes, paddings. They are not learned."""


def file_figures(path: Path) -> dict[str, int | str]:
    """Return file_bytes, gzip_bytes (level 9, no name, no time) and sha256."""
    content = path.read_bytes()
    return {
        "file_bytes": len(content),
        "gzip_bytes": len(gzip.compress(content, 9, mtime=0)),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def constants(file: File) -> Iterator[Tensor]:
    """Yield the operators' constant inputs that hold parameters: weights and biases.

    A scalar is none: it is a setting, such as the factor of a `Rescaling`.
    """
    for graph in file.graphs:
        for op in graph.operators:
            for place, tensor in enumerate(op.inputs):
                if tensor is not None and _learned(file, op, place, tensor):
                    yield tensor


def _learned(file: File, op: Operator, place: int, tensor: Tensor) -> bool:
    if tensor.values is None or not tensor.shape or place in SHAPES.get(op.name, ()):
        return False
    if tensor.dtype in ("int32", "int64", "bool"):
        # Else an index, a limit, a mask's 0.
        return place in BIASES.get(op.name, ())
    return not _starts_a_state(file, op, place)


def _starts_a_state(file: File, op: Operator, place: int) -> bool:
    """Tell whether a loop changes what it is given here: a state's start is no parameter."""
    if op.name in STATES:
        return place in STATES[op.name]
    if op.name == "DEQUANTIZE":
        widened = op.outputs[0]
        readers = [
            (reader, at)
            for graph in file.graphs
            for reader in graph.operators
            for at, tensor in enumerate(reader.inputs)
            if tensor is widened
        ]
        return bool(readers) and all(_starts_a_state(file, *reader) for reader in readers)
    if op.name != "WHILE":
        return False
    body = file.graphs[op.options.bodySubgraphIndex]
    return body.outputs[place].index != body.inputs[place].index


def count_parameters(path: Path) -> tuple[int, int]:
    """Return the elements of all weights and biases of a file, and how many are not zero.

    What the file holds once counts once, whoever shares it: zero biases of an LSTM's gates do.
    Shapes, axes and paddings do not count.
    """
    seen: dict[int, tuple[int, int]] = {}
    for tensor in constants(read(path)):
        seen[tensor.buffer] = (tensor.size, tensor.size - tensor.zeros)
    return sum(s for s, _ in seen.values()), sum(n for _, n in seen.values())
