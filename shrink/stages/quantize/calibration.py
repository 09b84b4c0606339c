"""Representative examples for static quantization: from the training split, stratified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from shrink.data.dataset import Examples
from shrink.data.splits import stratified_sample

Batches = Iterable[list[np.ndarray]]
_CHUNK = 50
_MOST_KEPT_BYTES = 64_000_000


class CalibrationExamples:
    """A stratified sample of examples, one by one, as often as it is iterated.

    Memory does not grow with `count`: a few dozen examples are held at a time.

    Args:
        examples: the training split.
        count: how many to take; all of them where there are fewer.
        seed: decides which.
    """

    def __init__(self, examples: Examples, count: int, seed: int) -> None:
        self._examples = examples
        count = min(count, len(examples))
        self.indices = stratified_sample(examples.labels, len(examples), count, seed)

    def __iter__(self) -> Iterator[Sequence[np.ndarray]]:
        """Yield each example as a list of float32 arrays of batch size 1, one per input."""
        for start in range(0, len(self.indices), _CHUNK):
            x, _ = self._examples.arrays(self.indices[start : start + _CHUNK])
            for row in zip(*_inputs(x), strict=True):
                yield [np.asarray(part[None], np.float32) for part in row]

    def missing_labels(self) -> list[int]:
        """Return the labels of the split that no chosen example has; empty without labels."""
        labels = self._examples.labels
        if labels is None:
            return []
        return [int(i) for i in np.setdiff1d(labels, labels[self.indices])]

    def batches(self, most: int | None = None) -> Batches:
        """Return the examples as lists of float32 arrays (up to 50, ...), to iterate repeatedly.

        Args:
            most: take no more than these, spread evenly.
        """
        step = 1 if most is None else max(1, -(-len(self.indices) // most))
        return _Batches(self._examples, self.indices[::step])


class _Batches:
    """Reads once what is small, and each time anew what is not."""

    def __init__(self, examples: Examples, indices: np.ndarray) -> None:
        self._examples = examples
        self._indices = indices
        self._kept: list[list[np.ndarray]] | None = None

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[list[np.ndarray]] = []
        for start in range(0, len(self._indices), _CHUNK):
            x, _ = self._examples.arrays(self._indices[start : start + _CHUNK])
            arrays = [np.asarray(part, np.float32) for part in _inputs(x)]
            yield arrays
            if self._all_fit(arrays):
                kept.append(arrays)
        if len(kept) * _CHUNK >= len(self._indices):
            self._kept = kept

    def _all_fit(self, arrays: list[np.ndarray]) -> bool:
        """Whether all examples, judged by these, are few enough bytes to keep."""
        each = sum(part.nbytes for part in arrays) / len(arrays[0])
        return each * len(self._indices) <= _MOST_KEPT_BYTES


def _inputs(x: Any) -> tuple[np.ndarray, ...]:
    """Return the inputs of a batch, one array (n, ...) each, in the model's order."""
    return x if isinstance(x, tuple) else (x,)
