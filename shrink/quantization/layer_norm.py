"""Layer normalisations that integers can hold.

A layer normalisation divides each position by its deviation. Where positions differ much, as blank
patches of a picture and others do, the smallest variances are one or two steps of an integer whose
scale is that of the largest, and their reciprocal roots are off by tens of percent. Normalised
twice it is the same function:

    LN(x; epsilon, gamma, beta) = beta + R(LN(x; delta, 1, 0); e, gamma / sqrt(1 - epsilon / delta))
    R(v; e, g) = g v / sqrt(mean(v^2) + e),    e = epsilon / (delta - epsilon)

for any delta above epsilon. With v = (x - mean) / sqrt(var + delta) the mean of v^2 is
var / (var + delta), and what stands below the second root is (var + epsilon) / (var + delta), times
delta / (delta - epsilon). The first step brings all positions near one size, whatever its rounding;
the second measures anew how far they are from it. With delta a hundredth of the largest variance
the first root spans a factor of ten.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.quantization.calibration import Batches, Ranges
from shrink.tflite.edit import exposing
from shrink.tflite.interpreter import load
from shrink.tflite.model import Subgraph, add_tensor_like, packed, read, unpacked, values

_WIDEST = 50.0
"""Largest over least variance that 255 steps hold well: the least has five of them."""
_SHARE = 0.01
_CHUNK = 16


@dataclass(frozen=True)
class NormalisedTwice:
    """A float model some of whose layer normalisations are two steps.

    Attributes:
        content: the .tflite file.
        layers: the name of each normalisation's output, with its largest variance over the least.
    """

    content: bytes
    layers: Mapping[str, float]


@dataclass(frozen=True)
class _Norm:
    """A layer normalisation as the converter writes it.

    `x * gain + (beta - mean * gain)` with `gain = gamma * root` and `root = rsqrt(variance +
    epsilon)`. `x`, `mean` and the constants are indices of tensors, the others of the operators
    that make them.
    """

    x: int
    mean: int
    epsilon: int
    gamma: int
    beta: int
    variance: int
    shifted: int
    root: int
    gain: int
    scaled: int
    moved: int
    offset: int
    total: int


def normalised_twice(
    content: bytes, batches: Batches, trained: Ranges | None = None
) -> NormalisedTwice | None:
    """Return a float model with two steps for the normalisations that need them; None without any.

    Args:
        content: a float .tflite model.
        batches: examples, by the names of the model's inputs.
        trained: ranges that training settled: normalisations with one inside stay.
    """
    graph = read(content)[0]
    settled = {*(trained or {})}
    norms = [norm for norm in _norms(graph) if not settled & _inside(graph, norm)]
    spans = _spans(content, graph, norms, batches) if norms else []
    chosen = [
        (norm, span)
        for norm, span in zip(norms, spans, strict=True)
        if span.is_wide and span.delta > 2 * _values(graph, norm.epsilon).item()
    ]
    if not chosen:
        return None
    model = unpacked(content)
    new: dict[int, list[schema.OperatorT]] = {}
    for norm, span in chosen:
        new |= _Steps(model, graph, norm, span.delta).made()
    stored = model.subgraphs[0]
    stored.operators = [
        each
        for index, operator in enumerate(stored.operators)
        for each in new.get(index, [operator])
    ]
    layers = {
        graph.tensors[graph.operators[norm.total].outputs[0]].name: span.most / span.least
        for norm, span in chosen
    }
    return NormalisedTwice(packed(model), layers)


@dataclass(frozen=True)
class _Span:
    """The least and the largest of variance + epsilon over all positions."""

    least: float
    most: float

    @property
    def is_wide(self) -> bool:
        """Whether 8 bits for all positions lose those of little variance."""
        return self.most > _WIDEST * self.least

    @property
    def delta(self) -> float:
        """What is added to the variance in the first step."""
        return _SHARE * self.most


def _spans(
    content: bytes, graph: Subgraph, norms: Sequence[_Norm], batches: Batches
) -> list[_Span]:
    runner = load(exposing(content, [graph.operators[norm.shifted].outputs[0] for norm in norms]))
    found = [runner.predict(arrays, batch_size=_CHUNK) for arrays in batches]
    return [
        _Span(min(float(a.min()) for a in column), max(float(a.max()) for a in column))
        for column in zip(*found, strict=True)
    ]


class _Steps:
    """Both steps of one normalisation, for an unpacked model."""

    def __init__(self, model: schema.ModelT, graph: Subgraph, norm: _Norm, delta: float) -> None:
        self._model, self._norm = model, norm
        self._graph = model.subgraphs[0]
        self._made_by = [operator.outputs[0] for operator in graph.operators]
        epsilon = _values(graph, norm.epsilon)
        share = epsilon / delta
        self._delta = self._constant(norm.epsilon, "delta", np.full_like(epsilon, delta))
        self._e = self._constant(norm.epsilon, "e", share / (1 - share))
        self._gamma = self._constant(
            norm.gamma, "gamma", _values(graph, norm.gamma) / np.sqrt(1 - share.item())
        )

    def made(self) -> dict[int, list[schema.OperatorT]]:
        """Return what stands in the place of each operator that changes, by its index."""
        norm, made_by = self._norm, self._made_by
        wide, single = norm.x, made_by[norm.root]
        shifted = self._call(norm.shifted, [made_by[norm.variance], self._delta], single)
        first = self._call(norm.root, shifted.outputs, single)
        times = [self._call(norm.scaled, [wide, *first.outputs], wide)]
        times += [self._call(norm.moved, [norm.mean, *first.outputs], norm.mean)]
        centred = self._call(norm.offset, [one.outputs[0] for one in times], wide)
        squares = self._call(norm.scaled, [*centred.outputs, *centred.outputs], wide)
        axes = self._graph.operators[norm.variance].inputs[1]
        power = self._call(norm.variance, [*squares.outputs, axes], single)
        again = self._call(norm.shifted, [*power.outputs, self._e], single)
        second = self._call(norm.root, again.outputs, single)
        gain = self._call(norm.gain, [*second.outputs, self._gamma], made_by[norm.gain])
        scaled = self._call(norm.scaled, [*centred.outputs, *gain.outputs], wide)
        total = self._call(norm.total, [*scaled.outputs, norm.beta], made_by[norm.total])
        total.outputs = [made_by[norm.total]]
        steps = [*times, centred, squares, power, again, second, gain, scaled, total]
        replaced = (norm.gain, norm.scaled, norm.moved, norm.offset)
        return {
            norm.shifted: [shifted],
            norm.root: [first],
            **{index: [] for index in replaced},
            norm.total: steps,
        }

    def _call(self, like: int, inputs: Sequence[int], shaped: int) -> schema.OperatorT:
        """Return an operator like another one; its output is a new tensor like `shaped`."""
        made = copy.copy(self._graph.operators[like])
        made.inputs, made.outputs = list(inputs), [self._tensor(shaped, "")]
        return made

    def _tensor(self, like: int, name: str) -> int:
        return add_tensor_like(self._graph, like, f";twice{len(self._graph.tensors)}{name}")

    def _constant(self, like: int, name: str, stored: np.ndarray) -> int:
        index = self._tensor(like, name)
        self._model.buffers.append(schema.BufferT())
        data = np.frombuffer(stored.astype("<f4").tobytes(), np.uint8)
        self._model.buffers[-1].data = data
        self._graph.tensors[index].buffer = len(self._model.buffers) - 1
        return index


def _norms(graph: Subgraph) -> Iterator[_Norm]:
    """Yield the layer normalisations over the last axis whose inner tensors nobody else reads."""
    made = {o.outputs[0]: i for i, o in enumerate(graph.operators) if o.outputs}
    readers: dict[int, list[int]] = {}
    for index, operator in enumerate(graph.operators):
        for tensor in operator.inputs:
            readers.setdefault(tensor, []).append(index)
    for tensor in graph.outputs:
        readers.setdefault(tensor, []).append(len(graph.operators))
    for index, operator in enumerate(graph.operators):
        if operator.name == "RSQRT":
            norm = _Reading(graph, made, readers).norm(index)
            if norm is not None:
                yield norm


class _Unlike(Exception):
    """An operator is not what a layer normalisation has in its place."""


@dataclass(frozen=True)
class _Reading:
    """Follows a layer normalisation from its root in both directions."""

    graph: Subgraph
    made: Mapping[int, int]
    readers: Mapping[int, Sequence[int]]

    def norm(self, root: int) -> _Norm | None:
        """Return the normalisation around a root; None where it is none."""
        try:
            return self._norm(root)
        except _Unlike:
            return None

    def _norm(self, root: int) -> _Norm:
        operators = self.graph.operators
        shifted = self._maker(operators[root].inputs[0], "ADD")
        sum_of, epsilon = self._with_constant(shifted)
        variance = self._maker(sum_of, "MEAN")
        squared = self._maker(operators[variance].inputs[0], "SQUARED_DIFFERENCE")
        x, mean = operators[squared].inputs
        averaged = operators[self._maker(mean, "MEAN")].inputs
        if averaged[0] != x:
            raise _Unlike
        if not all(self._is_last_axis(i, x) for i in (averaged[1], operators[variance].inputs[1])):
            raise _Unlike
        gain = self._reader(operators[root].outputs[0], "MUL")
        _, gamma = self._with_constant(gain)
        factor = operators[gain].outputs[0]
        scaled, moved = (self._product(one, factor) for one in (x, mean))
        offset = self._reader(operators[moved].outputs[0], "SUB")
        beta = operators[offset].inputs[0]
        total = self._reader(operators[offset].outputs[0], "ADD")
        same = {operators[scaled].outputs[0], operators[offset].outputs[0]}
        last = self.graph.tensors[x].shape[-1]
        if (
            {*operators[total].inputs} != same
            or not self.graph.tensors[beta].constant
            or any(_values(self.graph, i).size != last for i in (gamma, beta))
            or _values(self.graph, epsilon).size != 1
            or len(self.readers[factor]) != 2
            or self._reader(operators[shifted].outputs[0], "RSQRT") != root
            or len(self.readers[operators[scaled].outputs[0]]) != 1
            or any(operators[i].fused_activation != "NONE" for i in (shifted, gain, scaled, total))
        ):
            raise _Unlike
        return _Norm(
            x=x,
            mean=mean,
            epsilon=epsilon,
            gamma=gamma,
            beta=beta,
            variance=variance,
            shifted=shifted,
            root=root,
            gain=gain,
            scaled=scaled,
            moved=moved,
            offset=offset,
            total=total,
        )

    def _is_last_axis(self, axes: int, tensor: int) -> bool:
        stored = values(self.graph.tensors[axes])
        rank = len(self.graph.tensors[tensor].shape)
        return stored is not None and {int(axis) % rank for axis in stored} == {rank - 1}

    def _maker(self, tensor: int, name: str) -> int:
        index = self.made.get(tensor)
        if index is None or self.graph.operators[index].name != name:
            raise _Unlike
        return index

    def _reader(self, tensor: int, name: str) -> int:
        """Return the only operator that reads a tensor."""
        found = self.readers.get(tensor, [])
        if len(found) != 1 or found[0] == len(self.graph.operators):
            raise _Unlike
        if self.graph.operators[found[0]].name != name:
            raise _Unlike
        return found[0]

    def _product(self, tensor: int, factor: int) -> int:
        """Return the operator that multiplies two tensors."""
        operators = self.graph.operators
        for index in self.readers.get(factor, []):
            made = operators[index] if index < len(operators) else None
            if made and made.name == "MUL" and {*made.inputs} == {tensor, factor}:
                return index
        raise _Unlike

    def _with_constant(self, index: int) -> tuple[int, int]:
        """Return the two inputs of an operator, the constant one last."""
        first, second = self.graph.operators[index].inputs
        if self.graph.tensors[first].constant:
            first, second = second, first
        if self.graph.tensors[first].constant or not self.graph.tensors[second].constant:
            raise _Unlike
        return first, second


def _inside(graph: Subgraph, norm: _Norm) -> set[str]:
    """Return the names of the tensors that mean something else afterwards."""
    changed = (norm.shifted, norm.root, norm.gain, norm.scaled, norm.moved, norm.offset)
    return {graph.tensors[graph.operators[index].outputs[0]].name for index in changed}


def _values(graph: Subgraph, index: int) -> np.ndarray:
    """Return a constant in its shape, float32; of any other tensor none."""
    tensor = graph.tensors[index]
    stored = values(tensor) if tensor.dtype == "FLOAT32" else None
    return np.zeros(0, np.float32) if stored is None else stored.reshape(tensor.shape)
