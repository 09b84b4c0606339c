"""Hard topologies of whole models, one per test: sharing, nesting, several ends, operators."""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras

from tests.graph.equivalence import check
from tests.graph.test_topologies import conv, head, image

L = keras.layers


def test_shared_convolution() -> None:
    i = image()
    shared = L.Conv2D(8, 3, padding="same", name="shared")
    x = shared(L.ReLU()(shared(conv(i, "a"))))
    check(keras.Model(i, head(x)), {"a+shared": 8})


def test_shared_layers_of_two_inputs() -> None:
    left, right = L.Input((8, 8, 3), name="left"), L.Input((8, 8, 3), name="right")
    shared, norm = L.Conv2D(8, 3, name="shared"), L.BatchNormalization()
    x = L.Subtract()([norm(shared(left)), norm(shared(right))])
    check(keras.Model([left, right], head(x)), {"shared": 8})


def test_shared_layer_of_differently_joined_inputs() -> None:
    i = image()
    a, b = conv(i, "a", 6), conv(i, "b", 6)
    shared = L.Conv2D(5, 1, name="shared")
    x = L.Add()([shared(L.Concatenate()([a, b])), shared(L.Concatenate()([b, a]))])
    check(keras.Model(i, head(x)), {"a+b": 6, "shared": 5})


def test_output_in_the_middle_is_protected() -> None:
    i = image()
    x = conv(i, "a")
    y = conv(x, "b", 6)
    check(keras.Model(i, [head(y), x]), {"b": 6})


def test_dictionary_of_inputs_and_outputs() -> None:
    inputs = {"one": L.Input((5,), name="one"), "two": L.Input((5,), name="two")}
    x = L.Dense(8, name="a")(inputs["one"])
    y = L.Dense(8, name="b")(inputs["two"])
    z = L.Add()([x, y])
    model = keras.Model(inputs, {"sum": L.Dense(3)(z), "other": L.Dense(2)(x)})
    check(model, {"a+b": 8})


def test_nested_models() -> None:
    inner_in = L.Input((8, 8, 3))
    inner = keras.Model(inner_in, L.ReLU()(conv(inner_in, "a")), name="inner")
    middle = keras.Sequential([inner, L.Conv2D(6, 3, name="b")], name="middle")
    i = image()
    check(keras.Model(i, head(middle(i))), {"a": 8, "b": 6})


def test_nested_model_called_twice() -> None:
    inner_in = L.Input((8, 8, 3))
    inner = keras.Model(inner_in, conv(conv(inner_in, "a"), "b", 3), name="inner")
    i = image()
    check(keras.Model(i, head(inner(inner(i)))), {"a": 8})


def test_outputs_that_nested_models_make() -> None:
    def ending(name: str, *units: int) -> keras.Model:
        inner_in = L.Input((8,))
        ends = [L.Dense(n, name=f"last{n}")(L.Dense(6, name=f"a{n}")(inner_in)) for n in units]
        return keras.Model(inner_in, ends, name=name)

    i = L.Input((4,))
    x = L.Dense(8, name="last3")(i)
    kind, both = ending("kind", 3), ending("both", 2, 5)
    check(keras.Model(i, [*both(x), keras.Sequential([kind], name="row")(x)]))
    check(keras.Model(i, [kind(x), kind(L.ReLU()(x))]))


def test_nested_models_with_the_same_layer_names() -> None:
    def branch(name: str) -> keras.Model:
        inner_in = L.Input((8, 8, 3))
        return keras.Model(inner_in, conv(inner_in, "a"), name=name)

    i = image()
    x = L.Concatenate()([branch("left")(i), branch("right")(i)])
    check(keras.Model(i, head(x)), {"a": 8, "right_a": 8})


def test_sequential() -> None:
    layers = [
        L.Conv1D(8, 3, name="a"),
        L.BatchNormalization(),
        L.AveragePooling1D(),
        L.Conv1D(6, 3, name="b"),
        L.GlobalAveragePooling1D(),
        L.Dense(5),
    ]
    model = keras.Sequential([L.Input((20, 3)), *layers])
    check(model, {"a": 8, "b": 6})


