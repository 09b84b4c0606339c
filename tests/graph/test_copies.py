"""What copies of a model keep: everything that gradients do not learn."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.graph.groups import find_groups
from shrink.graph.network import read_network
from shrink.graph.rebuild import masked, rebuild, unfrozen, weights_of
from shrink.graph.scale import find_blocks, scaled, stages, student_notes, without_blocks

L = keras.layers
RANDOM = np.random.default_rng(0)
TABLE = (RANDOM.normal(size=(64, 6)) * [0.01, 1, 100, 1, 5, 1e4] + [0, 5, 1e3, 0, 1, 1e5]).astype(
    np.float32
)
NUMBERS = np.stack([RANDOM.permutation(9)[:6] for _ in range(64)])
WORDS = NUMBERS.astype(str)
TEXTS = np.array([" ".join(row) for row in WORDS])
IMAGES = RANDOM.uniform(0, 255, (4, 6, 6, 3)).astype(np.float32)
OUTPUT_MODES = ("tf_idf",)


@keras.saving.register_keras_serializable("tests")
class Constant(keras.layers.Layer):
    """Adds a number to each column that no gradient learns."""

    def build(self, shape: tf.TensorShape) -> None:
        self.offset = self.add_weight("offset", (shape[-1],), trainable=False)
        super().build(shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x + self.offset


def adapted(layer: keras.layers.Layer, x: np.ndarray) -> keras.layers.Layer:
    layer.adapt(x)
    return layer


def with_weights(
    layer: keras.layers.Layer, shape: tuple[int | None, ...], frozen: bool = False
) -> keras.layers.Layer:
    layer.build(shape)
    layer.set_weights([RANDOM.uniform(0.5, 2, w.shape) for w in layer.weights])
    layer.trainable = not frozen
    return layer


def lookup(kind: type, mode: str, x: np.ndarray) -> keras.layers.Layer:
    return adapted(kind(output_mode=mode), x)


def text(mode: str) -> keras.layers.Layer:
    length = 6 if mode == "int" else None
    return adapted(L.TextVectorization(output_mode=mode, output_sequence_length=length), TEXTS)


Case = tuple[Callable[[], keras.layers.Layer], np.ndarray]
STATEFUL: dict[str, Case] = {
    "Normalization": (lambda: adapted(L.Normalization(), TABLE), TABLE),
    "Normalization of each pixel": (lambda: adapted(L.Normalization((1, 2)), IMAGES), IMAGES),
    "Discretization": (lambda: adapted(L.Discretization(num_bins=5), TABLE), TABLE),
    **{
        f"StringLookup {mode}": (
            partial(lookup, L.StringLookup, mode, WORDS), WORDS
        )
        for mode in OUTPUT_MODES
    },
    **{
        f"IntegerLookup {mode}": (
            partial(lookup, L.IntegerLookup, mode, NUMBERS), NUMBERS
        )
        for mode in OUTPUT_MODES
    },
    **{
        f"TextVectorization {mode}": (
            partial(text, mode), TEXTS
        )
        for mode in OUTPUT_MODES
    },
    "Hashing": (lambda: L.Hashing(7, salt=[3, 4]), NUMBERS),
    "CategoryEncoding": (lambda: L.CategoryEncoding(9, "multi_hot"), NUMBERS),
    "BatchNormalization": (lambda: with_weights(L.BatchNormalization(), (None, 6)), TABLE),
    "SyncBatchNormalization": (
        lambda: with_weights(L.experimental.SyncBatchNormalization(), (None, 6)), TABLE
    ),
    "BatchNormalization frozen": (
        lambda: with_weights(L.BatchNormalization(), (None, 6), frozen=True), TABLE
    ),
    "SpectralNormalization frozen": (
        lambda: with_weights(L.SpectralNormalization(L.Dense(5)), (None, 6), frozen=True), TABLE
    ),
    "TimeDistributed Normalization": (
        lambda: L.TimeDistributed(adapted(L.Normalization(), TABLE)), TABLE[:, None]
    ),
    "Dense frozen": (lambda: with_weights(L.Dense(5), (None, 6), frozen=True), TABLE),
    "a constant of a custom layer": (lambda: with_weights(Constant(), (None, 6)), TABLE),
    "RandomFourierFeatures": (lambda: L.experimental.RandomFourierFeatures(5), TABLE),
    "Rescaling": (lambda: L.Rescaling(1 / 127.5, -1.0), IMAGES),
}  # fmt: skip
"""Layers that compute by something which gradients do not learn, with inputs for them."""

RANDOM_ONLY = {
    "AdditiveAttention", "AlphaDropout", "Attention", "Dropout", "GaussianDropout",
    "GaussianNoise", "GRU", "GRUCell", "LSTM", "LSTMCell", "RandomBrightness", "RandomContrast",
    "RandomCrop", "RandomFlip", "RandomHeight", "RandomRotation", "RandomTranslation",
    "RandomWidth", "RandomZoom", "SimpleRNNCell", "SpatialDropout1D", "SpatialDropout2D",
    "SpatialDropout3D",
}  # fmt: skip
"""Layers that draw random numbers while a model is trained, and keep a seed in their settings."""
REFUSED = {"DynamicLookup", "DynamicEmbedding"}
"""Experimental layers that Keras itself cannot make from their own settings."""
OF_CODE = {"Lambda"}
STATE = re.compile(
    r"trainable=False|tf\.Variable\(|lookup_table|finalize_state|def load_own_variables"
    r"|def save_assets|TrackableWeightHandler|_random_generator|salt"
)


def test_every_layer_of_keras_with_state_is_known_here() -> None:
    spaces = [L, L.experimental]
    kinds = {kind for space in spaces for kind in vars(space).values() if inspect.isclass(kind)}
    stateful = {
        kind.__name__
        for kind in kinds
        if issubclass(kind, L.Layer)
        and any(STATE.search(inspect.getsource(base)) for base in _own_bases(kind))
    }
    known = {name.split()[0] for name in STATEFUL}
    assert stateful - known == RANDOM_ONLY | REFUSED | OF_CODE


def _own_bases(kind: type) -> list[type]:
    names = ("tf_keras.src.layers.", "tf_keras.src.engine.base_preprocessing_layer")
    return [base for base in kind.__mro__ if base.__module__.startswith(names)]


def residual(layer: keras.layers.Layer, x: np.ndarray) -> keras.Model:
    """Return a layer, called "state", before four residual blocks."""
    layer._name = "state"
    inputs = keras.Input(x.shape[1:], dtype=tf.constant(x[:1]).dtype)
    hidden = tf.cast(layer(inputs), tf.float32)
    hidden = L.Dense(16, name="stem")(L.Flatten()(hidden) if hidden.shape.rank > 2 else hidden)
    for n in range(4):
        hidden = L.Add()([hidden, L.Dense(16, activation="relu", name=f"block{n}")(hidden)])
    return keras.Model(inputs, L.Dense(3, name="head")(hidden))


def pruned_channels(model: keras.Model) -> keras.Model:
    graph = find_groups(model)
    weights, gone = weights_of(graph), [group.channels[::2] for group in graph.groups]
    keep = graph.keep(np.concatenate(gone))
    full = rebuild(graph, graph.keep(np.array([])), weights)
    for name, arrays in masked(graph, keep, weights).items():
        full.get_layer(name).set_weights(arrays)
    return rebuild(graph, keep, weights)


def pruned_layers(model: keras.Model) -> keras.Model:
    network = read_network(model)
    return without_blocks(network, stages(find_blocks(network))[0][1:2])


COPIES: dict[str, tuple[Callable[[keras.Model], keras.Model], bool]] = {
    "width": (lambda model: scaled(model, {"width": 0.5}), False),
    "depth": (lambda model: scaled(model, {"depth": 0.5}), False),
    "both": (lambda model: scaled(model, {"width": 0.5, "depth": 0.5}), False),
    "width, inherit": (lambda model: scaled(model, {"width": 0.5, "inherit": 1.0}), True),
    "depth, inherit": (lambda model: scaled(model, {"depth": 0.5, "inherit": 1.0}), True),
    "prune channels": (pruned_channels, True),
    "prune layers": (pruned_layers, True),
}
"""How a copy is made, and whether it has the weights of the original."""


@pytest.mark.parametrize("case", STATEFUL)
def test_copies_keep_what_gradients_do_not_learn(case: str) -> None:
    build, x = STATEFUL[case]
    model = residual(build(), x)
    network, old = read_network(model), model.get_layer("state")
    given = np.asarray(old(tf.constant(x)))
    for name, (copy_of, inherits) in COPIES.items():
        copy = copy_of(model)
        assert copy.count_params() < model.count_params(), name
        new = copy.get_layer("state")
        if "state" in unfrozen(network, copy):
            assert "state" in student_notes(model, copy, inherits)[0]
            kept = np.isin(old.get_weights()[0], new.get_weights()[0]).all(axis=0)
            np.testing.assert_array_equal(new(x), given[..., kept], err_msg=name)
        elif inherits or not old.trainable_weights:
            np.testing.assert_array_equal(np.asarray(new(tf.constant(x))), given, err_msg=name)
        else:
            for own, other in zip(
                old.non_trainable_weights, new.non_trainable_weights, strict=True
            ):
                np.testing.assert_array_equal(own, other, err_msg=name)


@pytest.mark.parametrize("name", ["width", "depth"])
def test_a_layer_that_keras_cannot_copy_is_refused_by_name(name: str) -> None:
    vocabulary = tf.constant([*"123456789"])
    layer = L.experimental.DynamicLookup(20, vocabulary, eviction_policy="LFU")
    with pytest.raises(ModelError, match="state: a DynamicLookup cannot be copied"):
        COPIES[name][0](residual(layer, WORDS))


def transfer(**call: bool) -> keras.Model:
    """Return a frozen base of four convolutions, as files of transfer learning have it."""
    keras.utils.set_random_seed(0)
    base = keras.Sequential([keras.Input((8, 8, 1))], name="base")
    for n in range(4):
        base.add(L.Conv2D(8, 3, padding="same", name=f"c{n}"))
        base.add(with_weights(L.BatchNormalization(name=f"n{n}"), (None, 8, 8, 8)))
    base.trainable = bool(call)
    inputs = keras.Input((8, 8, 1))
    x = L.GlobalAveragePooling2D()(base(inputs, **call))
    return keras.Model(inputs, L.Dense(4, name="head")(x))


@pytest.mark.parametrize("name", COPIES)
def test_frozen_layers_are_trained_where_they_changed(name: str) -> None:
    copy_of, inherits = COPIES[name]
    model = transfer()
    copy = copy_of(model)
    base = model.get_layer("base")
    old = {layer.name: layer.get_weights() for layer in base.layers}
    for layer in copy.layers:
        if layer.name not in old or not layer.weights:
            continue
        is_before = "width" not in name and layer.name in ("c0", "n0", "c1", "n1")
        assert layer.trainable != (is_before and name not in ("both", "prune channels"))
        for own, other in zip(layer.get_weights(), old[layer.name], strict=True):
            assert np.isin(own, other).all()
    note, *kept = student_notes(model, copy, inherits)
    assert re.match("frozen layers became trainable, .* c3", note)
    assert len(kept) == (name == "depth")


def test_statistics_behind_new_weights_start_anew() -> None:
    inputs = keras.Input((6,))
    first = with_weights(L.BatchNormalization(name="first"), (None, 6))
    second = with_weights(L.BatchNormalization(name="second"), (None, 16))
    model = keras.Model(inputs, L.Dense(3)(second(L.Dense(16)(first(inputs)))))
    student = scaled(model, {"width": 0.5})
    np.testing.assert_array_equal(student.get_layer("first").moving_mean, first.moving_mean)
    np.testing.assert_array_equal(student.get_layer("second").moving_mean, np.zeros(8))
    inherits = scaled(model, {"width": 0.5, "inherit": 1.0})
    assert np.isin(inherits.get_layer("second").moving_mean, second.moving_mean).all()


def test_a_base_called_for_inference_stays_so_where_nothing_changed() -> None:
    model = transfer(training=False)
    graph = find_groups(model)
    same = rebuild(graph, graph.keep(np.array([])), weights_of(graph))
    x = RANDOM.normal(size=(5, 8, 8, 1)).astype(np.float32)
    np.testing.assert_allclose(same(x, training=True), model(x), rtol=1e-4, atol=1e-5)
    for frozen in (model, transfer()):
        student = scaled(frozen, {"width": 0.5, "inherit": 1.0})
        norm = student.get_layer("n1")
        before = norm.moving_mean.numpy()
        student(x, training=True)
        np.testing.assert_array_equal(norm.moving_mean, before)
        assert norm.trainable
    student = scaled(model, {"width": 0.5})  # its convolutions learned, and are new
    before = student.get_layer("n1").moving_mean.numpy()
    student(x, training=True)
    assert np.abs(student.get_layer("n1").moving_mean.numpy() - before).max() > 1e-4


def test_an_excluded_layer_stays_frozen() -> None:
    model = transfer()
    graph = find_groups(model, ["c1", "c2", "n2", "?3"])
    group = next(group for group in graph.groups if group.name == "c0")
    copy = rebuild(graph, graph.keep(group.channels[:3]), weights_of(graph))
    trainable = {layer.name: layer.trainable for layer in copy.layers if layer.weights}
    # c1 reads what was cut; n1 is not excluded, and gets other inputs.
    assert trainable == {
        "c0": True, "n0": True, "c1": True, "n1": True, "c2": False, "n2": False,
        "c3": False, "n3": False, "head": True,
    }  # fmt: skip
