"""Layers begin with zeros where they are told to, and random numbers stay those that they were."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.graph.initial import only_of_keras, weights_to_come

L = keras.layers


def layers() -> list[keras.layers.Layer]:
    kinds = ("glorot_uniform", "he_normal", "truncated_normal", "random_uniform", "orthogonal")
    return [L.Dense(3, kernel_initializer=kind) for kind in kinds]


def built(many: list[keras.layers.Layer]) -> list[np.ndarray]:
    for layer in many:
        layer.build((None, 4))
    return [layer.get_weights()[0] for layer in many]


def test_weights_to_come_are_zeros_and_what_is_drawn_later_stays() -> None:
    keras.utils.set_random_seed(3)
    drawn, after = built(layers()), built(layers())
    dropped = L.Dropout(0.5)(np.ones((1, 64), np.float32), training=True)
    keras.utils.set_random_seed(3)
    with weights_to_come():
        zeros = built(layers())
    again = built(layers())
    assert all(kernel.any() for kernel in drawn)
    assert not any(kernel.any() for kernel in zeros[:-1])
    for mine, theirs in zip(after, again, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(
        dropped, L.Dropout(0.5)(np.ones((1, 64), np.float32), training=True)
    )


def test_weights_to_come_leave_other_random_numbers_alone() -> None:
    with weights_to_come():
        dropped = L.Dropout(0.5)(np.ones((1, 64), np.float32), training=True).numpy()
    assert 0 < np.count_nonzero(dropped) < 64


def test_weights_to_come_ends_with_its_block() -> None:
    with pytest.raises(KeyError), weights_to_come():
        raise KeyError
    assert built([L.Dense(3)])[0].any()


class Own(keras.layers.Dense):
    """A layer of somebody."""


def test_only_of_keras_looks_into_models_and_wrappers() -> None:
    assert only_of_keras([L.Dense(3), L.TimeDistributed(L.Dense(3))])
    assert not only_of_keras([Own(3)])
    assert not only_of_keras([L.TimeDistributed(Own(3))])
    assert not only_of_keras([keras.Sequential([L.Input((4,)), Own(3)])])
