"""Clusters against a closed form and scikit-learn's own objective, and through real updates."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.pruning.sharing import as_shared, cluster, keep_shared

RNG = np.random.default_rng(0)


def test_cluster_finds_the_clusters_that_are_there() -> None:
    centres = np.array([-2.0, -0.5, 0.3, 4.0])
    which = RNG.integers(0, 4, (3, 3, 5, 6))
    kernel = (centres[which] + RNG.normal(scale=1e-3, size=which.shape)).astype(np.float32)
    shared = cluster(kernel, 4, seed=0, keep_zeros=False)
    expected = [kernel[which == n].mean() for n in range(4)]
    np.testing.assert_allclose(np.sort(shared.values), expected, atol=1e-6)
    np.testing.assert_allclose(shared.kernel, np.array(expected)[which], atol=1e-6)


def test_cluster_is_as_good_as_the_best_split_of_all() -> None:
    weights = np.sort(RNG.normal(size=12)).astype(np.float32)

    def loss(cuts: tuple[int, ...]) -> float:
        parts = np.split(weights, cuts)
        return sum(float(((p - p.mean()) ** 2).sum()) for p in parts)

    best = min(loss((a, b)) for a in range(1, 11) for b in range(a + 1, 12))
    shared = cluster(weights, 3, seed=0, keep_zeros=False)
    assert float(((weights - shared.kernel) ** 2).sum()) == pytest.approx(best, rel=1e-5)


def test_cluster_keeps_values_apart_that_are_few_and_near() -> None:
    kernel = RNG.normal(size=54).astype(np.float32)
    kernel[1] = np.nextafter(kernel[0], np.float32(9))
    np.testing.assert_array_equal(cluster(kernel, 100, seed=0, keep_zeros=False).kernel, kernel)


@pytest.mark.parametrize("clusters", [2, 3, 16])
def test_cluster_keeps_zeros_and_counts_them(clusters: int) -> None:
    kernel = RNG.normal(size=(20, 10)).astype(np.float32)
    kernel[RNG.random(kernel.shape) < 0.5] = 0
    shared = cluster(kernel, clusters, seed=1, keep_zeros=True)
    np.testing.assert_array_equal(shared.kernel == 0, kernel == 0)
    assert len(np.unique(shared.kernel)) == clusters


@pytest.mark.parametrize("kernel", [np.zeros((2, 3)), np.ones((4,)), np.array([0.0, 1.0, 1.0])])
def test_cluster_leaves_a_kernel_of_few_values_as_it_is(kernel: np.ndarray) -> None:
    shared = cluster(kernel, 16, seed=0, keep_zeros=True)
    np.testing.assert_array_equal(shared.kernel, kernel.astype(np.float32))


def test_as_shared_is_none_for_many_values() -> None:
    assert as_shared(np.arange(257.0)) is None
    shared = as_shared(np.array([[3.0, 1.0], [1.0, 3.0]]))
    assert shared is not None
    np.testing.assert_array_equal(shared.kernel, [[3.0, 1.0], [1.0, 3.0]])


def test_an_update_moves_each_centroid_by_the_mean_gradient() -> None:
    model = keras.Sequential([keras.layers.Dense(4, use_bias=False, input_shape=(6,))])
    kernel = model.layers[0].kernel
    kernel.assign(cluster(kernel.numpy(), 5, seed=0, keep_zeros=False).kernel)
    before = as_shared(kernel.numpy())
    assert before is not None
    hook, rate, gradient = keep_shared(model), 0.1, RNG.normal(size=(6, 4)).astype(np.float32)

    @tf.function
    def update() -> None:
        kernel.assign_sub(rate * gradient)
        hook(tf.distribute.get_strategy(), tf.constant(1))

    update()
    means = [gradient[before.assignment == n].mean() for n in range(len(before.values))]
    expected = (before.values - rate * np.array(means))[before.assignment]
    np.testing.assert_allclose(kernel.numpy(), expected, atol=1e-6)
    assert len(np.unique(kernel.numpy())) == len(before.values)


def test_shared_kernels_leave_other_kernels_alone() -> None:
    model = keras.Sequential([keras.layers.Dense(300, use_bias=False, input_shape=(2,))])
    before = model.layers[0].kernel.numpy()
    keep_shared(model)(tf.distribute.get_strategy(), tf.constant(1))
    np.testing.assert_array_equal(model.layers[0].kernel.numpy(), before)
