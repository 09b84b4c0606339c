"""Sums of gradients from one micro-batch to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shrink.engine.accumulate import Accumulators
from shrink.measure.memory import AllocatorPeak


def test_accumulators_begin_at_zero_whatever_they_held_before() -> None:
    variables = [tf.Variable(tf.ones((2, 3), tf.float64)), tf.Variable(1.0)]
    sums = Accumulators(variables)

    @tf.function
    def step(factor: Any) -> list[Any]:
        sums.clear()
        for _ in range(2):
            for place, variable in enumerate(variables):
                sums.add(place, tf.cast(factor, variable.dtype) * variable)
        return sums.values()

    step(tf.constant(np.nan))
    matrix, number = step(tf.constant(1.5))
    np.testing.assert_array_equal(matrix, np.full((2, 3), 3.0))
    assert float(number) == 3.0


def test_accumulators_are_added_to_where_they_are() -> None:
    memory = AllocatorPeak()
    if memory.note:
        pytest.skip(memory.note)
    size_bytes = 32 << 20
    sums = Accumulators([tf.Variable(tf.zeros([size_bytes // 4]))])

    @tf.function
    def clear() -> None:
        sums.clear()

    @tf.function
    def add(value: Any) -> None:
        sums.add(0, tf.fill([size_bytes // 4], value))

    clear()
    add(tf.constant(1.0))
    held = memory.held() or 0
    memory.reset()
    add(tf.constant(2.0))
    # The gradient itself, and no second sum.
    assert size_bytes <= (memory.peak() or 0) - held < 1.5 * size_bytes
    assert float(sums.values()[0][-1]) == 3.0
