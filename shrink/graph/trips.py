"""How often the loops of a .tflite file turn: their counters, followed number by number."""

from __future__ import annotations

import operator as arithmetic
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from shrink.tflite.flatbuffer import values
from shrink.tflite.structure import Operator, Subgraph, Tensor

Known = Mapping[int, float]
"""Tensors of one number whose value is known, by their index."""

_MOST_TURNS = 100_000
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

    def known(self, index: int, given: Known) -> Known:
        """Return all known numbers of a subgraph, from those that it is given."""
        constants, operators = self._prepare(index)
        tensors = self.graphs[index].tensors
        found = {**constants, **given}
        for operator in operators:
            arguments = [found.get(place) for place in _arguments(operator)]
            known = [argument for argument in arguments if argument is not None]
            if len(known) == len(arguments):
                (place,) = operator.outputs
                found[place] = _stored(_FUNCTIONS[operator.name](*known), tensors[place])
        return found

    def _prepare(self, index: int) -> tuple[Known, list[Operator]]:
        if index not in self._prepared:
            graph = self.graphs[index]
            constants = {
                place: number
                for place, tensor in enumerate(graph.tensors)
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
    condition, body = (scalars.graphs[place] for place in loop.subgraphs)
    test, turn = loop.subgraphs
    state = [known.get(place) for place in loop.inputs]
    states: list[Known] = []
    while True:
        goes_on = scalars.known(test, _bound(condition.inputs, state)).get(condition.outputs[0])
        if goes_on is None or len(states) > _MOST_TURNS:
            return None
        if not goes_on:
            return states
        given = _bound(body.inputs, state)
        states.append(given)
        after = scalars.known(turn, given)
        state = [after.get(place) for place in body.outputs]


def _bound(places: Iterable[int], numbers: Iterable[float | None]) -> Known:
    pairs = zip(places, numbers, strict=False)
    return {place: number for place, number in pairs if number is not None}


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
    places = (*_arguments(operator), *operator.outputs)
    return all(place >= 0 and _one_number(graph.tensors[place]) for place in places)


def _arguments(operator: Operator) -> tuple[int, ...]:
    """Return the inputs that hold numbers, without the shape that a RESHAPE is given."""
    return operator.inputs[:1] if operator.name in _UNCHANGED else operator.inputs


def _one_number(tensor: Tensor) -> bool:
    return tensor.elements == 1 and tensor.dtype in _NUMBERS and not tensor.open_sides


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
