"""Narrower and shallower copies of models that shrink did not build."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from models import autoencoder, ds_cnn, mobilenet_v1, resnet
from shrink.base.errors import ModelError, RecipeError
from shrink.graph.network import read_network
from shrink.graph.scale import find_blocks, scaled, stages

L = keras.layers
BUILDERS: dict[str, Callable[..., keras.Model]] = {
    "resnet": resnet.build,
    "ds_cnn": ds_cnn.build,
    "autoencoder": autoencoder.build,
}


def outputs(model: keras.Model) -> np.ndarray:
    shape = tuple(side or 1 for side in model.inputs[0].shape[1:])
    x = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    return np.asarray(model(x, training=False))


def convolutions(model: keras.Model) -> int:
    return sum(isinstance(layer, L.Conv2D) for layer in model.layers)


@pytest.mark.parametrize("name", BUILDERS)
def test_scaled_by_width_halves_hidden_channels(name: str) -> None:
    model = BUILDERS[name]()
    student = scaled(model, {"width": 0.5})
    assert student.input_shape == model.input_shape
    assert student.output_shape == model.output_shape
    assert 0.2 < student.count_params() / model.count_params() < 0.6
    assert np.isfinite(outputs(student)).all()


def test_scaled_by_width_is_what_the_builder_gives() -> None:
    graph, built = scaled(resnet.build(), {"width": 0.5}), resnet.build(width=0.5)
    shapes = [[tuple(w.shape) for w in model.weights] for model in (graph, built)]
    assert sorted(shapes[0]) == sorted(shapes[1])


def test_scaled_by_width_keeps_the_largest_channels_when_weights_are_inherited() -> None:
    inputs = keras.Input((3,))
    hidden = L.Dense(4, name="hidden")(inputs)
    model = keras.Model(inputs, L.Dense(2, name="end")(hidden))
    kernel = np.array([[5.0, 0.1, 7.0, 0.2]] * 3)
    model.get_layer("hidden").set_weights([kernel, np.arange(4.0)])
    model.get_layer("end").set_weights([np.ones((4, 2)), np.zeros(2)])
    student = scaled(model, {"width": 0.5, "inherit": 1.0})
    kept, bias = student.get_layer("hidden").get_weights()
    np.testing.assert_array_equal(kept, kernel[:, [0, 2]].astype(np.float32))
    np.testing.assert_array_equal(bias, [0, 2])


def test_scaled_changes_nothing_but_the_size_when_it_keeps_everything() -> None:
    keras.utils.set_random_seed(0)
    model = resnet.build()
    same = scaled(model, {"width": 1.0, "inherit": 1.0})
    np.testing.assert_allclose(outputs(same), outputs(model), rtol=1e-5, atol=1e-5)
    fresh = scaled(model, {"width": 1.0})
    assert same.count_params() == fresh.count_params() == model.count_params()
    assert np.abs(outputs(fresh) - outputs(model)).max() > 1e-3


def test_scaled_by_depth_leaves_out_every_other_block_of_a_stage() -> None:
    student = scaled(resnet.build(depth=20), {"depth": 0.5})
    # Of 3 + 2 + 2 identity blocks 2 + 1 + 1 stay; two blocks change the resolution.
    assert convolutions(student) == convolutions(resnet.build(depth=20)) - 3 * 2
    assert np.isfinite(outputs(student)).all()


def test_scaled_by_depth_keeps_weights_when_they_are_inherited() -> None:
    teacher = resnet.build(depth=14)
    student = scaled(teacher, {"depth": 0.5, "inherit": 1.0})
    assert student.count_params() < teacher.count_params()
    for layer in student.layers:
        for own, other in zip(
            layer.get_weights(), teacher.get_layer(layer.name).get_weights(), strict=True
        ):
            np.testing.assert_array_equal(own, other)


def test_scaled_by_depth_takes_dense_layers_of_one_width_as_blocks() -> None:
    inputs = x = keras.Input((8,))
    for _ in range(5):
        x = L.ReLU()(L.BatchNormalization()(L.Dense(16)(x)))
    model = keras.Model(inputs, L.Dense(3)(x))
    student = scaled(model, {"depth": 0.5, "width": 0.5})
    dense = [layer.units for layer in student.layers if isinstance(layer, L.Dense)]
    assert dense == [8, 8, 8, 3]


def test_find_blocks_takes_a_separable_convolution_as_one_block() -> None:
    runs = stages(find_blocks(read_network(mobilenet_v1.build())))
    kernels = [
        [sum("Conv" in type(call.layer).__name__ for call in block.calls) for block in run]
        for run in runs
    ]
    assert [2] * 5 in kernels  # the five blocks of one width of Howard et al. 2017, table 1


def test_scaled_refuses_what_cannot_become_smaller() -> None:
    inputs = keras.Input((3,))
    model = keras.Model(inputs, L.Dense(2)(inputs))
    with pytest.raises(ModelError, match="no channel"):
        scaled(model, {"width": 0.5})
    with pytest.raises(ModelError, match="no block"):
        scaled(model, {"depth": 0.5})
    with pytest.raises(RecipeError, match="only become smaller"):
        scaled(model, {"width": 2.0})


def transformer(blocks: int = 2) -> keras.Model:
    inputs = keras.Input((6, 3))
    x = L.Dense(16, name="embed")(inputs)
    for n in range(blocks):
        attended = L.MultiHeadAttention(4, 5, name=f"attention{n}")(x, x)
        x = L.LayerNormalization(name=f"norm{n}a")(L.Add()([x, attended]))
        hidden = L.Dense(32, activation="gelu", name=f"hidden{n}")(x)
        x = L.LayerNormalization(name=f"norm{n}b")(L.Add()([x, L.Dense(16)(hidden)]))
    return keras.Model(inputs, L.Dense(2)(L.GlobalAveragePooling1D()(x)))


def test_scaled_narrows_attention_by_whole_heads() -> None:
    student = scaled(transformer(), {"width": 0.5, "inherit": 1.0})
    attention = student.get_layer("attention0")
    assert attention.get_config()["num_heads"] == 2
    assert tuple(attention._query_dense.kernel.shape) == (8, 2, 5)
    assert student.get_layer("hidden1").units == 16
    assert np.isfinite(outputs(student)).all()


def test_scaled_keeps_the_heads_of_largest_weights_when_they_are_inherited() -> None:
    inputs = keras.Input((5, 3))
    attended = L.MultiHeadAttention(4, 2, name="attention")(inputs, inputs)
    model = keras.Model(inputs, L.Dense(2)(attended))
    attention = model.get_layer("attention")
    sizes = np.array([1.0, 9.0, 2.0, 8.0])
    weights = [np.random.default_rng(0).normal(size=w.shape) for w in attention.weights]
    for place in (0, 2, 4):  # kernels of query, key and value: (channels, heads, key_dim)
        weights[place] *= sizes[:, None]
    weights[6] *= sizes[:, None, None]  # of the output: (heads, key_dim, channels)
    attention.set_weights(weights)
    student = scaled(model, {"width": 0.5, "inherit": 1.0}).get_layer("attention")
    assert (student.get_config()["num_heads"], student.get_config()["key_dim"]) == (2, 2)
    for place in (0, 2, 4):
        np.testing.assert_allclose(
            student.get_weights()[place], weights[place][:, [1, 3]], rtol=1e-6
        )
    np.testing.assert_allclose(student.get_weights()[6], weights[6][[1, 3]], rtol=1e-6)


def test_scaled_keeps_the_units_of_largest_weights_when_they_are_inherited() -> None:
    inputs = keras.Input((3, 2))
    model = keras.Model(inputs, L.Dense(2)(L.LSTM(4, unroll=True, name="lstm")(inputs)))
    sizes = np.array([1.0, 9.0, 2.0, 8.0])
    random = np.random.default_rng(0)
    kernel = random.normal(size=(2, 16)) * np.tile(sizes, 4)
    recurrent = random.normal(size=(4, 16)) * sizes[:, None] * np.tile(sizes, 4)
    model.get_layer("lstm").set_weights([kernel, recurrent, np.arange(16.0)])
    student = scaled(model, {"width": 0.5, "inherit": 1.0}).get_layer("lstm")
    gates = [1, 3, 5, 7, 9, 11, 13, 15]
    wanted = (kernel[:, gates], recurrent[np.ix_([1, 3], gates)], np.array(gates, np.float64))
    for own, other in zip(student.get_weights(), wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)


def test_scaled_by_depth_leaves_out_transformer_blocks() -> None:
    student = scaled(transformer(), {"depth": 0.5})
    names = {layer.name for layer in student.layers}
    assert {"attention0", "hidden0"} <= names
    assert not {"attention1", "hidden1"} & names
    assert np.isfinite(outputs(student)).all()


@pytest.mark.parametrize(("depth", "kept"), [(0.75, {0, 2, 3}), (0.5, {0, 3}), (0.25, {0})])
def test_scaled_by_depth_keeps_attention_with_its_dense_layers(
    depth: float, kept: set[int]
) -> None:
    teacher = transformer(blocks=4)
    student = scaled(teacher, {"depth": depth, "inherit": 1.0})
    names = {layer.name for layer in student.layers}
    for part in ("attention", "hidden"):
        assert {n for n in range(4) if f"{part}{n}" in names} == kept
    for own, other in zip(
        student.get_layer("attention0").get_weights(),
        teacher.get_layer("attention0").get_weights(),
        strict=True,
    ):
        np.testing.assert_array_equal(own, other)


def test_scaled_says_why_a_depth_drops_no_block() -> None:
    inputs = keras.Input((3,))
    x = L.Dense(6)(inputs)
    for _ in range(3):
        x = L.Add()([x, L.Dense(6)(x)])
    model = keras.Model(inputs, L.Dense(2)(x))
    with pytest.raises(ModelError, match=r"depth 0\.9 removes no block .* at most 3 "):
        scaled(model, {"depth": 0.9})
    with pytest.raises(ModelError, match=r"at width 0.95 \(the largest of 2 groups has 6\)"):
        scaled(
            keras.Sequential([L.Input((3,)), L.Dense(6), L.Dense(4), L.Dense(2)]), {"width": 0.95}
        )


def blocks_of(*layers: keras.layers.Layer, shape: tuple[int, ...] = (8, 8, 3)) -> list[list[str]]:
    """Return the first and last layer of each removable block of a sequential model."""
    model = keras.Sequential([keras.Input(shape), *layers, L.Dense(2, name="head")])
    network = read_network(model)
    return [
        [network.name(block.calls[0].layer), network.name(block.calls[-1].layer)]
        for run in stages(find_blocks(network))
        for block in run
    ]


def test_layers_without_kernels_are_no_blocks() -> None:
    found = blocks_of(
        L.Rescaling(1 / 255), L.Normalization(axis=(1, 3)), L.RandomFlip(),
        L.MaxPooling2D(1), L.PReLU(), L.BatchNormalization(), L.Dropout(0.1),
        L.Conv2D(4, 3, padding="same", name="stem"), L.PReLU(name="prelu"),
        L.Conv2D(4, 3, padding="same", name="a"), L.BatchNormalization(), L.PReLU(name="a_end"),
        L.Normalization(name="fixed"),
        L.Conv2D(4, 3, padding="same", name="b"), L.ReLU(name="b_end"), L.AveragePooling2D(2),
        L.Conv2D(4, 3, padding="same", name="c"), L.ReLU(name="c_end"),
        L.GlobalAveragePooling2D(),
    )  # fmt: skip
    assert found == [["a", "a_end"], ["b", "b_end"], ["c", "c_end"]]


@keras.saving.register_keras_serializable("tests")
class Positions(keras.layers.Layer):
    """Adds a learned vector to each position."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight("table", shape[1:])

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x + self.table


def test_a_position_embedding_is_no_block() -> None:
    found = blocks_of(
        Positions(), L.Dense(6, name="a"), Positions(), L.Dense(6, name="b"),
        L.GlobalAveragePooling1D(), shape=(5, 6),
    )  # fmt: skip
    assert found == [["a", "a"], ["b", "b"]]


def test_the_last_of_four_residual_blocks_is_a_block() -> None:
    inputs = keras.Input((8, 8, 3))
    x = L.Conv2D(4, 3, name="stem")(inputs)
    for n in range(4):
        x = L.Add(name=f"add{n}")([x, L.Conv2D(4, 3, padding="same", name=f"conv{n}")(x)])
    model = keras.Model(inputs, L.Dense(2)(L.GlobalAveragePooling2D()(x)))
    student = scaled(model, {"depth": 0.5})
    names = {layer.name for layer in student.layers}
    assert {n for n in range(4) if f"conv{n}" in names} == {0, 3}
