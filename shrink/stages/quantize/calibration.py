"""Representative examples for static quantization: from the training split, stratified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shrink.data.dataset import Examples
from shrink.data.splits import stratified_sample

_CHUNK = 50


def calibration_examples(
    examples: Examples, count: int, seed: int
) -> Iterator[Sequence[np.ndarray]]:
    """Yield `count` examples one by one, each a list of float32 arrays of batch size 1.

    Memory does not grow with `count`: a few dozen examples are held at a time.
    """
    chosen = stratified_sample(examples.labels, len(examples), min(count, len(examples)), seed)
    for start in range(0, len(chosen), _CHUNK):
        x, _ = examples.arrays(chosen[start : start + _CHUNK])
        for example in x:
            yield [np.asarray(example[None], np.float32)]
