"""Multiply-accumulates of a .tflite file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shrink.base.measurement import Measured
from shrink.tflite.litert_twin import dense_twin
from shrink.tflite.model import Operator, Subgraph, Tensor, read, values

Inputs = list[Tensor | None]


class UnknownMacsError(Exception):
    """What an operator computes cannot be told from the file; the message says why."""


def count_macs(content: bytes) -> int | None:
    """Return `macs_figure`'s value."""
    return macs_figure(content).value


def macs_figure(content: bytes) -> Measured[int]:
    """Return the multiply-accumulates that one example takes.

    Counted are convolutions (plain, depthwise, transposed, 3-D), fully connected layers, batch
    matrix products and the matrices of recurrent layers; padding counts as computed, as kernels
    and the literature have it. Additions, activations and means are not. Operators in a loop are
    multiplied by its iterations, if it counts up or down to a constant.

    Args:
        content: a .tflite file; where it is made for a batch above 1, the count is divided by it.

    Returns:
        None, with the reason, where an operator's work cannot be told: of a loop that
        counts to no constant, of branches that differ, of custom operators.

    Raises:
        ModelError: the content is no TFLite model.
    """
    counter = MacsCounter(read(dense_twin(content)))
    try:
        total = counter.total()
    except UnknownMacsError as error:
        return Measured(None, f"not counted: {error}")
    graph = counter.graphs[0]
    return Measured(total // _batch([graph.tensors[index] for index in graph.inputs]))


class MacsCounter:
    """Counts the multiply-accumulates of a file's operators.

    Args:
        graphs: the subgraphs of the file, the entry first.
    """

    def __init__(self, graphs: tuple[Subgraph, ...]) -> None:
        self.graphs = graphs

    def total(self) -> int:
        """Return those of the whole model.

        Raises:
            UnknownMacsError: they cannot be told.
        """
        return self._graph(0, ())

    def operator(self, operator: Operator) -> int | None:
        """Return those of one operator of the entry subgraph, None where they cannot be told."""
        try:
            return self._operator(0, operator, ())
        except UnknownMacsError:
            return None

    def _graph(self, index: int, callers: tuple[int, ...]) -> int:
        if index in callers:
            raise UnknownMacsError("a subgraph runs itself")
        inside = (*callers, index)
        return sum(self._operator(index, o, inside) for o in self.graphs[index].operators)

    def _operator(self, index: int, operator: Operator, callers: tuple[int, ...]) -> int:
        if operator.name == "WHILE" and operator.subgraphs:
            body = self._graph(operator.subgraphs[1], callers)
            test = self.graphs[operator.subgraphs[0]].outputs[0]
            return body * self._turns(index, operator, test) if body else 0
        if operator.name == "IF" and operator.subgraphs:
            counts = {self._graph(branch, callers) for branch in operator.subgraphs}
            if len(counts) > 1:
                raise UnknownMacsError("which of two branches runs depends on the example")
            return counts.pop()
        return operator_macs(self.graphs[index], operator)

    def _turns(self, index: int, loop: Operator, tensor: int) -> int:
        """Return the iterations of a loop that counts to a constant, as those of Keras do.

        Args:
            index: of the subgraph with the loop.
            loop: the operator WHILE.
            tensor: of its condition: the loop goes on while it is true.
        """
        condition, body = (self.graphs[i] for i in loop.subgraphs)
        test = _maker(condition, tensor)
        if test is not None and test.name == "LOGICAL_AND":
            return min(self._turns(index, loop, i) for i in test.inputs)
        if test is not None and test.name in _COUNTED and test.inputs[0] in condition.inputs:
            sign, inclusive = _COUNTED[test.name]
            place = condition.inputs.index(test.inputs[0])
            start = _integer(self.graphs[index], loop.inputs[place])
            limit = _integer(condition, test.inputs[1])
            by = sign * _increment(body, body.inputs[place], body.outputs[place])
            if start is not None and limit is not None and by > 0:
                return max(0, -((sign * (start - limit) - inclusive) // by))
        raise UnknownMacsError("how often a loop turns is known only if it counts to a constant")


_COUNTED = {"LESS": (1, 0), "LESS_EQUAL": (1, 1), "GREATER": (-1, 0), "GREATER_EQUAL": (-1, 1)}
"""Tests of a loop's counter: its direction, and 1 if the loop runs at the limit, too."""


def _increment(body: Subgraph, before: int, after: int) -> int:
    """Return the constant that a loop's body adds to its counter; 0 if it adds none."""
    step = _maker(body, after)
    if step is None or before not in step.inputs:
        return 0
    if step.name == "SUB" and step.inputs[0] == before:
        return -(_integer(body, step.inputs[1]) or 0)
    added = (_integer(body, i) for i in step.inputs if step.name == "ADD")
    return next((number for number in added if number is not None), 0)


def _maker(graph: Subgraph, tensor: int) -> Operator | None:
    return next((o for o in graph.operators if tensor in o.outputs), None)


def _integer(graph: Subgraph, index: int) -> int | None:
    """Return the only number of a constant of integers; None of any other tensor."""
    tensor = graph.tensors[index]
    if not tensor.constant or tensor.elements != 1 or tensor.dtype not in ("INT32", "INT64"):
        return None
    stored = values(tensor)
    return None if stored is None else int(stored[0])


def operator_macs(graph: Subgraph, operator: Operator) -> int:
    """Return the multiply-accumulates of an operator that runs no subgraph.

    Raises:
        UnknownMacsError: they cannot be told.
    """
    if operator.custom or operator.name in _OPAQUE:
        raise UnknownMacsError(f"what the operator {operator.name} computes is not known")
    rule = _RULES.get(operator.name)
    outputs = [graph.tensors[i] for i in operator.outputs if i >= 0]
    if rule is None or not outputs:
        return 0
    inputs = [graph.tensors[i] if i >= 0 else None for i in operator.inputs]
    if any(tensor.open_dimensions for tensor in (*inputs, *outputs) if tensor is not None):
        raise UnknownMacsError(f"{operator.name} has a dimension that is known only when it runs")
    count = rule(inputs, outputs[0])
    if count is None:
        raise UnknownMacsError(f"{operator.name} has no kernel of the usual shape")
    return count


def _batch(inputs: list[Tensor]) -> int:
    batches = {tensor.shape[0] for tensor in inputs if len(tensor.shape) > 1}
    return max(1, batches.pop()) if len(batches) == 1 else 1


def _shape(inputs: Inputs, index: int, rank: int) -> tuple[int, ...] | None:
    """Return the shape of an input, None where it is left out or of another rank."""
    tensor = inputs[index] if index < len(inputs) else None
    return tensor.shape if tensor is not None and len(tensor.shape) == rank else None


def _convolution(inputs: Inputs, output: Tensor) -> int | None:
    kernel = _shape(inputs, 1, 4)  # (out, height, width, in / groups)
    return output.elements * kernel[1] * kernel[2] * kernel[3] if kernel else None


def _depthwise(inputs: Inputs, output: Tensor) -> int | None:
    kernel = _shape(inputs, 1, 4)  # (1, height, width, out)
    return output.elements * kernel[1] * kernel[2] if kernel else None


def _transposed(inputs: Inputs, output: Tensor) -> int | None:
    kernel, source = _shape(inputs, 1, 4), inputs[2] if len(inputs) > 2 else None
    if kernel is None or source is None:
        return None
    return source.elements * kernel[0] * kernel[1] * kernel[2]  # (out, height, width, in)


def _convolution_3d(inputs: Inputs, output: Tensor) -> int | None:
    kernel = _shape(inputs, 1, 5)  # (depth, height, width, in / groups, out)
    return output.elements * kernel[0] * kernel[1] * kernel[2] * kernel[3] if kernel else None


def _transposed_3d(inputs: Inputs, output: Tensor) -> int | None:
    kernel, source = _shape(inputs, 1, 5), inputs[2] if len(inputs) > 2 else None
    if kernel is None or source is None:
        return None
    return source.elements * kernel[0] * kernel[1] * kernel[2] * kernel[3]  # (d, h, w, out, in)


def _fully_connected(inputs: Inputs, output: Tensor) -> int | None:
    matrix = _shape(inputs, 1, 2)  # (out, in)
    return output.elements * matrix[1] if matrix else None


def _batch_matmul(inputs: Inputs, output: Tensor) -> int | None:
    left = inputs[0]
    if left is None or len(left.shape) < 2 or len(output.shape) < 2 or not output.shape[-2]:
        return None
    # The left matrix's rows are the output's; the other side is the inner one, transposed or not.
    return output.elements * (left.shape[-2] * left.shape[-1] // output.shape[-2])


def _each_step(inputs: Inputs, positions: tuple[int, ...]) -> int | None:
    """Return the elements of some matrices, each applied once a step of the sequence."""
    source = inputs[0]
    if source is None or not source.shape or not source.shape[-1]:
        return None
    used = [inputs[i] for i in positions if i < len(inputs)]
    matrices = sum(tensor.elements for tensor in used if tensor is not None)
    return source.elements // source.shape[-1] * matrices


def _lstm(inputs: Inputs, output: Tensor) -> int | None:
    # Inputs 1-4 and 5-8 are the gates' matrices, 16 the projection.
    return _each_step(inputs, (*range(1, 9), 16))


def _rnn(inputs: Inputs, output: Tensor) -> int | None:
    return _each_step(inputs, (1, 2))  # of the input and of the state; in SVDF of features and time


_RULES: Mapping[str, Callable[[Inputs, Tensor], int | None]] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transposed,
    "CONV_3D": _convolution_3d,
    "CONV_3D_TRANSPOSE": _transposed_3d,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
    "RNN": _rnn,
    "SVDF": _rnn,
}
_OPAQUE = frozenset(
    {
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        "CALL",
        "DELEGATE",
        "STABLEHLO_COMPOSITE",
        "STABLEHLO_CONVOLUTION",
        "STABLEHLO_CUSTOM_CALL",
        "STABLEHLO_DOT_GENERAL",
        "STABLEHLO_WHILE",
    }
)
"""Operators that multiply, or may, and for which there is no rule."""
