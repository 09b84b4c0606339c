from __future__ import annotations

import numpy as np

from shrink.base.errors import DataError
from shrink.base.types import Spec
from shrink.data.arrays import ArrayExamples
from shrink.data.examples import example_bytes

LABEL = Spec((), np.dtype(np.int64))


def test_example_bytes_adds_up_any_structure() -> None:
    image = Spec((4, 3, 2), np.dtype(np.uint8))
    assert example_bytes((image, {"a": Spec((5,), np.dtype(np.float32))}), LABEL) == 24 + 20 + 8


class _OneBad(ArrayExamples):
    def arrays(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if 700 in indices:
            raise DataError(f"700 is among {len(indices)}")
        return super().arrays(indices)


def test_explain_reads_all_in_batches() -> None:
    numbers = np.arange(1000)
    examples = _OneBad(numbers[:, None], numbers, numbers)
    assert examples.explain(numbers[:600]) is None
    assert str(examples.explain(numbers)) == "700 is among 488"
