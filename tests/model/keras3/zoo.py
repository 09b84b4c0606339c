"""Models of Keras 3; `write_all` writes them in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers as L
from keras import ops

IMAGE, SERIES, VECTOR, VOLUME = (8, 8, 4), (6, 4), (8,), (4, 4, 4, 2)
Build = Callable[[], Any]


def one(layer: Callable[[], Any], shape: tuple[int, ...]) -> Build:
    """Return a builder of a functional model of one layer."""

    def build() -> Any:
        x = keras.Input(shape)
        return keras.Model(x, layer()(x))

    return build


def call(function: Callable[[Any], Any], shape: tuple[int, ...] = IMAGE) -> Build:
    """Return a builder of a model that is a function of tensors after a convolution or dense."""

    def build() -> Any:
        x = keras.Input(shape)
        return keras.Model(x, function(x))

    return build


def activation(name: str) -> Build:
    """Return a builder of a sequential model with an activation in two places."""
    return lambda: keras.Sequential(
        [keras.Input(VECTOR), L.Dense(6, activation=name), L.Dense(4), L.Activation(name)]
    )


IMAGE_LAYERS: dict[str, Callable[[], Any]] = {
    "conv2d": lambda: L.Conv2D(5, 3, padding="same", activation="relu"),
    "conv2d_strided_grouped": lambda: L.Conv2D(4, 3, strides=2, groups=2, use_bias=False),
    "conv2d_dilated": lambda: L.Conv2D(4, 3, dilation_rate=2),
    "conv2d_transpose": lambda: L.Conv2DTranspose(3, 3, strides=2, padding="same"),
    "conv2d_transpose_valid": lambda: L.Conv2DTranspose(3, 3, strides=2),
    "depthwise_conv2d": lambda: L.DepthwiseConv2D(3, depth_multiplier=2, activation="relu6"),
    "separable_conv2d": lambda: L.SeparableConv2D(5, 3, padding="same"),
    "batch_normalization": lambda: L.BatchNormalization(),
    "batch_normalization_bare": lambda: L.BatchNormalization(scale=False, center=False),
    "batch_renormalization": lambda: L.BatchNormalization(renorm=True),
    "layer_normalization": lambda: L.LayerNormalization(epsilon=1e-6),
    "group_normalization": lambda: L.GroupNormalization(2),
    "unit_normalization": lambda: L.UnitNormalization(),
    "normalization": lambda: L.Normalization(mean=[0.1, 0.2, 0.3, 0.4], variance=[1, 2, 3, 4]),
    "rescaling": lambda: L.Rescaling(2.0, offset=-1.0),
    "resizing": lambda: L.Resizing(5, 5),
    "center_crop": lambda: L.CenterCrop(4, 4),
    "max_pooling2d": lambda: L.MaxPooling2D(2, padding="same"),
    "average_pooling2d": lambda: L.AveragePooling2D(3, strides=2, padding="same"),
    "global_average_pooling2d": lambda: L.GlobalAveragePooling2D(keepdims=True),
    "global_max_pooling2d": lambda: L.GlobalMaxPooling2D(),
    "zero_padding2d": lambda: L.ZeroPadding2D(((1, 0), (2, 1))),
    "cropping2d": lambda: L.Cropping2D(1),
    "up_sampling2d": lambda: L.UpSampling2D(2, interpolation="bilinear"),
    "prelu": lambda: L.PReLU(shared_axes=[1, 2], alpha_initializer="uniform"),
    "leaky_relu": lambda: L.LeakyReLU(0.2),
    "elu": lambda: L.ELU(0.5),
    "relu_capped": lambda: L.ReLU(6.0, negative_slope=0.1),
    "softmax": lambda: L.Softmax(axis=-1),
    "spatial_dropout2d": lambda: L.SpatialDropout2D(0.3),
    "gaussian_noise": lambda: L.GaussianNoise(0.3),
    "gaussian_dropout": lambda: L.GaussianDropout(0.3),
    "alpha_dropout": lambda: L.AlphaDropout(0.3),
    "random_flip": lambda: L.RandomFlip(),
    "random_rotation": lambda: L.RandomRotation(0.1),
    "random_zoom": lambda: L.RandomZoom(0.1),
    "random_translation": lambda: L.RandomTranslation(0.1, 0.1),
    "random_contrast": lambda: L.RandomContrast(0.1),
    "permute": lambda: L.Permute((2, 3, 1)),
    "flatten": lambda: L.Flatten(),
    "reshape": lambda: L.Reshape((-1, 4)),
    "activity_regularization": lambda: L.ActivityRegularization(0.1),
    "identity": lambda: L.Identity(),
    "einsum_dense": lambda: L.EinsumDense("bhwc,cd->bhwd", (8, 8, 3), bias_axes="d"),
    "spectral_normalization": lambda: L.SpectralNormalization(L.Conv2D(3, 3)),
    "regularized": lambda: L.Conv2D(
        3, 3, kernel_regularizer=keras.regularizers.L1L2(0.1, 0.2), kernel_constraint="max_norm",
        bias_initializer=keras.initializers.Constant(0.5),
    ),
}  # fmt: skip

SERIES_LAYERS: dict[str, Callable[[], Any]] = {
    "conv1d": lambda: L.Conv1D(3, 3, padding="causal", activation="swish"),
    "conv1d_transpose": lambda: L.Conv1DTranspose(3, 3, strides=2),
    "depthwise_conv1d": lambda: L.DepthwiseConv1D(3),
    "separable_conv1d": lambda: L.SeparableConv1D(3, 3),
    "max_pooling1d": lambda: L.MaxPooling1D(2),
    "global_average_pooling1d": lambda: L.GlobalAveragePooling1D(),
    "zero_padding1d": lambda: L.ZeroPadding1D(1),
    "cropping1d": lambda: L.Cropping1D(1),
    "up_sampling1d": lambda: L.UpSampling1D(2),
    "lstm": lambda: L.LSTM(3),
    "lstm_sequences": lambda: L.LSTM(3, return_sequences=True, go_backwards=True),
    "gru": lambda: L.GRU(3),
    "gru_reset_before": lambda: L.GRU(3, reset_after=False),
    "simple_rnn": lambda: L.SimpleRNN(3, activation="relu"),
    "rnn_stacked_cells": lambda: L.RNN(L.StackedRNNCells([L.LSTMCell(3), L.GRUCell(2)])),
    "bidirectional_lstm": lambda: L.Bidirectional(L.LSTM(3, return_sequences=True)),
    "bidirectional_gru_sum": lambda: L.Bidirectional(L.GRU(3), merge_mode="sum"),
    "time_distributed": lambda: L.TimeDistributed(L.Dense(3, activation="gelu")),
    "masking_lstm": lambda: keras.Sequential([L.Masking(0.0), L.LSTM(3)]),
}

VECTOR_LAYERS: dict[str, Callable[[], Any]] = {
    "dense": lambda: L.Dense(3, activation="sigmoid"),
    "dense_mixed": lambda: L.Dense(3, dtype="mixed_bfloat16"),
    "dropout": lambda: L.Dropout(0.5),
    "repeat_vector": lambda: L.RepeatVector(3),
}

VOLUME_LAYERS: dict[str, Callable[[], Any]] = {
    "conv3d": lambda: L.Conv3D(3, 2),
    "max_pooling3d": lambda: L.MaxPooling3D(2),
    "conv_lstm2d": lambda: L.ConvLSTM2D(2, 2, padding="same"),
    "time_distributed_conv": lambda: L.TimeDistributed(L.Conv2D(2, 2)),
}

ACTIVATIONS = (
    *("elu", "exponential", "gelu", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu"),
    *("log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "silu", "softmax"),
    *("softplus", "softsign", "tanh"),
)

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "op_arithmetic": lambda x: (2.0 * x + 1.0) / 3.0 - x**2,
    "op_two_tensors": lambda x: (x + L.Conv2D(4, 1)(x)) * L.GlobalMaxPooling2D(keepdims=True)(x),
    "op_reverse_division": lambda x: 1.0 / (1.0 + ops.exp(-x)),
    "op_slicing": lambda x: ops.concatenate([x[:, 1:5, ..., :2], x[:, ::2, :, 2:]], axis=1),
    "op_picking": lambda x: x[:, 0, :, -1],
    "op_reshape": lambda x: ops.reshape(x, (-1, 16, 16)),
    "op_transpose": lambda x: ops.transpose(x, (0, 3, 1, 2)),
    "op_moveaxis": lambda x: ops.moveaxis(x, 3, 1),
    "op_mean": lambda x: ops.mean(x, axis=(1, 2)),
    "op_max_min": lambda x: ops.max(x, axis=-1) - ops.min(x, axis=-1),
    "op_var_std": lambda x: ops.var(x, axis=(1, 2)) + ops.std(x, axis=(1, 2)),
    "op_activations": lambda x: ops.relu(x) + ops.gelu(x) + ops.hard_sigmoid(x) + ops.silu(x),
    "op_softmax": lambda x: ops.softmax(x, axis=-1) + ops.log_softmax(x, axis=-1),
    "op_expand_squeeze": lambda x: ops.squeeze(ops.expand_dims(x, 1), 1),
    "op_stack_split": lambda x: ops.stack(ops.split(x, 2, axis=-1), axis=1),
    "op_pad": lambda x: ops.pad(x, ((0, 0), (1, 1), (0, 2), (0, 0))),
    "op_clip": lambda x: ops.clip(x, -0.5, 0.5),
    "op_where": lambda x: ops.where(x > 0.1, x, ops.zeros_like(x)),
    "op_matmul": lambda x: ops.matmul(x, ops.transpose(x, (0, 1, 3, 2))),
    "op_einsum": lambda x: ops.einsum("bhwc,bhwd->bcd", x, x),
    "op_cast": lambda x: ops.cast(ops.cast(x, "int32"), "float32"),
    "op_flip_roll": lambda x: ops.roll(ops.flip(x, axis=1), 2, axis=2),
    "op_tile_repeat": lambda x: ops.repeat(ops.tile(x, (1, 2, 1, 1)), 2, axis=2),
    "op_pool": lambda x: ops.average_pool(x, 2) + ops.max_pool(x, 2),
    "op_norm": lambda x: ops.sqrt(ops.sum(ops.square(x), axis=-1)),
    "op_rsqrt": lambda x: ops.rsqrt(ops.abs(x) + 1.0),
    "op_resize": lambda x: ops.image.resize(x, (12, 12)),
    "op_space_to_depth": lambda x: ops.swapaxes(x, 1, 2),
    "op_glu": lambda x: ops.glu(x),
    "op_constant": lambda x: x * np.array([1.0, 2.0, 3.0, 4.0], "float32"),
    "op_arg": lambda x: ops.one_hot(ops.argmax(x, axis=-1), 4),
}  # fmt: skip


def merging(layer: Callable[[], Any]) -> Build:
    """Return a builder of a model with two inputs that a layer merges."""

    def build() -> Any:
        a, b = keras.Input((3,), name="a"), keras.Input((5,), name="b")
        return keras.Model([a, b], layer()([L.Dense(4)(a), L.Dense(4)(b)]))

    return build


MERGES: dict[str, Callable[[], Any]] = {
    "add": lambda: L.Add(), "subtract": lambda: L.Subtract(), "multiply": lambda: L.Multiply(),
    "average": lambda: L.Average(), "maximum": lambda: L.Maximum(), "minimum": lambda: L.Minimum(),
    "concatenate": lambda: L.Concatenate(), "dot": lambda: L.Dot(1, normalize=True),
}  # fmt: skip


def attention(layer: Callable[[], Any]) -> Build:
    """Return a builder of a model in which a layer attends from one series to another."""

    def build() -> Any:
        a, b = keras.Input((5, 4)), keras.Input((6, 4))
        attend = layer()
        several = isinstance(attend, L.MultiHeadAttention)
        return keras.Model([a, b], attend(a, b) if several else attend([a, b]))

    return build


def shared_layer() -> Any:
    """Return a model that calls one layer three times."""
    a, b, dense = keras.Input((4,)), keras.Input((4,)), L.Dense(4, activation="tanh")
    return keras.Model([a, b], L.Concatenate()([dense(a), dense(dense(b))]))


def nested_models() -> Any:
    """Return a model with a functional model in a sequential one, called twice."""
    x = keras.Input((4,))
    inner = keras.Model(x, L.Dense(4)(x) + x)
    block = keras.Sequential([keras.Input((4,)), L.Dense(4, activation="hard_silu"), inner])
    y = keras.Input((4,))
    return keras.Model(y, block(block(y)))


def named_outputs() -> Any:
    """Return a model with two inputs and two outputs, by name."""
    a, b = keras.Input((3,), name="a"), keras.Input((5,), name="b")
    both = L.Concatenate()([a, b])
    outputs = {"left": L.Dense(2, name="left")(both), "right": L.Dense(3, name="right")(a)}
    return keras.Model({"a": a, "b": b}, outputs)


def states() -> Any:
    """Return an encoder whose states start a decoder."""
    a, b = keras.Input((5, 3)), keras.Input((4, 3))
    _, h, c = L.LSTM(4, return_state=True)(a)
    return keras.Model([a, b], L.LSTM(4, return_sequences=True)(b, initial_state=[h, c]))


def embedded_floats() -> Any:
    """Return a text classifier whose input has the default dtype."""
    words = keras.Input((7,), name="words")
    return keras.Model(words, L.Dense(2)(L.Flatten()(L.Embedding(20, 5)(words))))


def whole_numbers() -> Any:
    x = keras.Input((5,))
    gate = 1 - L.Dense(4, activation="sigmoid")(x)
    return keras.Model(x, ops.maximum(0, 2 * gate) + 2 / (1 + ops.abs(gate)) + ops.power(2, gate))


def residual_net() -> Any:
    """Return a small residual network with 10 classes."""
    x = image = keras.Input((8, 8, 3))
    x = L.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = L.Activation("relu")(L.BatchNormalization()(x))
    for _ in range(2):
        y = L.Conv2D(8, 3, padding="same", use_bias=False)(x)
        y = L.ReLU()(L.BatchNormalization()(y))
        y = L.BatchNormalization()(L.Conv2D(8, 3, padding="same")(y))
        x = ops.relu(x + y)
    return keras.Model(image, L.Dense(10)(L.Dropout(0.2)(L.GlobalAveragePooling2D()(x))))


def names_of_added_layers() -> Any:
    """Return a model whose layers have the names that layers added at import get by default."""
    x = keras.Input((6,))
    y = L.Rescaling(2.0, name="rescaling")(x)
    y = L.Rescaling(0.5, name="rescaling_1")(L.Activation("hard_silu")(y))
    y = L.Dense(4, activation="hard_sigmoid", name="re_lu")(y)
    return keras.Model(x, L.Dense(3, activation="leaky_relu", name="multiply")(y))


def layers_of_applications() -> Any:
    """Return a model of the layers that `keras.applications` brings along."""
    from keras.src.applications.convnext import LayerScale, StochasticDepth
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    x = image = keras.Input((8, 8, 3))
    x = L.Conv2D(4, 3, padding="same")(x)
    y = StochasticDepth(0.1)(LayerScale(0.5, 4)(L.Conv2D(4, 3, padding="same")(x)))
    return keras.Model(image, CustomScaleLayer(0.17)([x, x + y]))


def float64_sum() -> Any:
    """Return a model whose sums are of float64."""
    x = keras.Input((4,), dtype="float64")
    y = L.Dense(4, dtype="float64")(x)
    return keras.Model(x, (x + y) * y)


def unnamed_shape() -> Any:
    """Return a sequential model that was built by its first call, half of it frozen."""
    model = keras.Sequential([L.Dense(5), L.BatchNormalization(), L.Dense(3)])
    model.build((None, 6))
    model.layers[0].trainable = False
    return model


def embedded() -> Any:
    """Return a text classifier with a masked embedding."""
    words = keras.Input((7,), dtype="int32")
    x = L.Embedding(20, 5, mask_zero=True)(words)
    return keras.Model(words, L.Dense(2)(L.Bidirectional(L.LSTM(3))(x)))


SPECIAL: dict[str, Build] = {
    "shared_layer": shared_layer,
    "nested_models": nested_models,
    "named_outputs": named_outputs,
    "states": states,
    "whole_numbers": whole_numbers,
    "embedded_floats": embedded_floats,
    "residual_net": residual_net,
    "names_of_added_layers": names_of_added_layers,
    "layers_of_applications": layers_of_applications,
    "float64_sum": float64_sum,
    "unnamed_shape": unnamed_shape,
    "embedded": embedded,
    "attention": attention(lambda: L.Attention(use_scale=True)),
    "additive_attention": attention(lambda: L.AdditiveAttention()),
    "multi_head_attention": attention(lambda: L.MultiHeadAttention(2, 3)),
}

ZOO: dict[str, Build] = {
    **{name: one(layer, IMAGE) for name, layer in IMAGE_LAYERS.items()},
    **{name: one(layer, SERIES) for name, layer in SERIES_LAYERS.items()},
    **{name: one(layer, VECTOR) for name, layer in VECTOR_LAYERS.items()},
    **{name: one(layer, VOLUME) for name, layer in VOLUME_LAYERS.items()},
    **{f"activation_{name}": activation(name) for name in ACTIVATIONS},
    **{name: call(function) for name, function in OPERATIONS.items()},
    **{f"merge_{name}": merging(layer) for name, layer in MERGES.items()},
    **SPECIAL,
}

REFUSED: dict[str, Build] = {
    "rms_normalization": one(lambda: L.RMSNormalization(), VECTOR),
    "recurrent_hard_sigmoid": one(lambda: L.LSTM(3, recurrent_activation="hard_sigmoid"), SERIES),
    "gated_attention": attention(lambda: L.MultiHeadAttention(2, 3, use_gate=True)),
    "op_sort": call(lambda x: ops.sort(x, axis=-1)),
}
"""What tf-keras has no counterpart for."""


def randomize(model: Any, seed: int) -> None:
    """Give every float weight values that let the signal through; variances stay positive."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        if "seed" in weight.path or "int" in str(weight.dtype):
            continue
        values = random.normal(0.1, 0.4, weight.shape)
        positive = "variance" in weight.path or "gamma" in weight.path
        weight.assign(np.abs(values) + 0.3 if positive else values)


