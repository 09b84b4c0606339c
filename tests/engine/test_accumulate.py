"""Sums of gradients from one micro-batch to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from shrink.engine.accumulate import Accumulators


def test_accumulators_begin_at_zero_whatever_they_held_before() -> None:
    variables = [tf.Variable(tf.ones((2, 3), tf.float64)), tf.Variable(1.0)]
    sums = Accumulators(variables)

    @tf.function
    def step(factor: Any) -> list[Any]:
        sums.clear()
        for _ in range(2):
            sums.add([tf.cast(factor, variable.dtype) * variable for variable in variables])
        return sums.values()

    step(tf.constant(np.nan))
    matrix, number = step(tf.constant(1.5))
    np.testing.assert_array_equal(matrix, np.full((2, 3), 3.0))
    assert float(number) == 3.0
