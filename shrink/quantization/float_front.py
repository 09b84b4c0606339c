"""Inputs that one integer scale does not suit, and the operators behind them that stay float.

A table of sensor readings has pascals beside degrees. An int8 input has one scale for both, which
leaves the degrees one value; no later layer can restore them. If the model scales its columns
itself (Normalization, BatchNormalization, Rescaling), the input and these few operators stay
float32, and integers begin behind them, where the columns are alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.quantization.calibration import Batches, tensor_values
from shrink.quantization.edge_quantizer import MATRIX_OPERATORS, Weighted, weighted_operators
from shrink.quantization.float_islands import islands
from shrink.quantization.heads import FEW_STEPS, places
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.interpreter import Runner, load
from shrink.tflite.model import (
    Operator,
    Subgraph,
    add_buffer,
    add_tensor_like,
    operator_code,
    packed,
    read,
    unpacked,
)
from shrink.tflite.names import Named, ordered

LEAST_DB, LEAST_DB_ALIKE = 25.0, 15.0
"""Signal to noise of the outputs while only the input is rounded: of inputs with a column that is
narrow beside the others, and of all others. An int8 model has 25 to 40 dB in all. Pictures are
stored in 8 bits: rounding them can leave an untrained or shallow network less than 25 dB, and a
float input would not make it better."""
_NARROW = 1 / 4
"""Share of the steps that a narrow column has at most."""

_SAME = 1e-6
"""Relative squared error of the outputs of two float models of one function."""
_SCALING = frozenset({"ADD", "SUB", "MUL", "DIV", "MINIMUM", "MAXIMUM"})
"""Operators that scale or limit columns if one operand is a constant."""
_UNARY = frozenset({"LOG", "SQRT", "ABS", "NEG", "SQUARE", "EXP"})
_PARTIAL = frozenset({"DIV", "LOG", "RSQRT", "SQRT", "POW", "EXP"})
"""Operators whose results may not be finite."""
_NEAR_ZERO = 2
"""Steps of int8: examples to come may have smaller divisors than those of calibration."""
_JOINING = frozenset({"CONCATENATION", "PACK"})
_RESHAPING = frozenset({"RESHAPE", "EXPAND_DIMS", "SQUEEZE", "TRANSPOSE", *_JOINING})


@dataclass(frozen=True)
class CoarseInput:
    """An input, or several that are joined under one scale, whose rounding changes the outputs.

    Attributes:
        names: in the signature.
        scale: of the integers.
        snr_db: signal to noise of the outputs if nothing else is rounded.
        columns: those with the fewest values, as text: places on the last axis, or names of inputs.
        values: how many values the widest of these has.
        is_narrow: whether these are few beside the values of the integer type; otherwise the model
            itself amplifies the rounding.
        front: names of the tensors of the operators that scale it, in order; empty without.
    """

    names: tuple[str, ...]
    scale: float
    snr_db: float
    columns: str
    values: int
    is_narrow: bool
    front: tuple[str, ...]

    def __str__(self) -> str:
        several = len(self.names) > 1
        who = f"inputs {', '.join(self.names)} share" if several else f"input {self.names[0]!r} has"
        return (
            f"the {who} one scale, {self.scale:.3g}"
            + (f", which leaves at most {self.values} values for {self.columns}" * self.is_narrow)
            + f"; this rounding alone leaves the outputs {self.snr_db:.1f} dB"
        )


def coarse_inputs(content: bytes, batches: Batches, bits: int) -> list[CoarseInput]:
    """Return the inputs that integers of these bits are too coarse for.

    Args:
        content: a float .tflite model.
        batches: examples, by the names of the model's inputs.
        bits: 8 or 16.
    """
    runner, graph = load(content), read(content)[0]
    names = {detail.index: detail.name for detail in runner.input_details}
    floats = [detail.index for detail in runner.input_details if detail.dtype == np.float32]
    given = _by_name(runner, batches)
    wanted = runner.predict(given)
    found = []
    for group in _of_one_scale(graph, floats):
        own = {names[index]: given[names[index]] for index in group}
        scale = _scale(list(own.values()), bits)
        rounded = {n: (np.rint(x / scale) * scale).astype(np.float32) for n, x in own.items()}
        noise = relative_error(wanted, runner.predict({**given, **rounded}))
        columns, values = _coarsest(own, scale)
        narrow = values <= _NARROW * (255 if bits == 8 else 65_535)
        if noise > 10 ** (-(LEAST_DB if narrow else LEAST_DB_ALIKE) / 10):
            front = tuple(scaling_in_front(graph, group))
            snr = -10 * float(np.log10(noise))
            found.append(CoarseInput(tuple(own), scale, snr, columns, values, narrow, front))
    return found


def undefined_tensors(content: bytes, batches: Batches) -> list[str]:
    """Return the names of the activations that int8 cannot divide for.

    Some have values that are not finite. A model may discard these, as `where(s > 0, x / s, 0)`
    does, so that floats up to the WHERE are enough. The others belong to a division whose divisor
    comes within `_NEAR_ZERO` steps of 0: integer kernels stop at a divisor of 0.
    """
    graph = read(content)[0]
    if _PARTIAL.isdisjoint(operator.name for operator in graph.operators):
        return []
    divisors = {
        graph.tensors[operator.inputs[1]].name: graph.tensors[operator.outputs[0]].name
        for operator in graph.operators
        if operator.name == "DIV" and not graph.tensors[operator.inputs[1]].constant
    }
    found: dict[str, None] = {}
    least, low, high = (dict.fromkeys(divisors, start) for start in (np.inf, 0.0, 0.0))
    for values in tensor_values(content, batches):
        found |= {name: None for name, array in values.items() if not np.isfinite(array).all()}
        for name in divisors.keys() & values.keys():
            finite = values[name][np.isfinite(values[name])]
            least[name] = min(least[name], float(np.abs(finite).min(initial=np.inf)))
            low[name] = min(low[name], float(finite.min(initial=0.0)))
            high[name] = max(high[name], float(finite.max(initial=0.0)))
    near = {divisors[n] for n in divisors if least[n] < _NEAR_ZERO * (high[n] - low[n]) / 255}
    for island in islands(graph, {"DIV"}):
        if near & set(island.outputs):
            found |= dict.fromkeys(island.outputs)
    return list(found)


def _of_one_scale(graph: Subgraph, inputs: Sequence[int]) -> list[list[int]]:
    """Return the inputs in groups: those that a concatenation puts under one scale together."""
    groups = [{index} for index in inputs]
    origin = {index: {index} for index in inputs}
    for operator in graph.operators:
        if operator.name in _RESHAPING:
            joined = set().union(*(origin.get(index, set()) for index in operator.inputs))
            origin |= dict.fromkeys(operator.outputs, joined)
            if operator.name in _JOINING and len(joined) > 1:
                met = [group for group in groups if group & joined]
                groups = [g for g in groups if g not in met] + [set().union(*met)]
    return [sorted(group) for group in groups]


def _scale(arrays: Sequence[Array], bits: int) -> float:
    low = min(0.0, *(float(array.min()) for array in arrays))
    high = max(0.0, *(float(array.max()) for array in arrays))
    return ((high - low) / 255 if bits == 8 else max(-low, high) / 32767) or 1.0


def _coarsest(arrays: Named, scale: float) -> tuple[str, int]:
    """Return the columns of inputs with at most `FEW_STEPS` values, or the one with the fewest."""
    tables = [a.reshape(-1, a.shape[-1] if a.ndim > 1 else 1) for a in arrays.values()]
    several = len(tables) > 1
    widths = np.array([np.ptp(t) for t in tables]) if several else np.ptp(tables[0], axis=0)
    values = np.floor(widths / scale).astype(np.int64) + 1
    varying = np.flatnonzero(widths > 0)
    if not len(varying):
        return "no column", int(values.max())
    few = varying[values[varying] <= FEW_STEPS]
    if not len(few):
        few = varying[[int(np.argmin(values[varying]))]]
    most = int(values[few].max())
    if several:
        return ", ".join(name for i, name in enumerate(arrays) if i in few), most
    return f"column{'s' * (len(few) > 1)} {places(few.tolist())}", most


def relative_error(wanted: Sequence[Array], found: Sequence[Array]) -> float:
    """Return the squared error of the worst output over that of taking its mean for it.

    Args:
        wanted: of each output the values of the float model, (n, ...).
        found: the same of the other model.
    """
    return max(
        float(np.mean((a - b) ** 2)) / (float(np.mean((a - a.mean(axis=0)) ** 2)) or 1.0)
        for a, b in zip(wanted, found, strict=True)
    )


def scaling_in_front(graph: Subgraph, inputs: Collection[int]) -> list[str]:
    """Return the names of the tensors that scale these inputs before any other operator reads them.

    Reshaping behind the last scaling is left out; empty if nothing scales the inputs.

    Args:
        graph: of the float model.
        inputs: indices of its inputs.
    """
    reached, front = set(inputs), list[Operator]()
    for operator in graph.operators:
        given = [i for i in operator.inputs if i >= 0 and not graph.tensors[i].constant]
        scales = operator.name in _SCALING and len(given) < len(operator.inputs)
        known = scales or operator.name in _UNARY | _RESHAPING
        if known and given and reached.issuperset(given):
            reached.update(operator.outputs)
            front.append(operator)
    needed, kept = set[int](), list[str]()
    for operator in reversed(front):
        if operator.name in _SCALING | _UNARY or not needed.isdisjoint(operator.outputs):
            needed.update(operator.inputs)
            kept += [graph.tensors[i].name for i in operator.outputs]
    return kept[::-1]


def with_scaled_columns(
    content: bytes, inputs: Sequence[str], batches: Batches
) -> tuple[bytes, list[str]] | None:
    """Return a float model of the same outputs that begins by scaling columns of its inputs.

    The converter folds a BatchNormalization into the dense layer behind it, which then reads raw
    columns; and a model may have learned from them. (x - m) / s goes in front, with the mean and
    the deviation of each column, and comes off the kernels W behind: W' = W s, b' = b + W m.

    Args:
        content: a float .tflite model.
        inputs: names of the inputs to scale.
        batches: examples, whose columns get a mean of 0 and a deviation of 1.

    Returns:
        The model, and the names of the tensors that the new operators write; None if operators
        other than convolutions and dense layers read these inputs, or if its outputs differ.
    """
    graph, runner = read(content)[0], load(content)
    indices = {detail.name: detail.index for detail in runner.input_details}
    given = _by_name(runner, batches)
    arrays = {name: given[name] for name in inputs}
    readers = _kernels_behind(content, graph, {indices[name] for name in inputs})
    if not readers:
        return None
    # Zeros that pad an input stand for its own zeros, so that no mean can be taken off.
    pads = any(one.padding == "SAME" and one.weights.shape[1:-1] != (1, 1) for one in readers)
    means, deviations, numbered = list[Array](), list[Array](), dict[str, Array]()
    for name, array in arrays.items():
        columns = array.reshape(-1, array.shape[-1]).astype(np.float64)
        start = sum(map(len, means))
        numbered[name] = np.arange(start, start + columns.shape[1], dtype=np.float32)
        deviation = columns.std(axis=0)
        deviations.append(np.where(deviation > 0, deviation, 1.0))
        means.append(np.zeros_like(deviation) if pads else columns.mean(axis=0))
    mean, deviation = np.concatenate(means), np.concatenate(deviations)
    constants: dict[tuple[int, int], Array] = {}
    for one in readers:
        which = _columns_read(content, graph, one, numbered)
        if which is None or one.bias is None:
            return None
        weights = one.weights.astype(np.float64)
        axes = tuple(range(1, weights.ndim))
        constants[one.index, 1] = weights * deviation[which]
        constants[one.index, 2] = one.bias + (weights * mean[which]).sum(axis=axes)
    model = unpacked(with_constants(content, constants))
    names = list[str]()
    for name, m, s in zip(arrays, means, deviations, strict=True):
        names += _insert_scaling(model, indices[name], m, 1 / s)
    made = packed(model)
    same = relative_error(runner.predict(given), load(made).predict(given)) < _SAME
    return (made, names) if same else None


def _by_name(runner: Runner, batches: Batches) -> Named:
    rows = [ordered(batch, runner.input_names) for batch in batches]
    arrays = [np.concatenate(column) for column in zip(*rows, strict=True)]
    return dict(zip(runner.input_names, arrays, strict=True))


def _kernels_behind(content: bytes, graph: Subgraph, inputs: set[int]) -> list[Weighted]:
    """Return the operators that read inputs, reshaped or not; empty unless all have kernels."""
    reached, first = set(inputs), list[int]()
    for index, operator in enumerate(graph.operators):
        given = [i for i in operator.inputs if i >= 0 and not graph.tensors[i].constant]
        if reached.isdisjoint(given):
            continue
        if operator.name in _RESHAPING and reached.issuperset(given):
            reached.update(operator.outputs)
        else:
            first.append(index)
    weighted = {one.index: one for one in weighted_operators(content)}
    found = [weighted[i] for i in first if i in weighted]
    kinds = all(one.kind in MATRIX_OPERATORS for one in found)
    return found if kinds and len(found) == len(first) else []


def _columns_read(content: bytes, graph: Subgraph, one: Weighted, numbered: Named) -> Array | None:
    """Return which column of the inputs each input channel of a kernel is; None if it varies.

    Args:
        content: the model.
        graph: of it.
        one: reads the inputs after reshapes and concatenations.
        numbered: by the name of each input, numbers (columns,) that differ between inputs.
    """
    names = {detail.index: detail.name for detail in load(content).input_details}
    if one.input in names:
        ids = numbered[names[one.input]]
    else:
        runner = load(exposing(content, [one.input]))
        fed = {
            detail.name: np.broadcast_to(
                numbered.get(detail.name, np.zeros(1, np.float32)), detail.shape
            ).astype(np.float32)
            for detail in runner.input_details
        }
        (ids,) = runner.predict(fed)
    width = one.weights.shape[-1]
    if ids.size % width:
        return None
    rows = ids.reshape(-1, width)
    return rows[0].astype(np.int64) if (rows == rows[0]).all() else None


def _insert_scaling(
    model: schema.ModelT, index: int, offset: Array, factor: Array
) -> Iterator[str]:
    """Let all operators read (input - offset) * factor; yield the names of both steps' tensors."""
    graph = model.subgraphs[0]
    readers, source, steps = list(graph.operators), index, []
    for kind, options, constant in (
        ("SUB", schema.SubOptionsT(), offset),
        ("MUL", schema.MulOptionsT(), factor),
    ):
        if kind == "SUB" and not constant.any():
            continue
        values = schema.TensorT()
        values.name = f"scaled_{index}/{kind.lower()}/constant".encode()
        values.type, values.shape = schema.TensorType.FLOAT32, [len(constant)]
        values.buffer = add_buffer(model, constant.astype("<f4"))
        graph.tensors.append(values)
        made = add_tensor_like(graph, index, f"/{kind.lower()}")
        graph.tensors[made].buffer = 0
        step = schema.OperatorT()
        step.opcodeIndex = operator_code(model, getattr(schema.BuiltinOperator, kind), 1)
        step.inputs, step.outputs = [source, len(graph.tensors) - 2], [made]
        step.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind.title()}Options")
        step.builtinOptions = options
        steps.append(step)
        source = made
        yield graph.tensors[made].name.decode()
    for reader in readers:
        reader.inputs = [source if i == index else i for i in reader.inputs]
    graph.operators = [*steps, *readers]
