"""Masks and patterns against numpy's sorting and plain loops, and through real updates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import RecipeError
from shrink.contract.report import Skipped
from shrink.pruning.masks import (
    PATTERNS,
    Masks,
    block,
    constant,
    count_zeros,
    frozen_masks,
    polynomial,
    prunable_kernels,
    pruned_count,
    ramp_updates,
    two_of_four,
    unfreeze,
    unstructured,
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
    assert {s.layer: s.reason for s in skipped} == {
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
    assert skipped[0] == Skipped(layer="conv", reason="its 3 input channels are no multiple of 4")


def test_unfreeze_opens_the_layers_of_kernels_in_a_frozen_base() -> None:
    base = model()
    base.trainable = False
    inputs = keras.Input((8, 8, 3))
    head = keras.layers.Dense(2, name="head")
    whole = keras.Model(inputs, head(base(inputs)))
    kernels = prunable_kernels(whole, exclude=("dense",))[0]
    assert unfreeze(whole, kernels) == ["conv"]
    trained = {id(weight) for weight in whole.trainable_weights}
    assert trained == {id(w) for w in (*base.get_layer("conv").weights, *head.weights)}
    assert not base.get_layer("norm").trainable
    assert unfreeze(whole, kernels) == []


def test_schedules_tell_how_many_weights_of_a_large_kernel() -> None:
    # float32 holds 0.7 as 0.69999999, and numbers of this size in steps of 1.
    size = 12_000_001
    for schedule in (constant(0.7), polynomial(0.7, last_update=4)):
        assert float(tf.round(schedule(tf.constant(4)) * size)) == round(0.7 * size)


def test_ramp_updates_is_at_least_one() -> None:
    assert [ramp_updates(0.0, 100), ramp_updates(0.5, 100), ramp_updates(0.6, 1)] == [1, 50, 1]


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


SHAPES = [(8, 5), (3, 4, 6), (3, 3, 12, 2)]


def kernel(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def groups(array: np.ndarray) -> Iterator[np.ndarray]:
    """Four consecutive input channels of one place and one output after the other."""
    for place in np.ndindex(array.shape[:-2]):
        for output in range(array.shape[-1]):
            column = array[place][:, output]
            yield from (column[n : n + 4] for n in range(0, len(column), 4))


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("shape", [(7,), (3, 3, 5, 4), (1,)])
def test_unstructured_prunes_the_smallest(sparsity: float, shape: tuple[int, ...]) -> None:
    weights = kernel(shape)
    mask = unstructured(tf.constant(weights), tf.constant(sparsity)).numpy()
    count = round(np.float32(sparsity) * np.float32(weights.size))
    order = np.argsort(np.abs(weights).ravel())
    expected = np.ones(weights.size, np.float32)
    expected[order[:count]] = 0
    np.testing.assert_array_equal(mask.ravel(), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_two_of_four_keeps_the_two_largest_of_each_group(shape: tuple[int, ...]) -> None:
    weights = kernel(shape)
    mask = two_of_four(tf.constant(weights), tf.constant(0.5)).numpy()
    for values, kept in zip(groups(weights), groups(mask), strict=True):
        assert set(np.flatnonzero(kept)) == set(np.argsort(np.abs(values))[2:])


def test_two_of_four_keeps_two_of_equals() -> None:
    mask = two_of_four(tf.zeros((8, 3)), tf.constant(0.5)).numpy()
    assert [kept.sum() for kept in groups(mask)] == [2] * 6


@pytest.mark.parametrize("sparsity", [0.0, 0.25, 0.5, 0.8])
@pytest.mark.parametrize("shape", SHAPES)
def test_block_prunes_whole_groups_of_least_norm(sparsity: float, shape: tuple[int, ...]) -> None:
    weights = kernel(shape)
    mask = block(tf.constant(weights), tf.constant(sparsity)).numpy()
    norms = [np.abs(values).sum() for values in groups(weights)]
    kept = [bool(values.all()) for values in groups(mask)]
    assert all(values.all() or not values.any() for values in groups(mask))
    count = round(sparsity * len(norms))
    assert sorted(np.argsort(norms)[:count]) == [n for n, stays in enumerate(kept) if not stays]


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_is_of_the_kernel_and_runs_in_a_graph(name: str) -> None:
    weights = tf.constant(kernel((3, 3, 8, 2)), tf.float64)
    mask = tf.function(PATTERNS[name])(weights, tf.constant(0.5))
    assert mask.shape == weights.shape
    assert mask.dtype == tf.float64
    assert float(tf.reduce_mean(mask)) == 0.5


SPARSITIES = [0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 0.99]
SIGNS = np.where(np.random.default_rng(0).random((3, 3, 8, 5)) < 0.5, -0.25, 0.25)
TIED = {
    "binary": SIGNS,
    "ternary": SIGNS * (np.arange(5) % 3),
    "constant": np.full((6, 4), 2.0),
    "nothing": np.zeros((4, 4)),
    "half zeros": np.arange(64).reshape(8, 8) % 2 * 3.0,
    "one": np.full((1, 1), 0.5),
    "two": np.full((2, 1), 0.5),
}


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("name", TIED)
def test_unstructured_prunes_exactly_as_many_when_weights_are_equal(
    name: str, sparsity: float
) -> None:
    weights = TIED[name].astype(np.float32)
    mask = unstructured(tf.constant(weights), tf.constant(sparsity, tf.float64)).numpy()
    assert int(np.sum(mask == 0)) == round(sparsity * weights.size)
    # Nothing larger goes while something smaller stays.
    pruned, kept = np.abs(weights)[mask == 0], np.abs(weights)[mask == 1]
    assert not pruned.size or not kept.size or pruned.max() <= kept.min()


@pytest.mark.parametrize("sparsity", SPARSITIES)
def test_block_prunes_exactly_as_many_groups_when_norms_are_equal(sparsity: float) -> None:
    weights = SIGNS.astype(np.float32)
    mask = block(tf.constant(weights), tf.constant(sparsity, tf.float64)).numpy()
    assert int(np.sum(mask == 0)) == 4 * round(sparsity * weights.size / 4)
    assert all(values.all() or not values.any() for values in groups(mask))


def test_unstructured_spreads_equal_weights_over_the_kernel() -> None:
    mask = unstructured(tf.ones((40, 25)), tf.constant(0.3, tf.float64)).numpy()
    assert np.abs(np.sum(mask == 0, axis=0) - 0.3 * 40).max() <= 9  # three standard deviations
    assert np.abs(np.sum(mask == 0, axis=1) - 0.3 * 25).max() <= 7


def test_unstructured_prunes_the_same_at_every_call() -> None:
    weights, sparsity = tf.constant(SIGNS, tf.float32), tf.constant(0.3, tf.float64)
    np.testing.assert_array_equal(
        unstructured(weights, sparsity), tf.function(unstructured)(weights, sparsity)
    )


def test_pruned_count_counts_units_of_the_pattern() -> None:
    kernel = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 2.0]])
    assert pruned_count(kernel, "unstructured") == (6, 8)
    assert pruned_count(kernel, "block") == (1, 2)
    assert pruned_count(kernel, "2:4") == (2, 2)
    assert pruned_count(np.array([[0.0], [1.0], [1.0], [1.0]]), "2:4") == (0, 1)
