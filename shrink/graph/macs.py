"""Multiply-accumulates of one example, from the operators of a .tflite file."""

from __future__ import annotations

from collections.abc import Callable

from shrink.tflite.flatbuffer import Operator, Subgraph, Tensor, read

Inputs = list[Tensor | None]


def count_macs(content: bytes) -> int:
    """Return the multiply-accumulates that one example takes.

    Counted are convolutions (plain, depthwise, transposed, 3-D), fully connected layers, batch
    matrix products and the matrices of LSTMs, in the model's entry subgraph; padding counts as
    computed, as kernels and the literature have it. Additions, activations and means are not.

    Args:
        content: a .tflite file; where it is made for a batch above 1, the count is divided by it.

    Raises:
        ModelError: the content is no TFLite model.
    """
    graph = read(content)[0]
    total = sum(operator_macs(graph, operator) for operator in graph.operators)
    return total // _batch([graph.tensors[index] for index in graph.inputs])


def operator_macs(graph: Subgraph, operator: Operator) -> int:
    """Return the multiply-accumulates of one operator, as `count_macs` counts them."""
    rule = _RULES.get(operator.name)
    outputs = [graph.tensors[i] for i in operator.outputs if i >= 0]
    if rule is None or not outputs:
        return 0
    return rule([graph.tensors[i] if i >= 0 else None for i in operator.inputs], outputs[0])


def _batch(inputs: list[Tensor]) -> int:
    sides = {tensor.shape[0] for tensor in inputs if len(tensor.shape) > 1}
    return max(1, sides.pop()) if len(sides) == 1 else 1


def _shape(inputs: Inputs, index: int, rank: int) -> tuple[int, ...] | None:
    """Return the shape of an input, None where it is left out or of another rank."""
    tensor = inputs[index] if index < len(inputs) else None
    return tensor.shape if tensor is not None and len(tensor.shape) == rank else None


def _convolution(inputs: Inputs, output: Tensor) -> int:
    kernel = _shape(inputs, 1, 4)  # (out, height, width, in / groups)
    return output.elements * kernel[1] * kernel[2] * kernel[3] if kernel else 0


def _depthwise(inputs: Inputs, output: Tensor) -> int:
    kernel = _shape(inputs, 1, 4)  # (1, height, width, out)
    return output.elements * kernel[1] * kernel[2] if kernel else 0


def _transposed(inputs: Inputs, output: Tensor) -> int:
    kernel, source = _shape(inputs, 1, 4), inputs[2] if len(inputs) > 2 else None
    if kernel is None or source is None:
        return 0
    return source.elements * kernel[0] * kernel[1] * kernel[2]  # (out, height, width, in)


def _convolution_3d(inputs: Inputs, output: Tensor) -> int:
    kernel = _shape(inputs, 1, 5)  # (depth, height, width, in / groups, out)
    return output.elements * kernel[0] * kernel[1] * kernel[2] * kernel[3] if kernel else 0


def _fully_connected(inputs: Inputs, output: Tensor) -> int:
    matrix = _shape(inputs, 1, 2)  # (out, in)
    return output.elements * matrix[1] if matrix else 0


def _batch_matmul(inputs: Inputs, output: Tensor) -> int:
    left = inputs[0]
    if left is None or len(left.shape) < 2 or len(output.shape) < 2 or not output.shape[-2]:
        return 0
    # The left matrix's rows are the output's; the other side is the inner one, transposed or not.
    return output.elements * (left.shape[-2] * left.shape[-1] // output.shape[-2])


def _lstm(inputs: Inputs, output: Tensor) -> int:
    source = inputs[0]
    if source is None or not source.shape or not source.shape[-1]:
        return 0
    # Inputs 1-4 and 5-8 are the gates' matrices, 16 the projection; each is applied once a step.
    used = [inputs[i] for i in (*range(1, 9), 16) if i < len(inputs)]
    matrices = sum(tensor.elements for tensor in used if tensor is not None)
    return source.elements // source.shape[-1] * matrices


_RULES: dict[str, Callable[[Inputs, Tensor], int]] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transposed,
    "CONV_3D": _convolution_3d,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "LSTM": _lstm,
}
