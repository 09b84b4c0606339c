"""Multiply-accumulates of a .tflite file."""

from __future__ import annotations

import operator as arithmetic
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from shrink.base.measurement import Measured
from shrink.tflite.litert_twin import dense_twin
from shrink.tflite.model import Operator, Subgraph, Tensor, read, values

Known = Mapping[int, float]
"""Tensors of one number whose value is known, by their index."""

_MOST_ITERATIONS = 100_000
_NUMBERS: Mapping[str, type] = {
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
    "FLOAT32": np.float32,
}


class Scalars:
    """Works out the single numbers of a file's subgraphs, as far as they follow from constants.

    Args:
        graphs: the subgraphs.
    """

    def __init__(self, graphs: tuple[Subgraph, ...]) -> None:
        self.graphs = graphs
        self._prepared: dict[int, tuple[Known, list[Operator]]] = {}

    def known(self, index: int, inputs: Known) -> Known:
        """Return all known numbers of a subgraph, from those of its inputs."""
        constants, operators = self._prepare(index)
        tensors = self.graphs[index].tensors
        numbers = {**constants, **inputs}
        for operator in operators:
            arguments = [numbers.get(i) for i in _arguments(operator)]
            known = [argument for argument in arguments if argument is not None]
            if len(known) == len(arguments):
                (output,) = operator.outputs
                numbers[output] = _stored(_FUNCTIONS[operator.name](*known), tensors[output])
        return numbers

    def _prepare(self, index: int) -> tuple[Known, list[Operator]]:
        if index not in self._prepared:
            graph = self.graphs[index]
            constants = {
                position: number
                for position, tensor in enumerate(graph.tensors)
                if (number := _number(tensor)) is not None
            }
            self._prepared[index] = constants, [o for o in graph.operators if _is_scalar(graph, o)]
        return self._prepared[index]


def loop_states(scalars: Scalars, index: int, loop: Operator, known: Known) -> list[Known] | None:
    """Return, for each turn of a loop, the numbers that its body is given.

    Args:
        scalars: of the file.
        index: of the subgraph that the loop stands in.
        loop: the operator WHILE.
        known: numbers of that subgraph.

    Returns:
        None where its end depends on anything but numbers that follow from constants.
    """
    condition, body = (scalars.graphs[i] for i in loop.subgraphs)
    test, iteration = loop.subgraphs
    state = [known.get(i) for i in loop.inputs]
    states: list[Known] = []
    while True:
        goes_on = scalars.known(test, _bound(condition.inputs, state)).get(condition.outputs[0])
        if goes_on is None or len(states) > _MOST_ITERATIONS:
            return None
        if not goes_on:
            return states
        inputs = _bound(body.inputs, state)
        states.append(inputs)
        after = scalars.known(iteration, inputs)
        state = [after.get(i) for i in body.outputs]


def _bound(indices: Iterable[int], numbers: Iterable[float | None]) -> Known:
    pairs = zip(indices, numbers, strict=False)
    return {index: number for index, number in pairs if number is not None}


def _number(tensor: Tensor) -> float | None:
    if not tensor.constant or tensor.elements != 1 or tensor.dtype not in _NUMBERS or tensor.scales:
        return None
    if tensor.dtype == "BOOL":
        return float(tensor.data[0] != 0)
    stored = values(tensor)
    return None if stored is None or not len(stored) else float(stored[0])


def _stored(number: float, tensor: Tensor) -> float:
    """Return a number as a tensor holds it: whole ones are cut off, others rounded to float32."""
    return float(np.float64(number).astype(_NUMBERS[tensor.dtype]))


def _is_scalar(graph: Subgraph, operator: Operator) -> bool:
    """Whether an operator makes one number of single numbers, and is known here."""
    if operator.name not in _FUNCTIONS or len(operator.outputs) != 1:
        return False
    indices = (*_arguments(operator), *operator.outputs)
    return all(index >= 0 and _one_number(graph.tensors[index]) for index in indices)


def _arguments(operator: Operator) -> tuple[int, ...]:
    """Return the inputs that hold numbers, without the shape that a RESHAPE is given."""
    return operator.inputs[:1] if operator.name in _UNCHANGED else operator.inputs


def _one_number(tensor: Tensor) -> bool:
    return tensor.elements == 1 and tensor.dtype in _NUMBERS and not tensor.open_dimensions


