"""Operators between others that integers are too coarse for, such as exponentials.

The converter writes softplus as EXP, ADD and LOG. EXP of -5 to 8 needs 1/150 and 3,000 in one
tensor; an int8 scale has steps of 12, and LOG makes one value of all below. The three together stay
float, while what they read and write keeps its int8 scale.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shrink.quantization.bias_correction import layer_errors
from shrink.tflite.model import Operator, Subgraph, read
from shrink.tflite.names import Named

_NONLINEAR = frozenset(
    {"EXP", "LOG", "POW", "DIV", "SQRT", "RSQRT", "SQUARE", "SQUARED_DIFFERENCE", "SIN", "COS"}
)
_JOINED = frozenset({"ADD", "SUB", "MUL", "DIV", "MINIMUM", "MAXIMUM", "NEG", "ABS"})
"""Operators of one input that belong to an island if they stand beside a nonlinear one."""
LOST_DB = 6.0
"""Signal to noise that an island loses between its inputs and outputs to be worth floats."""
_USUAL_DB = 40.0
"""What int8 leaves of any tensor: more before an island is no loss of the island."""


@dataclass(frozen=True)
class Island:
    """Neighbouring operators.

    Attributes:
        kinds: their names, in order.
        inputs: names of the activations that they read from outside.
        outputs: names of the tensors that they write.
        lost_db: signal to noise lost between inputs and outputs.
    """

    kinds: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lost_db: float = 0.0

    def __str__(self) -> str:
        return f"{self.outputs[-1]} ({', '.join(self.kinds)})"


def islands(graph: Subgraph, kinds: Collection[str] = _NONLINEAR) -> list[Island]:
    """Return the nonlinear operators of a float model with the elementwise ones beside them.

    Args:
        graph: of the float model.
        kinds: operators that make an island; those of `_JOINED` on one activation join it.
    """
    activations = {
        index: tuple(i for i in operator.inputs if i >= 0 and not graph.tensors[i].constant)
        for index, operator in enumerate(graph.operators)
    }
    member = {
        index
        for index, operator in enumerate(graph.operators)
        if operator.name in kinds or (operator.name in _JOINED and len(activations[index]) == 1)
    }
    writer = {i: n for n, operator in enumerate(graph.operators) for i in operator.outputs}
    group = {index: {index} for index in member}
    for index in sorted(member):
        for source in activations[index]:
            if (before := writer.get(source)) in member and before is not None:
                joined = group[before] | group[index]
                group |= dict.fromkeys(joined, joined)
    unique = {min(each): sorted(each) for each in group.values()}
    return [
        _island(graph, [graph.operators[n] for n in numbers], activations, numbers)
        for _, numbers in sorted(unique.items())
        if any(graph.operators[n].name in kinds for n in numbers)
    ]


def _island(
    graph: Subgraph,
    operators: list[Operator],
    activations: Mapping[int, tuple[int, ...]],
    numbers: list[int],
) -> Island:
    written = [i for operator in operators for i in operator.outputs]
    outside = {i for n in numbers for i in activations[n]} - set(written)
    return Island(
        tuple(operator.name for operator in operators),
        tuple(graph.tensors[i].name for i in sorted(outside)),
        tuple(graph.tensors[i].name for i in written),
    )


def coarse_islands(content: bytes, reference: bytes, inputs: Named) -> list[Island]:
    """Return the islands of an int8 model whose integers lose much, the greatest loss first.

    Args:
        content: the int8 .tflite file.
        reference: the float one that it was made from.
        inputs: examples by the names of the model's inputs.
    """
    graph = read(content)[0]
    errors = layer_errors(content, reference, inputs)
    snr = {
        graph.tensors[graph.operators[number].outputs[0]].name: _USUAL_DB if db is None else db
        for number, (db, _) in errors.items()
    }
    found = []
    for island in islands(read(reference)[0]):
        after = [snr[name] for name in island.outputs if name in snr]
        before = min((snr[name] for name in island.inputs if name in snr), default=_USUAL_DB)
        if after and (lost := min(before, _USUAL_DB) - min(after)) > LOST_DB:
            found.append(Island(island.kinds, island.inputs, island.outputs, lost))
    return sorted(found, key=lambda island: -island.lost_db)
