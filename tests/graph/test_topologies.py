"""One hard topology per test: the list of tests is the list of hard topologies."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras as keras

from tests.graph.equivalence import check

L = keras.layers


def image(channels: int = 3, side: int = 8) -> Any:
    return L.Input((side, side, channels), name="picture")


def conv(x: Any, name: str, filters: int = 8, kernel: int = 3, **settings: Any) -> Any:
    return L.Conv2D(filters, kernel, padding="same", name=name, **settings)(x)


def head(x: Any, units: int = 5, name: str = "head") -> Any:
    return L.Dense(units, name=name)(L.GlobalAveragePooling2D()(x))


def test_chain_with_batch_norm_and_activation() -> None:
    i = image()
    x = L.ReLU()(L.BatchNormalization()(conv(i, "a", use_bias=False)))
    x = L.LeakyReLU()(L.BatchNormalization(scale=False)(conv(x, "b", 6)))
    check(keras.Model(i, head(x)), {"a": 8, "b": 6})


def test_two_residual_adds_share_one_stream() -> None:
    i = image()
    x = conv(i, "stem")
    for name in ("a", "b"):
        x = L.Add()([x, conv(L.ReLU()(x), name)])
    check(keras.Model(i, head(x)), {"stem+a+b": 8})


def test_add_with_model_input_is_protected() -> None:
    i = image(8)
    x = L.Add()([i, conv(i, "a")])
    check(keras.Model(i, head(conv(x, "b"))), {"b": 8})


def test_subtract_multiply_average_maximum_minimum() -> None:
    i = image()
    a, b, c, d, e, f = (conv(i, name) for name in "abcdef")
    x = L.Subtract()([a, b])
    x = L.Multiply()([x, c])
    x = L.Average()([x, d])
    x = L.Maximum()([x, e])
    x = L.Minimum()([x, f])
    check(keras.Model(i, head(x)), {"a+b+c+d+e+f": 8})


def test_concatenate() -> None:
    i = image()
    x = L.Concatenate()([conv(i, "a", 6), conv(i, "b", 10)])
    x = L.ReLU()(L.BatchNormalization()(x))
    check(keras.Model(i, head(conv(x, "c"))), {"a": 6, "b": 10, "c": 8})


def test_concatenate_of_itself() -> None:
    i = image()
    x = conv(i, "a", 6)
    x = L.Concatenate()([x, L.ReLU()(x), x])
    check(keras.Model(i, head(x)), {"a": 6})


def test_concatenate_with_model_input() -> None:
    i = image()
    check(keras.Model(i, head(L.Concatenate()([i, conv(i, "a")]))), {"a": 8})


def test_concatenate_along_height_unites() -> None:
    i = image()
    x = L.Concatenate(axis=1)([conv(i, "a"), conv(i, "b")])
    check(keras.Model(i, head(x)), {"a+b": 8})


def test_add_of_concatenations_cut_at_different_places() -> None:
    i = image()
    left = L.Concatenate()([conv(i, "a", 6), conv(i, "b", 10)])
    right = L.Concatenate()([conv(i, "c", 9), conv(i, "d", 7)])
    expected = {"a+c": 6, "b+c": 3, "b+d": 7}
    check(keras.Model(i, head(L.Add()([left, right]))), expected)


def test_depthwise() -> None:
    i = image()
    x = L.DepthwiseConv2D(3, name="depthwise")(conv(i, "a"))
    x = L.ReLU()(L.BatchNormalization()(x))
    check(keras.Model(i, head(conv(x, "b", 6, 1))), {"a": 8, "b": 6})


def test_depthwise_with_multiplier() -> None:
    i = image()
    x = L.DepthwiseConv2D(3, depth_multiplier=3)(conv(i, "a", 6))
    check(keras.Model(i, head(L.BatchNormalization()(x))), {"a": 6})


def test_depthwise_on_model_input_is_protected() -> None:
    i = image()
    x = L.DepthwiseConv2D(3, depth_multiplier=4)(i)
    check(keras.Model(i, head(conv(x, "a"))), {"a": 8})


def test_separable() -> None:
    i = image()
    x = L.SeparableConv2D(6, 3, depth_multiplier=2, name="b")(conv(i, "a"))
    check(keras.Model(i, head(x)), {"a": 8, "b": 6})


def test_grouped_convolution_prunes_the_same_place_of_each_group() -> None:
    i = image()
    x = conv(conv(i, "a", 12), "b", 16, groups=2)
    check(keras.Model(i, head(x)), {"a": 6, "b": 8})


def test_grouped_convolution_with_one_input_each_prunes_whole_groups() -> None:
    i = image()
    x = conv(conv(i, "a", 6), "b", 12, groups=6)
    check(keras.Model(i, head(x)), {"a+b": 6})


def test_channel_shuffle_between_grouped_convolutions() -> None:
    i = image()
    x = conv(conv(i, "a", 12), "b", 12, groups=2)
    x = L.Reshape((8, 8, 2, 6))(x)
    x = L.Permute((1, 2, 4, 3))(x)
    x = L.Reshape((8, 8, 12))(x)
    check(keras.Model(i, head(conv(x, "c"))), {"a": 6, "b": 6, "c": 8})


def test_transposed_convolution() -> None:
    i = image()
    x = L.Conv2DTranspose(6, 3, strides=2, name="b")(conv(i, "a"))
    check(keras.Model(i, head(x)), {"a": 8, "b": 6})


def test_flatten_to_dense() -> None:
    i = image()
    x = L.Flatten()(L.MaxPooling2D()(conv(i, "a")))
    x = L.Dense(7, activation="relu", name="b")(x)
    check(keras.Model(i, L.Dense(5)(x)), {"a": 8, "b": 7})


def test_dense_reshaped_to_a_image() -> None:
    i = L.Input((6,))
    x = L.Reshape((4, 4, 5))(L.Dense(80, name="a")(i))
    check(keras.Model(i, head(conv(x, "b"))), {"a": 5, "b": 8})


def test_reshape_that_merges_height_and_width() -> None:
    i = image()
    x = L.Conv1D(6, 3, name="b")(L.Reshape((-1, 8))(conv(i, "a")))
    check(keras.Model(i, L.Dense(5)(L.GlobalMaxPooling1D()(x))), {"a": 8, "b": 6})


def test_reshape_that_splits_channels_over_positions() -> None:
    i = image()
    x = L.Reshape((8, 16, 4))(conv(i, "a", 8))
    check(keras.Model(i, head(conv(x, "b"))), {"a": 4, "b": 8})


def test_permute() -> None:
    i = image()
    x = L.Permute((3, 1, 2))(conv(i, "a"))
    x = L.Flatten(data_format="channels_last")(L.Permute((2, 3, 1))(x))
    check(keras.Model(i, L.Dense(5)(x)), {"a": 8})


def test_convolution_over_permuted_axes_is_protected() -> None:
    i = image()
    x = L.Permute((3, 1, 2))(conv(i, "a"))
    check(keras.Model(i, head(conv(x, "b", 6))), {"b": 6})


def test_squeeze_and_excite_with_reshape() -> None:
    i = image()
    x = conv(i, "a")
    s = L.Reshape((1, 1, 8))(L.GlobalAveragePooling2D()(x))
    s = conv(L.ReLU()(conv(s, "squeeze", 4, 1)), "excite", 8, 1, activation="sigmoid")
    check(keras.Model(i, head(L.Multiply()([x, s]))), {"a+excite": 8, "squeeze": 4})


def test_squeeze_and_excite_with_dense_of_lower_rank() -> None:
    i = image()
    x = conv(i, "a")
    s = L.Dense(4, activation="relu", name="squeeze")(L.GlobalAveragePooling2D()(x))
    s = L.Dense(8, activation="sigmoid", name="excite")(s)
    check(keras.Model(i, head(L.Multiply()([x, s]))), {"a+excite": 8, "squeeze": 4})


def test_spatial_attention_with_one_channel() -> None:
    i = image()
    x = conv(i, "a")
    gate = conv(x, "gate", 1, activation="sigmoid")
    check(keras.Model(i, head(L.Multiply()([x, gate]))), {"a": 8})


def test_single_channel_is_never_removed() -> None:
    i = image()
    x = conv(L.ReLU()(conv(i, "narrow", 1)), "b", 6)
    check(keras.Model(i, head(x)), {"narrow": 1, "b": 6})


def test_prelu() -> None:
    i = image()
    x = L.PReLU(shared_axes=[1, 2])(conv(i, "a"))
    x = L.PReLU()(conv(x, "b", 6))
    check(keras.Model(i, head(L.PReLU(shared_axes=[1, 2, 3])(x))), {"a": 8, "b": 6})


def test_layer_norm_is_protected() -> None:
    i = image()
    x = L.LayerNormalization()(conv(i, "a"))
    graph = check(keras.Model(i, head(conv(x, "b"))), {"b": 8})
    reasons = {entry.layer: entry.reason for entry in graph.protected}
    assert "LayerNormalization" in reasons["a"]
    assert reasons["head"] == "an output of the model"


def test_group_norm_is_protected() -> None:
    i = image()
    x = L.GroupNormalization(groups=2)(conv(i, "a"))
    check(keras.Model(i, head(conv(x, "b"))), {"b": 8})


def test_softmax_in_the_middle_is_protected() -> None:
    i = image()
    x = conv(i, "a", activation="softmax")
    x = conv(x, "b", 6)
    x = conv(L.Softmax()(conv(x, "c", 6)), "d", 6)
    check(keras.Model(i, head(x)), {"b": 6, "d": 6})


def test_unknown_layer_is_protected() -> None:
    class Mixing(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.cumsum(x, axis=-1)

    i = image()
    x = Mixing(name="mixing")(conv(i, "a"))
    graph = check(keras.Model(i, head(conv(x, "b"))), {"b": 8})
    assert graph.protected[0].layer == "a"
    assert "mixing" in graph.protected[0].reason


def test_subclass_of_a_known_layer_is_protected() -> None:
    class Flipped(keras.layers.Conv2D):
        def call(self, x: Any) -> Any:
            return super().call(x)[..., ::-1]

    i = image()
    x = Flipped(6, 3, name="flipped")(conv(i, "a"))
    check(keras.Model(i, head(conv(x, "b"))), {"b": 8})
