"""Losses of a model that no output needs: they stay in every copy that is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.graph.groups import find_groups
from shrink.graph.network import with_losses
from shrink.graph.rebuild import rebuild, weights_of
from shrink.graph.scale import scaled
from shrink.model.logits import logits_of

L = keras.layers
X = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)


class Sparse(keras.layers.Layer):
    """Gives what it takes, and adds a loss."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.add_loss(0.5 * tf.reduce_mean(tf.abs(inputs)))
        return inputs


def added() -> keras.Model:
    inputs = L.Input((8,))
    x = L.Dense(6, activation="relu", name="first")(inputs)
    y = L.Dense(4, activation="relu", name="second", activity_regularizer="l2")(x)
    model = keras.Model(inputs, L.Softmax()(L.Dense(3, name="end")(y)))
    model.add_loss(tf.reduce_mean(x**2))
    model.add_metric(tf.reduce_sum(x), name="sum", aggregation="mean")
    return model


def nested() -> keras.Model:
    inner_input = L.Input((6,))
    x = L.Dense(6, name="inside")(inner_input)
    inner = keras.Model(inner_input, x, name="inner")
    inner.add_loss(tf.reduce_mean(x**2))
    inputs = L.Input((8,))
    y = inner(inner(L.Dense(6, name="first")(inputs)))
    return keras.Model(inputs, L.Dense(3, name="end")(y))


def custom() -> keras.Model:
    inputs = L.Input((8,))
    x = Sparse(name="sparse")(L.Dense(6, name="first")(inputs))
    return keras.Model(inputs, L.Dense(3, name="end")(L.Dense(4, name="second")(x)))


def residual() -> keras.Model:
    inputs = L.Input((8,))
    x = L.Dense(6, name="first")(inputs)
    for name in ("one", "two", "three", "four"):
        wide = L.Dense(8, activation="relu", name=f"{name}_wide")(x)
        x = L.Add()([x, L.Dense(6, name=name)(wide)])
    model = keras.Model(inputs, L.Dense(3, name="end")(x))
    model.add_loss(tf.reduce_mean(x**2))
    return model


def losses(model: keras.Model) -> list[float]:
    """Return the losses of one call in a graph, as training computes them."""
    function = tf.function(lambda x: (model(x, training=True), model.losses)[1])
    return sorted(float(value) for value in function(X))


@pytest.mark.parametrize("build", [added, nested, custom])
def test_rebuild_keeps_added_losses(build: type, tmp_path: Path) -> None:
    model = build()
    graph = find_groups(model)
    same = rebuild(graph, graph.keep(np.array([])), weights_of(graph))
    assert losses(same) == pytest.approx(losses(model), rel=1e-6)
    assert losses(same)[-1] > 0
    same.save(tmp_path / "again.keras")
    again = keras.models.load_model(
        tmp_path / "again.keras", compile=False, custom_objects={"Sparse": Sparse}
    )
    assert losses(again) == pytest.approx(losses(model), rel=1e-6)


def test_rebuild_keeps_added_metrics() -> None:
    graph = find_groups(added())
    model = rebuild(graph, graph.keep(np.array([])), weights_of(graph))
    model(X)
    assert [metric.name for metric in model.metrics] == ["sum"]


def test_rebuild_takes_losses_of_the_channels_that_stay() -> None:
    model = added()
    graph = find_groups(model)
    (group,) = [group for group in graph.groups if group.name == "second"]
    smaller = rebuild(graph, graph.keep(group.channels[:2]), weights_of(graph))
    hidden = np.maximum(X @ model.get_layer("first").get_weights()[0], 0)
    kernel = model.get_layer("second").get_weights()[0]
    kept = np.maximum(hidden @ kernel, 0)[:, 2:]
    # Keras divides an activity regularizer by the examples of a batch.
    expected = [0.01 * np.sum(kept**2) / len(X), np.mean(hidden**2)]
    assert losses(smaller) == pytest.approx(sorted(expected), rel=1e-4)


@pytest.mark.parametrize("scale", [{"width": 0.5}, {"depth": 0.5}])
def test_scaled_students_keep_added_losses(scale: dict[str, float]) -> None:
    student = scaled(residual(), scale)
    last = student.get_layer("end").input
    x = np.asarray(keras.Model(student.input, last)(X))
    assert losses(student) == pytest.approx([float(np.mean(x**2))], rel=1e-5)


def test_rebuild_refuses_a_loss_that_is_a_function() -> None:
    model = added()
    model.add_loss(lambda: tf.reduce_sum(model.get_layer("first").kernel))
    graph = find_groups(model)
    with pytest.raises(ModelError, match="as a function"):
        rebuild(graph, graph.keep(np.array([])), weights_of(graph))


def test_with_losses_keeps_those_of_other_outputs() -> None:
    model = added()
    with logits_of(model) as logits:
        assert losses(logits) == pytest.approx(losses(model), rel=1e-6)
    part = with_losses(model, keras.Model(model.inputs, model.get_layer("first").output))
    assert losses(part) == pytest.approx(losses(model)[-1:], rel=1e-6)
