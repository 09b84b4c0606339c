"""The oracle against closed forms, and against files that were changed on purpose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from tests.oracle import bootstrap, litert, metrics, sizes
from tests.oracle.keras_models import convert, predict
from tests.oracle.macs import count_macs
from tests.oracle.records import Ledger, summary
from tests.oracle.truth import Output, Truth

layers = keras.layers


def _truth(output: Output, target: np.ndarray, names: list[str], **more: np.ndarray) -> Truth:
    x = {"x": np.zeros((len(target), 1), np.float32)}
    return Truth(x, [output], {output.name: target}, more, names)


@pytest.mark.parametrize("from_logits", [False, True])
def test_loss_and_accuracy_are_those_of_keras(from_logits: bool) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 4))
    values = values if from_logits else np.exp(values) / np.exp(values).sum(-1, keepdims=True)
    target = rng.integers(0, 4, 50)
    output = Output("y", "sparse_categorical_crossentropy", from_logits)
    found = metrics.compute([values], _truth(output, target, ["accuracy"]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)(target, values)
    assert found["loss"].value()[0] == pytest.approx(float(loss), rel=1e-5)
    assert found["accuracy"].value()[0] == np.mean(values.argmax(-1) == target)


@pytest.mark.parametrize("from_logits", [False, True])
def test_binary_crossentropy_is_that_of_keras(from_logits: bool) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(50, 3))
    values = values if from_logits else 1 / (1 + np.exp(-values))
    target = rng.integers(0, 2, (50, 3))
    output = Output("y", "binary_crossentropy", from_logits)
    found = metrics.compute([values], _truth(output, target, ["binary_accuracy"]))
    loss = keras.losses.BinaryCrossentropy(from_logits=from_logits)(target, values)
    assert found["loss"].value()[0] == pytest.approx(float(loss), rel=1e-5)


def test_masked_elements_do_not_count_and_examples_are_pooled() -> None:
    values = np.array([[[2.0, 0.0], [0.0, 2.0]], [[2.0, 0.0], [2.0, 0.0]]])
    target = np.array([[0, 0], [1, 0]])
    mask = np.array([[True, False], [True, True]])
    output = Output("y", "sparse_categorical_crossentropy", True)
    found = metrics.compute([values], _truth(output, target, ["accuracy"], y=mask))
    assert found["accuracy"].value()[0] == pytest.approx(2 / 3)


def test_the_first_of_equal_outputs_is_decided() -> None:
    values = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
    output = Output("y", "sparse_categorical_crossentropy", True)
    found = metrics.compute([values], _truth(output, np.array([0, 1, 0]), ["accuracy"]))
    assert found["accuracy"].value()[0] == pytest.approx(2 / 3)
    assert found["accuracy"].bounds == pytest.approx((2 / 3, 2 / 3))


def test_bootstrap_is_as_wide_as_the_normal_interval_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(size=400)
    part = metrics.Scores(values, np.ones(400), 1.0, values, values)
    drawn = bootstrap.interval(metrics.Metric([part]))
    width = 2 * 1.96 * values.std() / 20
    assert drawn.high - drawn.low == pytest.approx(width, rel=0.1)
    assert drawn.judges


def _recurrent(kind: str) -> keras.Model:
    x = layers.Input((7, 3), name="x")
    cell = {"lstm": layers.LSTM, "gru": layers.GRU, "rnn": layers.SimpleRNN}[kind]
    return keras.Model(x, layers.Dense(2)(cell(5)(x)))


@pytest.mark.parametrize(("kind", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
def test_macs_of_loops_are_those_of_the_cell_times_its_steps(
    kind: str, gates: int, tmp_path: Path
) -> None:
    path = convert(_recurrent(kind), tmp_path)
    assert count_macs(path) == 7 * gates * (3 * 5 + 5 * 5) + 5 * 2


def test_macs_parameters_and_outputs_of_a_convolution(tmp_path: Path) -> None:
    x = layers.Input((8, 8, 2), name="x")
    y = layers.Conv2D(4, 3, strides=2, padding="same")(x)
    y = layers.DepthwiseConv2D(3, padding="valid", bias_initializer="ones")(y)
    y = layers.Conv2DTranspose(3, 2, strides=2)(y)
    model = keras.Model(x, layers.Dense(5)(layers.Flatten()(y)))
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    path = convert(model, tmp_path)
    expected = 16 * 9 * 2 * 4 + 4 * 9 * 4 + 4 * 4 * 4 * 3 + 4 * 4 * 3 * 5
    assert count_macs(path) == expected
    assert sizes.count_parameters(path)[0] == model.count_params()
    inputs = {"x": np.random.default_rng(1).normal(size=(3, 8, 8, 2)).astype(np.float32)}
    np.testing.assert_allclose(litert.run(path, inputs)[0], predict(model, inputs)[0], atol=1e-4)


def test_ledger_lists_what_differs_with_both_values() -> None:
    ledger = Ledger("run")
    ledger.same("size.macs", 10, 10)
    ledger.same("size.macs", None, 10, at="quantize")
    assert [r.where for r in ledger.disagreements] == ["run/quantize"]
    assert "reported None, oracle 10" in summary(ledger.records)
    assert summary(ledger.records).startswith("2 figures compared (2 size); 1 disagreements")