def test_three_dimensional_convolutions() -> None:
    i = L.Input((6, 6, 6, 2))
    x = L.MaxPooling3D()(L.Conv3D(6, 3, padding="same", name="a")(i))
    x = L.Conv3DTranspose(5, 2, strides=2, name="b")(x)
    check(keras.Model(i, L.Dense(3)(L.GlobalAveragePooling3D()(x))), {"a": 6, "b": 5})


def test_embedding_and_one_dimensional_layers() -> None:
    i = L.Input((12,), dtype="int32")
    x = L.Embedding(5, 10, name="embedding")(i)
    x = L.DepthwiseConv1D(3, name="depthwise")(x)
    x = L.SeparableConv1D(6, 3, name="b")(x)
    x = L.Conv1DTranspose(7, 2, strides=2, name="c")(x)
    model = keras.Model(i, L.Dense(3)(L.GlobalMaxPooling1D()(x)))
    check(model, {"embedding": 10, "b": 6, "c": 7})


def test_padding_cropping_upsampling_dropout_and_rescaling() -> None:
    i = image()
    x = L.ZeroPadding2D(2)(conv(L.Rescaling(0.5, offset=-1.0)(i), "a", activation="sigmoid"))
    x = L.Rescaling(2.0, offset=1.0)(L.SpatialDropout2D(0.5)(L.UpSampling2D()(x)))
    x = L.AveragePooling2D()(L.Cropping2D(1)(L.GaussianNoise(0.1)(L.Dropout(0.5)(x))))
    check(keras.Model(i, head(conv(x, "b", 6))), {"a": 8, "b": 6})


def test_activation_that_does_not_map_zero_to_zero() -> None:
    i = image()
    x = L.Activation("softplus")(conv(i, "a", activation="exponential"))
    check(keras.Model(i, head(conv(x + 1.0, "b", 6))), {"a": 8, "b": 6})


def test_operators() -> None:
    i = image()
    a, b = conv(i, "a"), conv(i, "b")
    x = tf.nn.relu((a + b) * 0.5 - 1.0)
    x = tf.concat([x, tf.sigmoid(conv(i, "c", 6))], axis=-1)
    x = tf.reduce_mean(x, axis=[1, 2])
    check(keras.Model(i, L.Dense(4)(x)), {"a+b": 8, "c": 6})


def test_operators_that_do_not_map_zero_to_zero() -> None:
    i = image()
    x = tf.math.expm1(tf.math.minimum(conv(i, "a"), 0.0)) + tf.math.log_sigmoid(conv(i, "b"))
    check(keras.Model(i, head(tf.math.erf(x))), {"a+b": 8})


def test_identity_resizing_and_centre_crop() -> None:
    i = image()
    x = L.CenterCrop(6, 6)(L.Resizing(9, 9)(L.Identity()(conv(i, "a"))))
    check(keras.Model(i, head(conv(x, "b", 6))), {"a": 8, "b": 6})


def test_operator_with_a_constant_per_channel_is_protected() -> None:
    i = image()
    x = conv(i, "a", 4) * tf.constant([1.0, 2.0, 3.0, 4.0])
    check(keras.Model(i, head(conv(x, "b", 6))), {"b": 6})


def test_unknown_image_size() -> None:
    i = L.Input((None, None, 3))
    check(keras.Model(i, head(conv(L.ReLU()(conv(i, "a")), "b", 6))), {"a": 8, "b": 6})


def test_batch_norm_over_another_axis_is_protected() -> None:
    i = image()
    x = L.BatchNormalization(axis=1)(conv(i, "a"))
    check(keras.Model(i, head(conv(x, "b", 6))), {"b": 6})


def test_layer_shared_by_known_and_unknown_channels() -> None:
    i = L.Input((8, 8))
    shared = L.Dense(8, name="shared")
    x = shared(L.Dense(8, name="a")(i))
    y = shared(L.LayerNormalization()(L.Dense(8, name="b")(i)))
    check(keras.Model(i, L.Dense(3)(L.Add()([x, y]))), {"shared": 8})


def test_constant_model_without_groups() -> None:
    i = L.Input((4,))
    check(keras.Model(i, L.Dense(3)(i)), {})
