"""Each of tf-keras' internals does what shrink takes it for; a new tf-keras may change them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base import keras_internals as internals

L = keras.layers


@pytest.fixture
def model() -> keras.Model:
    base = keras.Sequential([L.Input((4,)), L.Dense(3, name="inner")], name="base")
    inputs = L.Input((4,), name="x")
    hidden = L.BatchNormalization(name="norm")(base(inputs))
    return keras.Model({"x": inputs}, {"y": L.Dropout(0.5, name="drop")(hidden)})


def names(layers: list[Any]) -> list[str]:
    return [layer.name for layer in layers]


def test_layers_of_and_parts_of_look_into_models_and_wrappers(model: keras.Model) -> None:
    found = names(internals.layers_of(model))
    assert {"base", "drop", "inner", "norm", "x"} < {*found}
    assert sorted(names(internals.parts_of(model))) == sorted([*found, model.name])
    wrapper = L.TimeDistributed(L.Dense(2, name="wrapped"))
    assert names(internals.layers_of(wrapper)) == ["wrapped"]


def test_inner_layers_do_not_look_into_models(model: keras.Model) -> None:
    assert sorted(names(internals.inner_layers(model))) == ["base", "drop", "norm", "x"]


def test_own_weights_and_own_state_are_those_of_a_layer_alone(model: keras.Model) -> None:
    norm, inner = model.get_layer("norm"), model.get_layer("base").get_layer("inner")
    model.trainable = False
    assert [w.name for w in internals.own_weights(norm)] == ["norm/gamma:0", "norm/beta:0"]
    assert len(internals.own_state(norm)) == 2
    assert len(internals.own_weights(inner)) == 2
    assert internals.own_weights(L.TimeDistributed(inner)) == []


def test_freeze_alone_leaves_parts_as_they_are(model: keras.Model) -> None:
    internals.freeze_alone(model)
    assert not model.trainable
    assert model.get_layer("norm").trainable


def test_rename(model: keras.Model) -> None:
    internals.rename(model.get_layer("norm"), "other")
    assert model.get_layer("other").gamma is not None


def test_takes_training(model: keras.Model) -> None:
    assert internals.takes_training(model.get_layer("norm"))
    assert not internals.takes_training(L.ReLU())


def test_added_losses_and_loss_functions(model: keras.Model) -> None:
    class Adds(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            self.add_loss(tf.reduce_sum(x))
            return x

    adds = Adds()
    adds(tf.ones((1, 2)))
    assert internals.added_losses(adds)
    assert not internals.added_losses(model.get_layer("norm"))
    model.add_loss(lambda: tf.constant(1.0))
    assert len(internals.loss_functions(model)) == 1


def test_is_functional(model: keras.Model) -> None:
    assert internals.is_functional(model)
    assert internals.is_functional(model.get_layer("base"))
    assert not internals.is_functional(keras.Sequential([L.Dense(1)]))
    assert not internals.is_functional(L.Dense(1))


def test_nodes_are_in_an_order_in_which_they_can_be_called(model: keras.Model) -> None:
    nodes = internals.nodes_of(model)
    assert [node.layer.name for node in nodes] == ["x", "base", "norm", "drop"]
    assert [node.is_input for node in nodes] == [True, False, False, False]
    norm = nodes[2]
    assert internals.calls_of(norm.layer) == [norm]
    (tensor,) = tf.nest.flatten(norm.outputs)
    assert internals.node_of(tensor) is norm
    assert internals.made_by(tensor) == (norm.layer, 0, 0)
    assert internals.is_symbolic(tensor)
    assert not internals.is_symbolic(tf.ones(1))


def test_masks_go_with_tensors() -> None:
    masked = L.Embedding(5, 2, mask_zero=True)(tf.constant([[1, 0]]))
    np.testing.assert_array_equal(internals.mask_of(masked), [[True, False]])
    internals.set_mask(masked, None)
    assert internals.mask_of(masked) is None
    assert internals.mask_of(tf.ones(1)) is None


def test_structures_are_as_the_model_takes_and_gives_them(model: keras.Model) -> None:
    assert internals.input_structure(model)["x"] is model.inputs[0]
    assert internals.output_structure(model)["y"] is model.outputs[0]
    (given,) = internals.flat_inputs(model, {"x": tf.ones((1, 4))})
    assert given.shape == (1, 4)


def test_unbuilt_input_shape() -> None:
    class Own(keras.Model):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return x

    own = Own()
    assert internals.unbuilt_input_shape(own) is None
    own.build((None, 3))
    assert tuple(internals.unbuilt_input_shape(own)) == (None, 3)


def test_insert_layers_makes_a_layer_part_of_a_model(model: keras.Model) -> None:
    beside = L.Dense(1, name="beside")
    beside(model.outputs[0])
    internals.insert_layers(model, [beside], internals.calls_of(beside))
    assert model.get_layer("beside") is beside


def test_run_by_replaces_how_layers_are_called(model: keras.Model) -> None:
    plain, x = internals.plain_run(model), {"x": tf.ones((1, 4))}
    expected = model(x)["y"]

    def doubled(*arguments: Any, **settings: Any) -> Any:
        return tf.nest.map_structure(lambda y: 2 * y, plain(*arguments, **settings))

    with internals.run_by(model, doubled):
        np.testing.assert_array_equal(model(x)["y"], 2 * expected)
    np.testing.assert_array_equal(model(x)["y"], expected)


def test_has_constants() -> None:
    inputs, constant = L.Input((3, 2)), L.Input((1,))

    class Cell(keras.layers.SimpleRNNCell):
        def call(self, inputs: Any, states: Any, constants: Any = None) -> Any:
            return super().call(inputs, states)

    layer = L.RNN(Cell(2))
    layer(inputs, constants=[constant])
    assert internals.has_constants(layer)
    assert not internals.has_constants(L.LSTM(2))


def test_attention_is_known_by_its_parts() -> None:
    layer = L.MultiHeadAttention(2, 3)
    layer(tf.ones((1, 4, 5)), tf.ones((1, 4, 5)))
    kernels = {name: dense.kernel.shape for name, dense in internals.attention_parts(layer).items()}
    assert kernels == {**dict.fromkeys(("query", "key", "value"), (5, 2, 3)), "output": (2, 3, 5)}
    assert internals.heads_and_shape(layer) == (2, None)
    assert internals.heads_and_shape(L.MultiHeadAttention(1, 3, output_shape=7))[1] == 7


def test_generators_draw_from_given_seeds() -> None:
    drop, x = L.Dropout(0.5), tf.ones((1, 64))
    generator = internals.stateful_generator(drop)
    assert internals.stateful_generator(L.Dense(1)) is None
    drawn = []
    for seed in (1, 1, 2):
        with internals.drawing_from([generator], functools.partial(tf.constant, [seed, 0])):
            assert internals.stateful_generator(drop) is None
            drawn.append(drop(x, training=True).numpy())
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    assert internals.stateful_generator(drop) is generator


def test_saved_generator() -> None:
    assert internals.saved_generator(L.Dropout(0.5)) is None
    own = L.Dropout(0.5, force_generator=True)
    own.build((None, 4))
    own(tf.ones((1, 4)), training=True)
    assert isinstance(internals.saved_generator(own), tf.random.Generator)


def test_loss_scale_state_is_what_variables_lack() -> None:
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD())
    scale, counter = internals.loss_scale_state(optimizer)
    assert float(scale) == 2.0**15
    assert int(counter) == 0
