"""Representative examples for static quantization: from the training split, stratified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from shrink.data.examples import Examples
from shrink.data.splits import stratified_sample
from shrink.tflite.names import Named, named, row_count

Batches = Iterable[Named]
"""Arrays (n, ...) by the name of the model's input, a few examples at a time."""

_CHUNK = 50
_MOST_KEPT_BYTES = 64_000_000


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
