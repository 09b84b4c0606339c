"""Ranges of activations over calibration examples: what an integer type has to cover."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np

from shrink.base.errors import StageError
from shrink.quantization.calibration import Batches
from shrink.tflite.edit import exposing
from shrink.tflite.flatbuffer import read
from shrink.tflite.interpreter import load
from shrink.tflite.names import ordered

Ranges = Mapping[str, tuple[float, float]]
"""Least and largest value of each activation by its tensor's name."""

Activations = Mapping[str, np.ndarray]
"""Values of each activation (n, ...) by its tensor's name."""

_CHUNK = 50
_BINS = 2048
_RATIOS = np.linspace(0.3, 1.0, 36)


def extreme_ranges(content: bytes, batches: Batches) -> Ranges:
    """Return the least and the largest value of every activation over all examples.

    Args:
        content: a float .tflite model.
        batches: examples, by the names of the model's inputs.

    Raises:
        StageError: as `extremes_of`.
    """
    return extremes_of(tensor_values(content, batches))


def least_squares_ranges(content: bytes, batches: Batches, levels: int = 256) -> Ranges:
    """Return the range of every activation whose rounding and clipping cost least in squares.

    The model's inputs and outputs keep their extremes, for what they mean outside of the model is
    not known. The examples are read twice.

    Args:
        content: a float .tflite model.
        batches: as for `extreme_ranges`.
        levels: codes of the integer type.

    Raises:
        StageError: as `extremes_of`.
    """
    graph = read(content)[0]
    borders = {graph.tensors[i].name for i in (*graph.inputs, *graph.outputs)}
    return least_squares_of(lambda: tensor_values(content, batches), levels, borders)


def extremes_of(activations: Iterable[Activations]) -> Ranges:
    """Return the least and the largest value of every activation over all batches.

    Raises:
        StageError: there are no examples, or they lead to values that are not finite.
    """
    found: dict[str, tuple[float, float]] = {}
    for batch in activations:
        for name, array in batch.items():
            low, high = found.get(name, (np.inf, -np.inf))
            found[name] = (min(low, float(array.min())), max(high, float(array.max())))
    for name, ends in found.items():
        if not np.isfinite(ends).all():
            raise StageError(
                "calibration examples lead to values that are not finite",
                subject=name,
                hint="shrink data check",
            )
    if not found:
        raise StageError(
            "there are no calibration examples", hint="raise quantize.calibration_samples"
        )
    return found


def least_squares_of(
    read_activations: Callable[[], Iterable[Activations]], levels: int, kept: Collection[str]
) -> Ranges:
    """Return ranges that cost least in squares, from a pass for extremes and one for histograms.

    Args:
        read_activations: gives the same batches each time.
        levels: codes of the integer type.
        kept: names of activations that keep their extremes.

    Raises:
        StageError: as `extremes_of`.
    """
    extremes = extremes_of(read_activations())
    counts = {name: np.zeros(_BINS, np.int64) for name in extremes if name not in kept}
    for batch in read_activations():
        for name, count in counts.items():
            count += _histogram(batch[name], _with_zero(extremes[name]))
    chosen = {n: least_squares_range(c, _with_zero(extremes[n]), levels) for n, c in counts.items()}
    return {**extremes, **chosen}


def least_squares_range(
    counts: np.ndarray, extremes: tuple[float, float], levels: int
) -> tuple[float, float]:
    """Return the range between the extremes with the least squared error of rounding and clipping.

    The MSE criterion of Nagel et al. 2021, "A White Paper on Neural Network Quantization",
    section 3.1: 36 common ratios of both ends, then as many of each end.

    Args:
        counts: int (bins,) histogram of values between the extremes.
        extremes: least and largest value, 0 among or between them.
        levels: codes of the integer type.
    """
    low, high = extremes
    edges = np.linspace(low, high, len(counts) + 1)
    centres = (edges[1:] + edges[:-1]) / 2

    def error(range_: tuple[float, float]) -> float:
        scale = (range_[1] - range_[0]) / (levels - 1)
        if scale <= 0:
            return np.inf
        codes = np.clip(np.rint((centres - range_[0]) / scale), 0, levels - 1)
        return float(np.sum(counts * (codes * scale + range_[0] - centres) ** 2))

    def best(ranges: list[tuple[float, float]]) -> tuple[float, float]:
        return min(ranges[::-1], key=error)  # the widest of equals

    low, high = best([(low * ratio, high * ratio) for ratio in _RATIOS])
    low, high = best([(low, extremes[1] * ratio) for ratio in _RATIOS])
    low, high = best([(extremes[0] * ratio, high) for ratio in _RATIOS])
    return float(low), float(high)


def _histogram(array: np.ndarray, range_: tuple[float, float]) -> np.ndarray:
    """Return how many values lie in each bin; `numpy.histogram` takes twice as long."""
    places = (array.ravel() - np.float32(range_[0])) * np.float32(_BINS / (range_[1] - range_[0]))
    return np.bincount(np.clip(places, 0, _BINS - 1).astype(np.int32), minlength=_BINS)


def _with_zero(extremes: tuple[float, float]) -> tuple[float, float]:
    """Widen a range to hold 0, as integer types must, and to have a width."""
    low, high = min(extremes[0], 0.0), max(extremes[1], 0.0)
    return (low, high) if high > low else (low, low + 1e-6)


def tensor_values(content: bytes, batches: Batches) -> Iterator[dict[str, np.ndarray]]:
    """Yield the float activations of every batch by name, the model's inputs among them.

    Args:
        content: a float .tflite model.
        batches: examples, by the names of the model's inputs.
    """
    graph = read(content)[0]
    written = [i for operator in graph.operators for i in operator.outputs]
    tensors = [i for i in written if graph.tensors[i].dtype == "FLOAT32"]
    runner = load(exposing(content, tensors))
    names = [graph.tensors[i].name for i in (*graph.inputs, *tensors)]
    for arrays in batches:
        inputs = ordered(arrays, runner.input_names)
        yield dict(zip(names, [*inputs, *runner.predict(arrays, batch_size=_CHUNK)], strict=True))
