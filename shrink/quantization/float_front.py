"""Inputs that one integer scale does not suit, and the operators behind them that stay float.

A table of sensor readings has pascals beside degrees. An int8 input has one scale for both, which
leaves the degrees one value; no later layer can restore them. The input and the operators that
scale its columns (Normalization, Rescaling), or else the first kernels, stay float32, and integers
begin behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from shrink.base.types import Array
from shrink.quantization.calibration import Batches, tensor_values
from shrink.quantization.float_islands import islands
from shrink.quantization.heads import FEW_STEPS, places
from shrink.tflite.interpreter import Runner, load
from shrink.tflite.model import Operator, Subgraph, read
from shrink.tflite.names import Named, ordered

LEAST_DB, LEAST_DB_ALIKE = 25.0, 15.0
"""Signal to noise of the outputs while only the input is rounded: of inputs with a column that is
narrow beside the others, and of all others. An int8 model has 25 to 40 dB in all. Pictures are
stored in 8 bits: rounding them can leave an untrained or shallow network less than 25 dB, and a
float input would not make it better."""
_NARROW = 1 / 4
"""Share of the steps that a narrow column has at most."""

_SCALING = frozenset({"ADD", "SUB", "MUL", "DIV", "MINIMUM", "MAXIMUM"})
"""Operators that scale or limit columns if one operand is a constant."""
_UNARY = frozenset({"LOG", "SQRT", "ABS", "NEG", "SQUARE", "EXP"})
_PARTIAL = frozenset({"DIV", "LOG", "RSQRT", "SQRT", "POW", "EXP"})
"""Operators whose results may not be finite."""
_NEAR_ZERO = 2
"""Steps of int8: examples to come may have smaller divisors than those of calibration."""
_JOINING = frozenset({"CONCATENATION", "PACK"})
_KERNELS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
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
        front: names of the tensors of the operators that scale it, in order, or of the first
            kernels; empty where other operators read it.
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
            front = scaling_in_front(graph, group)
            if narrow and not front:
                front = first_kernels(graph, group)
            snr = -10 * float(np.log10(noise))
            found.append(CoarseInput(tuple(own), scale, snr, columns, values, narrow, tuple(front)))
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


def first_kernels(graph: Subgraph, inputs: Collection[int]) -> list[str]:
    """Return the names of the tensors that the first kernels write from these inputs.

    Their weights hold whatever scaling the columns need: the converter folds a BatchNormalization
    into the layer behind it, and a model may have learned from raw columns. Empty if any other
    operator reads the inputs, reshaped or not.

    Args:
        graph: of the float model.
        inputs: indices of its inputs.
    """
    reached, names = set(inputs), list[str]()
    for operator in graph.operators:
        given = [i for i in operator.inputs if i >= 0 and not graph.tensors[i].constant]
        if reached.isdisjoint(given):
            continue
        names += [graph.tensors[i].name for i in operator.outputs]
        if operator.name in _RESHAPING and reached.issuperset(given):
            reached.update(operator.outputs)
        elif operator.name not in _KERNELS or len(given) > 1:
            return []
    return names


def _by_name(runner: Runner, batches: Batches) -> Named:
    rows = [ordered(batch, runner.input_names) for batch in batches]
    arrays = [np.concatenate(column) for column in zip(*rows, strict=True)]
    return dict(zip(runner.input_names, arrays, strict=True))
