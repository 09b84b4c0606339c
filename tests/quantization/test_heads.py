"""Outputs of mixed ranges, and outputs that are split, against hand-made ones."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.quantization.heads import mixed_ranges, split_outputs


def test_mixed_ranges_names_the_channels_that_few_steps_are_left_for() -> None:
    values = np.zeros((5, 3, 6), np.float32)
    values[..., :2] = np.linspace(0, 96, 15).reshape(5, 3, 1)
    values[..., 2:5] = np.linspace(0, 1, 15).reshape(5, 3, 1)  # the last is constant
    found = mixed_ranges("y", values, 96 / 255)
    assert found is not None
    assert (found.channels, found.low, found.high) == ((2, 3, 4), 0, 1)
    assert found.values == int(255 / 96) + 1 == 3
    assert "channels 2 to 4" in str(found)


def test_mixed_ranges_names_a_channel_beside_one_far_from_zero() -> None:
    kelvin, share = np.linspace(280, 320, 40), np.linspace(0, 1, 40)
    found = mixed_ranges("y", np.stack([kelvin, share], 1), 320 / 255)
    assert found is not None
    assert (found.channels, found.values) == ((1,), 1)


@pytest.mark.parametrize(
    ("high", "scale"),
    [(0.5, 1 / 255), (1.0, 0.0), (1e-3, 0.1)],
    ids=["alike", "float", "all coarse"],
)
def test_mixed_ranges_says_nothing_where_one_scale_suits_all(high: float, scale: float) -> None:
    values = np.random.default_rng(0).random((8, 4)) * [high, high, high, 0.5 * high]
    assert mixed_ranges("y", values, scale) is None


def test_split_outputs_gives_the_parts_of_the_last_concatenation_in_their_order() -> None:
    inputs = keras.Input((6, 3))
    parts = [keras.layers.Dense(n)(inputs) for n in (4, 2)]
    model = keras.Model(inputs, keras.layers.Concatenate()(parts))
    x = np.random.default_rng(1).normal(size=(2, 6, 3)).astype(np.float32)
    apart = split_outputs(model)
    assert [tuple(one.shape) for one in apart.outputs] == [(None, 6, 4), (None, 6, 2)]
    np.testing.assert_array_equal(np.concatenate(apart(x), axis=-1), model(x))


@pytest.mark.parametrize("axis", [None, 1])
def test_split_outputs_refuses_what_does_not_end_in_one_concatenation(axis: int | None) -> None:
    inputs = keras.Input((6, 3))
    outputs = keras.layers.Dense(4)(inputs)
    if axis is not None:
        outputs = keras.layers.Concatenate(axis=axis)([outputs, keras.layers.Dense(4)(inputs)])
    with pytest.raises(StageError, match="Concatenate"):
        split_outputs(keras.Model(inputs, outputs))
