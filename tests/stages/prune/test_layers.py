"""Pruning by layers: what is left is the model built without the blocks that are least missed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras
from sklearn.datasets import load_digits

from shrink.base.errors import ModelError, RecipeError
from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run
from tests.graph.equivalence import randomise
from tests.jobs import context_of

L = keras.layers
BLOCKS = ("a", "b", "c")


def build(blocks: tuple[str, ...] = BLOCKS) -> keras.Model:
    """Return a classifier of digits with residual blocks of these names, and one that narrows."""
    inputs = L.Input((8, 8, 1))
    x = L.Conv2D(6, 3, padding="same", name="stem")(inputs)
    for name in blocks:
        y = L.ReLU(name=f"{name}_relu")(L.BatchNormalization(name=f"{name}_bn")(x))
        x = L.Add(name=f"{name}_add")([x, L.Conv2D(6, 3, padding="same", name=f"{name}_conv")(y)])
    y = L.Conv2D(8, 1, strides=2, name="down")(x)
    outputs = L.Dense(10, activation="softmax", name="head")(L.Flatten()(y))
    return keras.Model(inputs, outputs)


def tokens(blocks: int = 2) -> keras.Model:
    """Return a small transformer over the rows of a digit: attention and dense blocks."""
    inputs = L.Input((8, 8, 1))
    x = L.Dense(8, name="embed")(L.Reshape((8, 8))(inputs))
    for i in range(blocks):
        y = L.LayerNormalization(name=f"norm{i}")(x)
        x = L.Add(name=f"sum{i}")([x, L.MultiHeadAttention(2, 4, name=f"heads{i}")(y, y)])
        y = L.Dense(16, activation="relu", name=f"up{i}")(L.LayerNormalization(name=f"n{i}")(x))
        x = L.Add(name=f"total{i}")([x, L.Dense(8, name=f"down{i}")(y)])
    outputs = L.Dense(10, activation="softmax", name="head")(L.GlobalAveragePooling1D()(x))
    return keras.Model(inputs, outputs)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    found = {}
    for name, model in (("residual", build()), ("tokens", tokens())):
        randomise(model)
        found[name] = folder / f"{name}.keras"
        model.save(found[name])
    return found


def context(path: Path, tmp_path: Path) -> StageContext:
    training = {"global_batch_size": 256, "micro_batch_size": 256}
    return context_of(tmp_path, kind="prune", inputs={"model": path}, training=training)


def config(**keys: object) -> PruneConfig:
    return PruneConfig.model_validate({"method": "layers", "epochs": 0, **keys})


def without(whole: keras.Model, gone: set[str]) -> keras.Model:
    """Return the classifier built without blocks, with the weights of what stays."""
    made = build(tuple(name for name in BLOCKS if name not in gone))
    for layer in made.layers:
        if layer.weights:
            layer.set_weights(whole.get_layer(layer.name).get_weights())
    return made


def cross_entropy(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    scores = model.predict(x, verbose=0)[np.arange(len(y)), y]
    return float(np.mean(-np.log(np.clip(scores, 1e-7, 1))))


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_left_is_the_model_built_without_the_blocks_of_least_loss(
    count: int, paths: dict[str, Path], tmp_path: Path
) -> None:
    stage = context(paths["residual"], tmp_path)
    result: Any = run(config(blocks=count), stage)
    whole = keras.models.load_model(paths["residual"])
    left = {layer.name.removesuffix("_conv") for layer in result.model.layers} & set(BLOCKS)
    assert len(left) == len(BLOCKS) - count
    expected = without(whole, set(BLOCKS) - left)
    x = load_digits().images[:100, ..., None].astype(np.float32)
    np.testing.assert_allclose(result.model.predict(x, verbose=0), expected.predict(x, verbose=0),
                               atol=1e-6)  # fmt: skip
    examples = stage.dataset.validation
    inputs, targets = examples.arrays(np.arange(len(examples)))
    gone: set[str] = set()
    for _ in range(count):
        losses = {
            name: cross_entropy(without(whole, gone | {name}), inputs, targets)
            for name in BLOCKS
            if name not in gone
        }
        gone.add(min(losses, key=lambda name: losses[name]))
    assert left == set(BLOCKS) - gone


def test_attention_and_dense_blocks_of_a_transformer_go_one_by_one(
    paths: dict[str, Path], tmp_path: Path
) -> None:
    result: Any = run(config(blocks=3), context(paths["tokens"], tmp_path))
    kinds = [layer.name for layer in result.model.layers if layer.name[:2] in ("su", "to")]
    assert len(kinds) == 1
    assert result.notes[0].startswith("3 of 5 blocks removed: ")
    assert [len(one.options) for one in result.details.choices] == [5, 4, 3]
    for one in result.details.choices:
        losses = [option.figures["validation_loss"] for option in one.options]
        assert all(a <= b for a, b in itertools.pairwise(losses))
        assert one.value == f"without {one.options[0].value}"


def test_excluded_blocks_stay_and_too_many_are_refused(
    paths: dict[str, Path], tmp_path: Path
) -> None:
    stage = context(paths["residual"], tmp_path)
    result: Any = run(config(blocks=2, exclude=["b_*"]), stage)
    assert {layer.name for layer in result.model.layers} >= {"b_conv", "b_add", "down"}
    with pytest.raises(ModelError, match=r"prune\.blocks is 3, but the model has 2"):
        run(config(blocks=3, exclude=["b_*"]), stage)
    with pytest.raises(RecipeError, match="fits no layer"):
        run(config(blocks=1, exclude=["none_*"]), stage)


def test_the_unpruned_model_teaches_what_is_left(paths: dict[str, Path], tmp_path: Path) -> None:
    result: Any = run(config(blocks=1, epochs=1), context(paths["residual"], tmp_path))
    assert result.training.epochs == 1
    whole = keras.models.load_model(paths["residual"])
    assert not np.array_equal(
        result.model.get_layer("head").get_weights()[0], whole.get_layer("head").get_weights()[0]
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"blocks": None}, "layers needs blocks"),
        ({"blocks": 1, "ratio": 0.5}, "ratio belongs to method channels"),
        ({"blocks": 1, "sparsity": 0.5}, "sparsity belongs to method magnitude"),
        ({"blocks": 1, "teacher": "self"}, "a teacher needs epochs"),
        ({"blocks": 1, "temperature": 2.0}, "need `teacher: self`"),
        ({"method": "channels", "ratio": 0.5, "blocks": 1}, "blocks belongs to method layers"),
    ],
)
def test_keys_of_other_methods_are_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(**keys)
