"""Random layers that draw from a counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.randomness import RandomSeeds, continued_randomness, stateful_generators


def draws(seed: int, passes: int, *, skip: int = 0) -> list[Any]:
    """Return what two dropout layers leave of ones, in each forward pass."""
    layers = keras.layers
    inputs = layers.Input((1000,))
    first = layers.Dropout(0.25)(inputs)
    model = keras.Model(inputs, [first, layers.Dropout(0.25)(inputs)])
    seeds = RandomSeeds(seed)
    seeds.variable.assign(skip)

    @tf.function
    def step() -> Any:
        seeds.begin()
        return model(tf.ones((1, 1000)), training=True)

    with continued_randomness(model, seeds):
        results = [np.stack(step())[:, 0] > 0 for _ in range(passes)]
    assert len(stateful_generators(model)) == 2
    return results


def test_draws_differ_between_layers_passes_and_seeds() -> None:
    (a, b), (c, _) = draws(seed=0, passes=2)
    ((d, _),) = draws(seed=1, passes=1)
    # Independent draws agree at 0.75² + 0.25² of all places.
    for one, other in ((a, b), (a, c), (a, d), (b, c)):
        assert abs(np.mean(one == other) - 0.625) < 0.1


def test_draws_keep_the_share_that_dropout_asks_for() -> None:
    (kept, _), *_ = draws(seed=3, passes=1)
    assert abs(kept.mean() - 0.75) < 0.06  # more than four standard deviations of 1,000 draws


def test_draws_continue_where_the_counter_stands() -> None:
    whole = draws(seed=0, passes=3)
    np.testing.assert_array_equal(draws(seed=0, passes=1, skip=2)[0], whole[2])


def test_stateful_generators_finds_those_of_recurrent_dropout() -> None:
    # Which keeps masks by graph: tf.Module's `submodules` fails once there are two kinds of graphs.
    inputs = keras.layers.Input((5, 2))
    layer = keras.layers.SimpleRNN(3, recurrent_dropout=0.5)
    model = keras.Model(inputs, layer(inputs))
    tf.function(lambda x: model(x, training=True)).get_concrete_function(tf.TensorSpec((1, 5, 2)))
    assert layer.cell._random_generator in stateful_generators(model)
