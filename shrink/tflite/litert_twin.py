"""Files that TFLite Micro runs and LiteRT refuses, in a form that LiteRT runs."""

from __future__ import annotations

import copy

from ai_edge_litert import schema_py_generated as schema

from shrink.tflite.decode import NOT_IN_LITERT, dense_twin, has_decode
from shrink.tflite.model import Tensor, packed, read, unpacked

OUT_OF_RANK = (
    "LiteRT refuses this file: tensors are quantized along a dimension that they do not have, as "
    "converters of 2020 wrote biases"
)


def litert_twin(content: bytes) -> bytes:
    """Return a file that computes the same and that LiteRT runs; the same one where it does.

    Raises:
        ModelError: it is no TFLite model, or a constant cannot be decoded.
    """
    content = dense_twin(content)
    if not _is_out_of_rank(content):
        return content
    model = unpacked(content)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            rank = 0 if tensor.shape is None else len(tensor.shape)
            tensor.quantization = in_rank(tensor.quantization, rank)
    return packed(model)


def not_in_litert(content: bytes) -> str:
    """Return why LiteRT does not run a file as it is; empty where nothing of this kind is known.

    Raises:
        ModelError: it is no TFLite model.
    """
    if has_decode(content):
        return NOT_IN_LITERT
    return OUT_OF_RANK if _is_out_of_rank(content) else ""


def in_rank(
    stored: schema.QuantizationParametersT | None, rank: int
) -> schema.QuantizationParametersT | None:
    """Return a tensor's quantization along a dimension that it has.

    Converters of 2020 gave biases the dimension of their kernels, 3: LiteRT refuses such files,
    which TFLite Micro runs.
    """
    if stored is None or stored.quantizedDimension < max(1, rank):
        return stored
    moved = copy.copy(stored)
    moved.quantizedDimension = 0
    return moved


def _is_out_of_rank(content: bytes) -> bool:
    return any(_lies_outside(tensor) for graph in read(content) for tensor in graph.tensors)


def _lies_outside(tensor: Tensor) -> bool:
    return bool(tensor.scales) and tensor.quantized_dimension >= max(1, len(tensor.shape))
