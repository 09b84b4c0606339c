"""Students that attend to what their teacher attends to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.graph.groups import find_groups
from shrink.stages.distill.teaching import scores_of
from tests.stages.distill.toy import CLASSES, distilled

L = keras.layers
ROWS, WIDTH = 5, 6


def attending(heads: int, rows: int = ROWS) -> keras.Model:
    inputs = keras.Input((rows, WIDTH))
    x = L.Add()([inputs, L.MultiHeadAttention(heads, 3, name="looks")(inputs, inputs)])
    return keras.Model(inputs, L.Dense(CLASSES, name="end")(L.GlobalAveragePooling1D()(x)))


def examples(count: int = 90) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, ROWS, WIDTH)).astype(np.float32)


def scores(model: keras.Model, x: np.ndarray) -> np.ndarray:
    (found,) = scores_of(model, ["looks"], "teacher")
    return np.asarray(keras.Model(model.inputs, found)(x))


def test_scores_of_is_the_mean_softmax_of_the_heads() -> None:
    keras.utils.set_random_seed(0)
    model, x = attending(2), examples(4)
    layer = model.get_layer("looks")
    q, qb, k, kb = (w.astype(np.float64) for w in layer.get_weights()[:4])
    query = np.einsum("nrw,whd->nhrd", x, q) + qb[None, :, None]
    key = np.einsum("nrw,whd->nhrd", x, k) + kb[None, :, None]
    products = np.exp(np.einsum("nhrd,nhsd->nhrs", query, key) / np.sqrt(3))
    expected = (products / products.sum(axis=-1, keepdims=True)).mean(axis=1)
    np.testing.assert_allclose(scores(model, x), expected, rtol=1e-4)


def test_scores_of_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model, x = attending(2), examples(4)
    before = model(x)
    scores(model, x)
    assert [len(group) for group in find_groups(model).groups] == [2]
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras")(x), before)


@pytest.mark.parametrize(
    ("name", "message"), [("end", "is another layer"), ("nowhere", "is none of the model")]
)
def test_scores_of_refuses_what_is_no_attention(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as told:
        scores_of(attending(2), [name], "student")
    assert "looks" in str(told.value.hint)


@pytest.mark.slow
def test_run_brings_the_students_attention_near_the_teachers(tmp_path: Path) -> None:
    keras.utils.set_random_seed(3)
    x = examples()
    np.savez(tmp_path / "rows.npz", x=x, y=np.arange(len(x)) % CLASSES)
    teacher, student = attending(4), attending(1)
    teacher.get_layer("looks").set_weights(
        [4 * w for w in teacher.get_layer("looks").get_weights()]
    )
    teacher.save(tmp_path / "sees.keras")
    student.save(tmp_path / "small.keras")
    wanted = scores(teacher, x)
    config = {"feature_layers": {"looks": "looks"}, "feature_loss": "attention_scores"}
    apart = []
    for settings in ({}, {**config, "feature_weight": 20.0}):
        result = distilled(
            tmp_path, tmp_path / "work", {"epochs": 20, **settings},
            teachers=("sees",), student="small", data="rows",
        )  # fmt: skip
        apart.append(np.abs(scores(result.model, x) - wanted).mean())
    assert apart[1] < 0.8 * apart[0]
