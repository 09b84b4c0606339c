"""Calibration examples, what is suspicious about them, and the ranges of activations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from shrink.base.errors import StageError, listed
from shrink.data.examples import Examples
from shrink.data.splits import stratified_sample
from shrink.tflite.edit import exposing
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from shrink.tflite.names import Named, named, ordered, row_count

Batches = Iterable[Named]
"""Arrays (n, ...) by the name of the model's input, a few examples at a time."""

_CHUNK = 50
_MOST_KEPT_BYTES = 64_000_000
_MOST_ACTIVATION_BYTES = 256_000_000


class CalibrationExamples:
    """A stratified sample of examples, one by one, as often as it is iterated.

    Memory does not grow with `count`: a few dozen examples are held at a time.

    Args:
        examples: the training split.
        count: how many to take; all of them where there are fewer.
        seed: decides which.
        names: of the inputs that the examples hold, in their order; one input may do without.
    """

    def __init__(
        self, examples: Examples, count: int, seed: int, names: Sequence[str] = ()
    ) -> None:
        self._examples = examples
        self._names = tuple(names)
        count = min(count, len(examples))
        self.indices = stratified_sample(examples.labels, len(examples), count, seed)

    def __iter__(self) -> Iterator[Named]:
        """Yield each example as float32 arrays of batch size 1 by the names of the inputs."""
        for start in range(0, len(self.indices), _CHUNK):
            arrays = _arrays(self._examples, self.indices[start : start + _CHUNK], self._names)
            for row in range(row_count(arrays)):
                yield {name: array[row : row + 1] for name, array in arrays.items()}

    def missing_labels(self) -> list[int]:
        """Return the labels of the split that no chosen example has; empty without labels."""
        labels = self._examples.labels
        if labels is None:
            return []
        return [int(i) for i in np.setdiff1d(labels, labels[self.indices])]

    def batches(self, most: int | None = None) -> Batches:
        """Return the examples as float32 arrays (up to 50, ...) by name, to iterate repeatedly.

        Args:
            most: take no more than these, spread evenly.
        """
        step = 1 if most is None else max(1, -(-len(self.indices) // most))
        return _Batches(self._examples, self.indices[::step], self._names)


class _Batches:
    """Reads once what is small, and each time anew what is not."""

    def __init__(self, examples: Examples, indices: np.ndarray, names: tuple[str, ...]) -> None:
        self._examples = examples
        self._indices = indices
        self._names = names
        self._kept: list[Named] | None = None

    def __iter__(self) -> Iterator[Named]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Named] = []
        for start in range(0, len(self._indices), _CHUNK):
            arrays = _arrays(self._examples, self._indices[start : start + _CHUNK], self._names)
            yield arrays
            if self._all_fit(arrays):
                kept.append(arrays)
        if len(kept) * _CHUNK >= len(self._indices):
            self._kept = kept

    def _all_fit(self, arrays: Named) -> bool:
        """Whether all examples, judged by these, are few enough bytes to keep."""
        each = sum(part.nbytes for part in arrays.values()) / row_count(arrays)
        return each * len(self._indices) <= _MOST_KEPT_BYTES


def _arrays(examples: Examples, indices: np.ndarray, names: tuple[str, ...]) -> Named:
    x, _ = examples.arrays(indices)
    parts = x if isinstance(x, tuple) else (x,)
    return named([np.asarray(part, np.float32) for part in parts], names)


_FEW = 100
_MOST_NAMED = 5


def lint_calibration(calibration: CalibrationExamples, class_names: Sequence[str]) -> list[str]:
    """Return sentences about too few examples, and classes of the split that none belongs to.

    Args:
        calibration: the sample.
        class_names: names of the labels, empty where they have none.
    """
    notes = []
    if len(calibration.indices) < _FEW:
        notes.append(
            f"calibration: only {len(calibration.indices)} examples; with fewer than {_FEW} the "
            "ranges depend on which examples are drawn"
        )
    if missing := calibration.missing_labels():
        named = [class_names[i] if i < len(class_names) else str(i) for i in missing]
        notes.append(f"calibration: no example of the classes {listed(named, _MOST_NAMED)}")
    return notes


Ranges = Mapping[str, tuple[float, float]]
"""Least and largest value of each activation by its tensor's name."""

Activations = Mapping[str, np.ndarray]
"""Values of each activation (n, ...) by its tensor's name."""

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
    """Return the least and the largest finite value of every activation over all batches.

    A model may discard values that are not finite, as `where(s > 0, x / s, 0)` does.

    Raises:
        StageError: there are no examples, or an activation has no finite value.
    """
    extremes: dict[str, tuple[float, float]] = {}
    for batch in activations:
        for name, array in batch.items():
            low, high = extremes.get(name, (np.inf, -np.inf))
            finite = _finite(array)
            extremes[name] = (
                min(low, float(finite.min(initial=np.inf))),
                max(high, float(finite.max(initial=-np.inf))),
            )
    for name, ends in extremes.items():
        if not np.isfinite(ends).all():
            raise StageError(
                "calibration examples lead to values that are not finite",
                subject=name,
                hint="shrink data check",
            )
    if not extremes:
        raise StageError(
            "there are no calibration examples", hint="raise quantize.calibration_samples"
        )
    return extremes


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
    values, width = _finite(array).ravel(), range_[1] - range_[0]
    bins = (values - np.float32(range_[0])) * np.float32(_BINS / width)
    return np.bincount(np.clip(bins, 0, _BINS - 1).astype(np.int32), minlength=_BINS)


def _finite(array: np.ndarray) -> np.ndarray:
    """Return the finite values of an array; the array itself if all of them are."""
    finite = np.isfinite(array)
    return array if finite.all() else array[finite]


def _with_zero(extremes: tuple[float, float]) -> tuple[float, float]:
    """Widen a range to hold 0, as integer types must, and to have a width."""
    low, high = min(extremes[0], 0.0), max(extremes[1], 0.0)
    return (low, high) if high > low else (low, low + 1e-6)


def portions(content: bytes, batches: Batches) -> Iterator[Named]:
    """Yield the batches in pieces whose activations, all of them kept, take 256 MB at most."""
    graph = read(content)[0]
    written = [i for operator in graph.operators for i in operator.outputs]
    each = sum(graph.tensors[i].size_bytes for i in written)
    rows = max(1, _MOST_ACTIVATION_BYTES // max(each, 1))
    for arrays in batches:
        for start in range(0, row_count(arrays), rows):
            yield {name: array[start : start + rows] for name, array in arrays.items()}


def tensor_values(content: bytes, batches: Batches) -> Iterator[dict[str, np.ndarray]]:
    """Yield the float activations by name, the model's inputs among them, of `portions` of batches.

    Args:
        content: a float .tflite model.
        batches: examples, by the names of the model's inputs.

    Raises:
        StageError: an output of the model is not finite.
    """
    graph = read(content)[0]
    written = [i for operator in graph.operators for i in operator.outputs]
    tensors = [i for i in written if graph.tensors[i].dtype == "FLOAT32"]
    runner = load(exposing(content, tensors))
    names = [graph.tensors[i].name for i in (*graph.inputs, *tensors)]
    outputs = {graph.tensors[i].name for i in graph.outputs}
    for arrays in portions(content, batches):
        inputs = ordered(arrays, runner.input_names)
        found = dict(zip(names, [*inputs, *runner.predict(arrays, batch_size=_CHUNK)], strict=True))
        for name in outputs & found.keys():
            if not np.isfinite(found[name]).all():
                raise StageError(
                    "calibration examples lead to outputs that are not finite",
                    subject=name,
                    hint="shrink data check",
                )
        yield found


def values_of_few(content: bytes, few: Named) -> Activations:
    """Return what `tensor_values` yields of a few examples, all of it at once."""
    pieces = list(tensor_values(content, [few]))
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
