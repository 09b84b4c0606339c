"""Representative examples for static quantization: from the training split, stratified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shrink.data.dataset import Examples
from shrink.data.splits import stratified_sample

_CHUNK = 50


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
            for example in x:
                yield [np.asarray(example[None], np.float32)]
