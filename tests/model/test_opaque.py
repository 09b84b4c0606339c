"""Models of which only a graph is known: SavedModels and subclassed models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.contract.model_source import ModelSource
from shrink.model.load import load_source
from shrink.model.logits import logits_of
from shrink.model.reference import parse_model_reference
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
SUBCLASSED = """
import numpy as np
import tf_keras as keras


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="relu")
        self.last = keras.layers.Dense(3, activation="softmax")

    def call(self, x):
        return self.last(self.hidden(x))


def build():
    keras.utils.set_random_seed(3)
    model = Net()
    model(np.zeros((1, 4), "float32"))
    return model


def called_on_a_variable():
    model = Net()
    model(keras.backend.zeros((1, 4)))
    return model


def never_called():
    return Net()
"""


def classifier(ending: str | None) -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(8, activation="relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(3, activation=ending)(hidden))


def source(path: Path, function: str | None = None) -> ModelSource:
    return ModelSource("builder" if function else "savedmodel", path, function)


def subclassed(folder: Path) -> Path:
    path = folder / "net.py"
    path.write_text(SUBCLASSED, encoding="utf-8")
    return path


@pytest.mark.parametrize("ending", [None, "softmax", "sigmoid"])
def test_load_source_asks_an_exported_graph(ending: str | None, tmp_path: Path) -> None:
    model = classifier(ending)
    model.export(str(tmp_path / "graph"))
    loaded = load_source(source(tmp_path / "graph"), as_graph=True)
    np.testing.assert_allclose(loaded(X).numpy(), model(X).numpy(), rtol=1e-6)
    assert not loaded.trainable_weights
    with (
        logits_of(loaded, ("softmax", "sigmoid")) as logits,
        logits_of(model, ("softmax", "sigmoid")) as expected,
    ):
        difference = logits(X).numpy() - expected(X).numpy()
    # The logarithm of a softmax is its argument up to a constant for each example.
    constant = difference[:, :1] if ending == "softmax" else 0.0
    np.testing.assert_allclose(difference - constant, 0.0, atol=1e-5)


def test_load_source_refuses_a_graph_for_a_batch_of_one(tmp_path: Path) -> None:
    module = tf.Module()
    module.run = tf.function(lambda x: x * 2.0, input_signature=[tf.TensorSpec([1, 4], name="x")])
    tf.saved_model.save(module, str(tmp_path / "graph"), signatures=module.run)
    with pytest.raises(ModelError, match="batches of 1 alone"):
        load_source(source(tmp_path / "graph"), as_graph=True)


def test_logits_of_takes_each_output_of_a_graph_for_what_it_is(tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    ends = [keras.layers.Dense(2, activation=name)(inputs) for name in ("softmax", None)]
    model = keras.Model(inputs, ends)
    model.export(str(tmp_path / "graph"))
    loaded = load_source(source(tmp_path / "graph"), as_graph=True)
    probabilities, numbers = model(X)
    with logits_of(loaded) as logits:
        first, second = logits(X)
    np.testing.assert_allclose(tf.nn.softmax(first), probabilities, rtol=1e-5)
    np.testing.assert_allclose(second, numbers, rtol=1e-5)


def test_load_source_traces_a_subclassed_model(tmp_path: Path) -> None:
    path = subclassed(tmp_path)
    loaded = load_source(source(path, "build"), as_graph=True)
    assert loaded.input_shape == (None, 4)
    np.testing.assert_allclose(loaded(X).numpy().sum(-1), 1.0, rtol=1e-6)
    again = load_source(source(path, "build"), as_graph=True)
    assert again.layers[-1].get_config()["sha256"] == loaded.layers[-1].get_config()["sha256"]


def test_load_source_traces_what_was_called_on_a_variable(tmp_path: Path) -> None:
    path = subclassed(tmp_path)
    assert load_source(source(path, "called_on_a_variable"), True).output_shape == (None, 3)


@pytest.mark.parametrize(
    ("function", "as_graph", "words"),
    [
        ("build", False, "a subclassed model has no graph of layers"),
        ("never_called", True, "was never called"),
    ],
)
def test_load_source_says_what_a_subclassed_model_cannot(
    function: str, as_graph: bool, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        load_source(source(subclassed(tmp_path), function), as_graph)
    assert caught.value.hint


def test_convert_takes_the_graph_of_a_subclassed_model(tmp_path: Path) -> None:
    """`model.save` writes Keras' description beside the graph, by which nothing can be built."""
    keras.utils.set_random_seed(3)
    net = load_source(source(subclassed(tmp_path), "build"), as_graph=True)
    holder = net.layers[-1]._holder.value
    holder.save(tmp_path / "saved", save_format="tf")
    reference = parse_model_reference(str(tmp_path / "saved"), tmp_path)
    assert (reference.graph_only, reference.form) == (True, "tflite")
    runner = load(convert(tmp_path / "saved", "float32").content)
    np.testing.assert_allclose(runner.predict(X)[0], net(X).numpy(), atol=1e-6)
    with pytest.raises(ModelError, match="graph without Keras' layers"):
        load_source(source(tmp_path / "saved"))
