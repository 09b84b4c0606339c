from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.arrays import ArrayExamples
from shrink.data.examples import example_bytes, reading_batch

LABEL = tf.TensorSpec((), tf.int64)


def test_example_bytes_adds_up_any_structure() -> None:
    image = tf.TensorSpec((4, 3, 2), tf.uint8)
    assert example_bytes((image, {"a": tf.TensorSpec((5,), tf.float32)}), LABEL) == 24 + 20 + 8


@pytest.mark.parametrize(("side", "count"), [(1, 512), (1000, 15), (9000, 1), (10**9, 1)])
def test_reading_batch_is_bounded_by_bytes(side: int, count: int) -> None:
    assert reading_batch(tf.TensorSpec((side, 1000), tf.uint8), LABEL) == count


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
