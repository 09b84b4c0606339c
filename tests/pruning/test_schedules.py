"""Schedules against tfmot's own."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tensorflow_model_optimization.python.core.sparsity.keras.pruning_schedule import (
    ConstantSparsity,
    PolynomialDecay,
)

from shrink.pruning.masks import Masks, constant, polynomial, updates_between_choices


@pytest.mark.parametrize(
    ("initial", "sparsity", "last"),
    [(0.0, 0.5, 1), (0.0, 0.8, 10), (0.0, 0.975, 37), (0.3, 0.8, 20), (0.5, 0.5, 4)],
)
def test_polynomial_gives_the_values_of_polynomial_decay(
    initial: float, sparsity: float, last: int
) -> None:
    theirs = PolynomialDecay(initial, sparsity, 0, last)
    ours = polynomial(sparsity, last, initial)
    for step in range(last + 5):
        _, wanted = theirs(tf.constant(step, tf.int64))
        assert float(ours(tf.constant(step))) == pytest.approx(float(wanted), abs=1e-6)


def test_constant_gives_the_values_of_constant_sparsity() -> None:
    theirs, ours = ConstantSparsity(0.7, begin_step=0), constant(0.7)
    for step in range(5):
        _, wanted = theirs(tf.constant(step, tf.int64))
        assert float(ours(tf.constant(step))) == pytest.approx(float(wanted), abs=1e-6)


@pytest.mark.parametrize("frequency", [1, 4, 7])
def test_masks_are_chosen_at_the_updates_that_tfmot_prunes_at_and_at_the_last(
    frequency: int,
) -> None:
    # tfmot leaves the final sparsity out where end_step is no multiple of the frequency.
    last = 20
    theirs = PolynomialDecay(0.0, 0.5, 0, last, frequency=frequency)
    kernel = tf.Variable(tf.random.stateless_normal((50, 20), (1, 2)))
    masks = Masks([kernel], polynomial(0.5, last), last, frequency)
    wanted = 0
    for step in range(1, last + 3):
        masks(tf.distribute.get_strategy(), tf.constant(step))
        due, sparsity = theirs(tf.constant(step, tf.int64))
        wanted = round(float(sparsity) * 1000) if bool(due) or step == last else wanted
        assert int(tf.math.count_nonzero(kernel == 0)) == pytest.approx(wanted, abs=1)


@pytest.mark.parametrize(
    ("last", "updates"), [(0, 1), (1, 1), (48, 1), (95, 1), (96, 2), (480, 10), (9999, 10)]
)
def test_updates_between_choices_are_few_on_a_short_ramp(last: int, updates: int) -> None:
    assert updates_between_choices(last) == updates
