"""Gradient checkpointing gives the plain gradients, in less memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.engine.accumulate import dense_gradients
from shrink.engine.randomness import RandomSeeds, continued_randomness
from shrink.engine.recompute import SegmentedRun, Step, choose_segments, recomputed, steps_in_order
from tests.engine._graphs import all_before
from tests.engine._run import run_in_fresh_process

X = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)


def residual_model(blocks: int = 4, drop: float = 0.0) -> Any:
    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    hidden = layers.Conv2D(8, 3, padding="same")(inputs)
    for _ in range(blocks):
        inner = layers.BatchNormalization(momentum=0.5)(hidden)
        inner = layers.Conv2D(8, 3, padding="same", activation="relu")(inner)
        inner = layers.Dropout(drop)(inner)
        hidden = layers.add([hidden, inner])
    return keras.Model(inputs, layers.Dense(5)(layers.GlobalAveragePooling2D()(hidden)))


def gradients(
    model: Any, recompute: str | int, seeds: RandomSeeds | None = None, x: Any = X
) -> list[Any]:
    """Return the gradients and the moving statistics after one step from the same state."""
    weights = model.get_weights()
    if seeds is not None:
        seeds.variable.assign(0)

    @tf.function
    def step(x: Any) -> Any:
        if seeds is not None:
            seeds.begin()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True)))
        return tape.gradient(loss, model.trainable_variables)

    with recomputed(model, recompute, seeds) as notes, continued_randomness(model, seeds):
        found = [tf.convert_to_tensor(g).numpy() for g in step(tf.constant(x))]
    assert notes == []
    statistics = [v.numpy() for v in model.non_trainable_variables]
    model.set_weights(weights)
    return found + statistics


def assert_equal(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recompute", ["auto", 2])
def test_recomputed_gives_the_plain_gradients_and_statistics(recompute: str | int) -> None:
    keras.utils.set_random_seed(0)
    model = residual_model()
    before = [v.numpy() for v in model.non_trainable_variables]
    plain = gradients(model, "off")
    assert_equal(gradients(model, recompute), plain)
    moved = [np.abs(a - b).max() for a, b in zip(plain[-len(before) :], before, strict=True)]
    assert min(moved) > 1e-4


def test_recomputed_draws_the_same_dropout_again() -> None:
    keras.utils.set_random_seed(0)
    model, seeds = residual_model(drop=0.5), RandomSeeds(0)
    assert_equal(gradients(model, "auto", seeds), gradients(model, "off", seeds))


class Scaled(keras.layers.Layer):
    """Multiplies by a random number, with an operation that cannot be made to draw it again."""

    def call(self, inputs: Any) -> Any:
        return inputs * tf.random.uniform((), 0.5, 2.0)


@pytest.mark.parametrize("random_layer", [Scaled, keras.layers.RandomFlip])
def test_segmented_run_leaves_out_layers_that_would_draw_other_numbers(random_layer: Any) -> None:
    inputs = keras.layers.Input((8, 8, 3))
    hidden = keras.layers.Conv2D(12, 3, padding="same")(inputs)
    hidden = keras.layers.Dropout(0.5)(hidden)  # which does draw the same again, from seeds
    for _ in range(4):
        hidden = keras.layers.Conv2D(3, 3, padding="same")(hidden)
    hidden = random_layer(name="random")(hidden)
    run = SegmentedRun(keras.Model(inputs, keras.layers.ReLU()(hidden)), 2, RandomSeeds(0))
    inside = {run.nodes[index].layer.name for segment in run.segments for index in segment}
    assert "dropout" in "".join(inside)
    assert "random" not in inside


def masked_model(*, nested: bool, mask_value: float = 0.0) -> Any:
    """Recurrent layers behind `Masking`, or a model of them that another one calls on its mask."""
    layers = keras.layers
    outer = layers.Input((7, 3))
    inputs = layers.Input((7, 3)) if nested else outer
    hidden = inputs if nested else layers.Masking(mask_value)(inputs)
    for _ in range(3):
        hidden = layers.Dense(4, activation="relu")(hidden)
    hidden = layers.SimpleRNN(4, unroll=True)(hidden)
    for _ in range(4):
        hidden = layers.Dense(4, activation="tanh")(hidden)
    model = keras.Model(inputs, hidden)
    return keras.Model(outer, model(layers.Masking()(outer))) if nested else model


def test_recomputed_keeps_masks_inside_a_model() -> None:
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(4, 7, 3)).astype(np.float32)
    x[:, 3:] = 0.0
    model, seeds = masked_model(nested=False), RandomSeeds(0)
    kept = gradients(model, "off", seeds, x)
    assert_equal(gradients(model, 2, seeds, x), kept)
    # Without masks all steps count.
    others = masked_model(nested=False, mask_value=9.0)
    others.set_weights(model.get_weights())
    assert np.abs(others(x) - model(x)).max() > 1e-3


def test_recomputed_leaves_alone_a_model_that_is_called_with_a_mask() -> None:
    with recomputed(masked_model(nested=True), 2, RandomSeeds(0)) as notes:
        assert "mask" in notes[0]


def test_recomputed_leaves_inference_and_the_model_alone() -> None:
    model = residual_model()
    expected = model(X, training=False).numpy()
    with recomputed(model, "auto", None):
        np.testing.assert_array_equal(model(X, training=False), expected)
    assert "_run_internal_graph" not in vars(model)
    assert not any("add_update" in vars(layer) for layer in model.layers)


def test_segmented_run_cuts_the_largest_model_inside() -> None:
    inner, inputs = residual_model(), keras.layers.Input((8, 8, 3))
    outer = keras.Model(inputs, keras.layers.Dense(2)(inner(inputs)))
    with recomputed(outer, 3, None) as notes:
        assert notes == []
        assert isinstance(vars(inner)["_run_internal_graph"], SegmentedRun)


def test_recomputed_says_why_nothing_is_computed_twice() -> None:
    inputs = keras.layers.Input((7,), dtype="int32")
    hidden = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    with recomputed(model, "auto", None) as notes:
        assert "nothing is recomputed" in notes[0]


def test_segmented_run_leaves_out_layers_that_add_losses() -> None:
    model = residual_model()
    model.layers[3].activity_regularizer = keras.regularizers.L2(0.1)
    run = SegmentedRun(model, 2, None)
    layers = [run.nodes[index].layer for segment in run.segments for index in segment]
    assert len(layers) > 4
    assert model.layers[3] not in layers


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_recomputed_reads_weights_before_the_product_that_they_are_added_to(precision: str) -> None:
    # oneDNN makes one operation of a convolution and the addition of its bias.
    keras.mixed_precision.set_global_policy(precision)
    try:
        layers = keras.layers
        convolutions = [layers.Conv2D(2, 3, padding="same") for _ in range(4)]
        model = keras.Sequential([layers.Input((8, 8, 3)), *convolutions])
    finally:
        keras.mixed_precision.set_global_policy("float32")

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True))
        return dense_gradients(tape, loss, model.trainable_variables)

    with recomputed(model, 2, None):
        graph = step.get_concrete_function(tf.TensorSpec((1, 8, 8, 3))).graph
    additions = [each for each in graph.get_operations() if each.type == "BiasAdd"]
    assert len(additions) > 4
    for addition in additions:
        product, bias = (tensor.op for tensor in addition.inputs)
        assert product.type == "Conv2D"
        assert product not in all_before(bias)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_recomputed_holds_less_and_trains_the_same_with_onednn(precision: str) -> None:
    results = run_in_fresh_process(
        "tests.engine._recompute",
        "compare",
        environment={"TF_ENABLE_ONEDNN_OPTS": "1"},
        precision=precision,
    )
    for name, found in results.items():
        assert found["moved"] > 1e-3, name
        assert found["difference"] <= 2e-6, name
        # A CPU without products of bfloat16 unpacks them: that, not activations, is then the peak.
        share = 0.8 if precision == "float32" else 1.0
        assert found["peak"] < share * found["plain_peak"], name


def chain(sizes: list[int], unrepeatable: int | None = None) -> list[Step]:
    return [
        Step((str(n),), (str(n + 1),), size, repeatable=n != unrepeatable)
        for n, size in enumerate(sizes)
    ]


def test_choose_segments_cuts_a_uniform_chain_into_equal_parts() -> None:
    assert choose_segments(chain([1] * 12), 3) == [range(4), range(4, 8), range(8, 12)]


def test_choose_segments_holds_least_when_the_number_is_free() -> None:
    # k segments of a uniform chain of n hold k - 1 + 2 n / k: least at the square root of 2 n.
    assert len(choose_segments(chain([1] * 72), None)) in (10, 11, 12)


def test_choose_segments_cuts_where_little_crosses() -> None:
    # A residual block: the sum needs what came before the block, so that cuts inside it cross two.
    block = [
        Step(("0",), ("1",), 4),
        Step(("1",), ("2",), 4),
        Step(("2",), ("3",), 4),
        Step(("3", "1"), ("4",), 4),
        Step(("4",), ("5",), 4),
        Step(("5",), ("6",), 4),
        Step(("6", "4"), ("7",), 4),
        Step(("7",), ("8",), 4),
    ]
    assert choose_segments(block, 2)[0].stop == 4


def test_choose_segments_ends_where_a_product_is_not_computed_again() -> None:
    # Products cost 9 kept bytes, all else nothing; only the last of a segment need not be repeated.
    kinds = [True, False, False, True, False, False, False, True]
    steps = [
        Step((str(n),), (str(n + 1),), 4, price=9.0 * product, is_product=product)
        for n, product in enumerate(kinds)
    ]
    assert choose_segments(steps, 2) == [range(1, 4), range(4, 8)]


def test_choose_segments_leaves_out_what_may_not_be_repeated() -> None:
    segments = choose_segments(chain([1] * 8, unrepeatable=2), 2)
    assert segments == [range(2), range(4, 8)]


def small_cnn() -> Any:
    layers = keras.layers
    hidden = inputs = layers.Input((16, 16, 3))
    for filters in (8, 16, 32):
        hidden = layers.Conv2D(filters, 3, padding="same")(hidden)
        hidden = layers.ReLU()(layers.BatchNormalization()(hidden))
        hidden = layers.MaxPooling2D()(hidden)
    return keras.Model(inputs, layers.Dense(5)(layers.GlobalAveragePooling2D()(hidden)))


def small_mlp(depth: int = 9) -> Any:
    hidden = inputs = keras.layers.Input((64,))
    for _ in range(depth - 1):
        hidden = keras.layers.Dense(64, activation="relu")(hidden)
    return keras.Model(inputs, keras.layers.Dense(5)(hidden))


@pytest.mark.parametrize("model", [small_cnn(), small_mlp()], ids=["cnn", "mlp"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 8, 16, 100])
def test_recompute_makes_about_as_many_segments_as_requested(model: Any, number: int) -> None:
    # The CNN's first activations are so large that it splits into 3 segments at most.
    found = len(SegmentedRun(model, number, None).segments)
    assert min(number, 3) <= found <= number + 1
    with recomputed(model, number, None) as notes:
        assert notes == []


def test_recomputed_says_when_a_model_has_too_few_layers() -> None:
    for depth in (1, 3):
        with recomputed(small_mlp(depth), 8, None) as notes:
            assert ["too few layers" in note for note in notes] == [True]


def test_choose_segments_finds_none_in_a_short_network() -> None:
    assert choose_segments(chain([1] * 3), None) == []


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
