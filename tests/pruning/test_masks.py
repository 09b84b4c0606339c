"""Masks against numpy's own sorting, and through real updates."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import RecipeError
from shrink.pruning.masks import (
    Masks,
    constant,
    count_zeros,
    frozen_masks,
    polynomial,
    prunable_kernels,
    ramp_updates,
)


def model() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, name="conv")(inputs)
    x = keras.layers.DepthwiseConv2D(3, name="depthwise")(x)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Flatten()(x)
    return keras.Model(inputs, keras.layers.Dense(5, name="dense")(x))


def test_prunable_kernels_lists_what_is_left_alone_and_why() -> None:
    kernels, skipped = prunable_kernels(model(), exclude=("den*",))
    assert [k.layer for k in kernels] == ["conv"]
    assert {s["layer"]: s["reason"] for s in skipped} == {
        "depthwise": "a depthwise kernel has too few weights per channel",
        "dense": "excluded by the recipe",
    }


def test_prunable_kernels_refuses_a_pattern_that_fits_nothing() -> None:
    with pytest.raises(RecipeError, match="'densse' fits no layer") as caught:
        prunable_kernels(model(), exclude=("conv", "densse"))
    assert caught.value.hint == "did you mean dense?"
    assert caught.value.exit_code == 2
    inputs = keras.Input((8, 8, 3))
    inner = keras.Model(inputs, model()(inputs), name="inner")  # has no kernel of its own
    with pytest.raises(RecipeError, match="'inner' fits no layer"):
        prunable_kernels(keras.Model(inputs, inner(inputs)), exclude=("inner",))


def test_prunable_kernels_leaves_alone_what_has_no_whole_groups() -> None:
    kernels, skipped = prunable_kernels(model(), multiple_of=4)
    assert [k.layer for k in kernels] == ["dense"]
    assert skipped[0] == {"layer": "conv", "reason": "its 3 input channels are no multiple of 4"}


def test_polynomial_follows_the_published_equation() -> None:
    schedule = polynomial(0.8, last_update=10)
    for step in range(15):
        expected = 0.8 + (0.0 - 0.8) * (1 - min(step, 10) / 10) ** 3
        assert float(schedule(tf.constant(step))) == pytest.approx(expected, abs=1e-6)


def test_schedules_tell_how_many_weights_of_a_large_kernel() -> None:
    # float32 holds 0.7 as 0.69999999, and numbers of this size in steps of 1.
    size = 12_000_001
    for schedule in (constant(0.7), polynomial(0.7, last_update=4)):
        assert float(tf.round(schedule(tf.constant(4)) * size)) == round(0.7 * size)


def test_ramp_updates_is_at_least_one() -> None:
    assert [ramp_updates(0.0, 100), ramp_updates(0.5, 100), ramp_updates(0.6, 1)] == [1, 50, 1]


def test_masks_follow_the_schedule_once_per_update() -> None:
    kernel = tf.Variable(np.random.default_rng(1).normal(size=(20, 10)).astype(np.float32))
    masks = Masks([kernel], polynomial(0.5, last_update=4), last_update=4, frequency=2)
    strategy = tf.distribute.get_strategy()
    fractions = []
    for step in range(1, 7):
        kernel.assign_add(tf.random.stateless_normal(kernel.shape, (step, 0)) * 0.01)
        masks(strategy, tf.constant(step))
        fractions.append(float(np.mean(kernel.numpy() == 0)))
    # Chosen at updates 2 and 4 only: 0.5 * (1 - (1 - 2/4)^3) = 0.4375 of 200 weights, rounded.
    assert fractions == [0.0, 0.44, 0.44, 0.5, 0.5, 0.5]


def test_frozen_masks_keep_zeros_where_they_are() -> None:
    pruned = model()
    first = prunable_kernels(pruned)[0][0].kernel
    Masks([first], constant(0.5)).prune_now(0.5)
    zeros = first.numpy() == 0
    before = count_zeros(pruned).fraction
    masks = frozen_masks(pruned)
    first.assign_add(tf.ones_like(first))
    masks(tf.distribute.get_strategy(), tf.constant(1))
    assert np.all(first.numpy()[zeros] == 0)
    assert np.all(first.numpy()[~zeros] != 0)
    assert before == pytest.approx(np.sum(zeros) / (first.numpy().size + 4 * 4 * 4 * 5))


def test_count_zeros_is_zero_without_kernels() -> None:
    inputs = keras.Input((3,))
    assert count_zeros(keras.Model(inputs, keras.layers.ReLU()(inputs))).fraction == 0.0
