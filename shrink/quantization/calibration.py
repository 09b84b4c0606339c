"""Calibration examples, and what is suspicious about them."""

from __future__ import annotations

import hashlib
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


_FEW = 100
_MOST_NAMED = 5


def lint_calibration(calibration: CalibrationExamples, class_names: Sequence[str]) -> list[str]:
    """Return a sentence for everything that makes the examples a poor sample of the training split.

    Args:
        calibration: the sample.
        class_names: names of the labels, empty where they have none.
    """
    notes = []
    if len(calibration.indices) < _FEW:
        notes.append(
            f"calibration: {len(calibration.indices)} examples; ranges from fewer than {_FEW} "
            "depend on which these are"
        )
    constant, duplicated = count_repeats(calibration.batches())
    if constant:
        notes.append(f"calibration: {constant} examples hold one value everywhere")
    if duplicated:
        notes.append(f"calibration: {duplicated} examples repeat another one")
    if missing := calibration.missing_labels():
        named = [class_names[i] if i < len(class_names) else str(i) for i in missing]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        notes.append(
            f"calibration: no example of the classes {', '.join(named[:_MOST_NAMED])}{more}"
        )
    return notes


def count_repeats(batches: Batches) -> tuple[int, int]:
    """Return the number of examples with one value everywhere, and of those seen before.

    Of several inputs, each must hold one value, and all of them count for a repeat.
    Constant examples are not counted as repeats of one another.
    """
    constant = duplicated = 0
    seen: set[bytes] = set()
    for arrays in batches:
        for parts in zip(*arrays.values(), strict=True):
            if any(part.size > 1 for part in parts) and not any(np.ptp(part) for part in parts):
                constant += 1
                continue
            values = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
            digest = hashlib.blake2b(values).digest()
            duplicated += digest in seen
            seen.add(digest)
    return constant, duplicated
