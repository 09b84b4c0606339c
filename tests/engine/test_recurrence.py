"""Loops over time steps, one step after the other."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.engine.recompute import steps_in_order


def _steps_at_a_time(*, in_order: bool) -> set[int]:
    """Return how many steps the loops of a recurrent layer and of its gradient may have begun."""
    layer = keras.layers.SimpleRNN(3)

    @tf.function
    def gradients(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape, steps_in_order() if in_order else nullcontext():
            loss = tf.reduce_sum(layer(x))
        return tape.gradient(loss, layer.trainable_variables)

    graph = gradients.get_concrete_function(tf.TensorSpec((None, 5, 2))).graph
    loops = [each for each in graph.get_operations() if each.type in ("While", "StatelessWhile")]
    assert len(loops) == 2  # forwards and backwards
    return {loop.get_attr("parallel_iterations") for loop in loops}


def test_steps_in_order_holds_for_the_gradient_too() -> None:
    assert _steps_at_a_time(in_order=True) == {1}
    assert _steps_at_a_time(in_order=False) == {32}


def test_steps_in_order_ends_when_a_layer_fails() -> None:
    while_loop = tf.compat.v2.compat.v1.while_loop
    with pytest.raises(ValueError, match="incompatible"), steps_in_order():
        keras.layers.SimpleRNN(3)(tf.zeros((2, 5)))
    assert tf.compat.v2.compat.v1.while_loop is while_loop