_UNCHANGED = ("RESHAPE", "CAST")
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "ADD": arithmetic.add,
    "SUB": arithmetic.sub,
    "MUL": arithmetic.mul,
    "MINIMUM": min,
    "MAXIMUM": max,
    "LESS": arithmetic.lt,
    "LESS_EQUAL": arithmetic.le,
    "GREATER": arithmetic.gt,
    "GREATER_EQUAL": arithmetic.ge,
    "EQUAL": arithmetic.eq,
    "NOT_EQUAL": arithmetic.ne,
    "LOGICAL_AND": lambda a, b: bool(a and b),
    "LOGICAL_OR": lambda a, b: bool(a or b),
    "LOGICAL_NOT": arithmetic.not_,
    "NEG": arithmetic.neg,
    "CAST": float,
    "RESHAPE": float,
}
"""What the counters and conditions of loops are made of."""


Inputs = list[Tensor | None]

_LOOP, _BRANCH = "WHILE", "IF"


class UnknownMacsError(Exception):
    """What an operator computes cannot be told from the file; the message says why."""


def count_macs(content: bytes) -> int | None:
    """Return `macs_figure`'s value."""
    return macs_figure(content).value


def macs_figure(content: bytes) -> Measured[int]:
    """Return the multiply-accumulates that one example takes.

    Counted are convolutions (plain, depthwise, transposed, 3-D), fully connected layers, batch
    matrix products and the matrices of recurrent layers; padding counts as computed, as kernels
    and the literature have it. Additions, activations and means are not. What stands in a loop
    counts once for each of its iterations, whose number is found by following the loop's counters.

    Args:
        content: a .tflite file; where it is made for a batch above 1, the count is divided by it.

    Returns:
        None, with the reason, where an operator's work cannot be told: of a loop that ends by
        what it computes, of branches that differ, of custom operators.

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
        self._scalars = Scalars(graphs)

    def total(self) -> int:
        """Return those of the whole model.

        Raises:
            UnknownMacsError: they cannot be told.
        """
        return self._graph(0, {}, ())

    def operator(self, operator: Operator) -> int | None:
        """Return those of one operator of the entry subgraph, None where they cannot be told."""
        try:
            return self._operator(0, operator, self._scalars.known(0, {}), ())
        except UnknownMacsError:
            return None

    def _graph(self, index: int, inputs: Known, callers: tuple[int, ...]) -> int:
        if index in callers:
            raise UnknownMacsError("a subgraph runs itself")
        known = self._scalars.known(index, inputs)
        inside = (*callers, index)
        return sum(self._operator(index, o, known, inside) for o in self.graphs[index].operators)

    def _operator(
        self, index: int, operator: Operator, known: Known, callers: tuple[int, ...]
    ) -> int:
        if operator.name == _LOOP and operator.subgraphs:
            return self._loop(index, operator, known, callers)
        if operator.name == _BRANCH and operator.subgraphs:
            return self._branches(operator, known, callers)
        return operator_macs(self.graphs[index], operator)

    def _loop(self, index: int, operator: Operator, known: Known, callers: tuple[int, ...]) -> int:
        _, body = operator.subgraphs
        if not self._works(body, callers):
            return 0
        states = loop_states(self._scalars, index, operator, known)
        if states is None:
            raise UnknownMacsError("how often a loop turns depends on what it computes")
        if not any(o.subgraphs for o in self.graphs[body].operators):
            return len(states) * self._graph(body, {}, callers)
        return sum(self._graph(body, state, callers) for state in states)

    def _works(self, index: int, callers: tuple[int, ...]) -> bool:
        """Whether a subgraph multiplies at all, whatever it is given."""
        try:
            return self._graph(index, {}, callers) > 0
        except UnknownMacsError:
            return True

    def _branches(self, operator: Operator, known: Known, callers: tuple[int, ...]) -> int:
        chosen = known.get(operator.inputs[0])
        if chosen is not None:
            return self._graph(operator.subgraphs[0 if chosen else 1], {}, callers)
        counts = {self._graph(branch, {}, callers) for branch in operator.subgraphs}
        if len(counts) > 1:
            raise UnknownMacsError("which of two branches runs depends on the example")
        return counts.pop()


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