def example(tensor: Any, seed: int) -> Any:
    """Return 3 examples for an input."""
    random = np.random.default_rng(seed)
    shape = (3, *tensor.shape[1:])
    if "int" in str(tensor.dtype) or "words" in tensor.name:
        return random.integers(0, 5, shape).astype(tensor.dtype)
    return random.normal(0.0, 1.0, shape).astype("float32")


def write(folder: Path, name: str, model: Any) -> None:
    """Write a model, its inputs and what it makes of them."""
    seed = sum(map(ord, name))
    randomize(model, seed)
    xs = [example(tensor, seed + i) for i, tensor in enumerate(model.inputs)]
    fed = keras.tree.pack_sequence_as(model._inputs_struct, xs) if len(xs) > 1 else xs
    fed = xs[0] if len(xs) == 1 else fed
    outputs = keras.tree.flatten(model(fed, training=False))
    arrays = {f"x{i}": x for i, x in enumerate(xs)}
    arrays |= {f"y{i}": np.asarray(ops.cast(y, "float32")) for i, y in enumerate(outputs)}
    model.save(folder / f"{name}.keras")
    np.savez(folder / f"{name}.npz", **arrays)


def chosen(every: int) -> dict[str, Build]:
    """Return all models of several layers and every so many of one layer."""
    single = [name for name in ZOO if name not in SPECIAL]
    names = [*single[::every], "op_slicing", "op_reshape", "activation_hard_silu", *SPECIAL]
    return {name: ZOO[name] for name in names} | REFUSED


def write_all(folder: str, every: int) -> None:
    """Write for each model NAME.keras and NAME.npz (x0, ..., y0, ...).

    Args:
        folder: where to.
        every: 1 for all models, 3 for a third of those with a single layer.
    """
    for key, builder in chosen(every).items():
        keras.utils.clear_session()
        write(Path(folder), key, builder())
