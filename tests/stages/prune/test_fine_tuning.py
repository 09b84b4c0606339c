"""Which models have a teacher, and what fine-tuning under it minimizes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.distillation.losses import softened_bernoulli_kl
from shrink.graph.groups import find_groups
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.fine_tuning import fine_tuning, with_teacher
from tests.graph.equivalence import randomise
from tests.jobs import context_of

L = keras.layers


def yes_or_no(width: int) -> keras.Model:
    inputs = L.Input((6,), name="x")
    hidden = L.Dense(width, activation="relu", name="hidden")(inputs)
    model = keras.Model(inputs, L.Dense(1, activation="sigmoid", name="answer")(hidden))
    randomise(model)
    return model


def test_fine_tuning_follows_answers_of_yes_and_no(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 6)).astype(np.float32)
    y = random.integers(0, 2, (40, 1))
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = {"source": "npz", "path": str(tmp_path / "data.npz")}
    task = {"loss": "binary_crossentropy", "metrics": ["binary_accuracy"]}
    context = context_of(tmp_path, kind="prune", data=data, task=task)
    config = PruneConfig.model_validate(
        {"method": "channels", "ratio": 0.5, "epochs": 1, "teacher": "self", "alpha": 0.0}
    )
    teacher, student = yes_or_no(8), yes_or_no(4)
    logits = [
        keras.Model(m.inputs, m.get_layer("hidden").output)(x) @ m.layers[-1].kernel
        + m.layers[-1].bias
        for m in (student, teacher)
    ]
    with fine_tuning(student, find_groups(teacher), config, context) as (learning, objective):
        loss = objective.loss(tf.constant(y), learning(x), objective.targets(x))
    own, other = logits
    wanted = softened_bernoulli_kl(own, other, 4.0)
    assert np.min(wanted) >= 0 < np.max(wanted)
    np.testing.assert_allclose(loss, np.reshape(wanted, -1), rtol=1e-4, atol=1e-6)


CLASSES, NUMBERS = "sparse_categorical_crossentropy", "mean_squared_error"


@pytest.mark.parametrize(
    "settings", [{"method": "layers", "blocks": 1}, {"method": "channels", "macs": 0.5}]
)
@pytest.mark.parametrize(
    ("losses", "teacher", "why"),
    [
        ((CLASSES, CLASSES), "self", "has softened outputs"),
        ((NUMBERS,), None, f"the loss is {NUMBERS}"),
        ((CLASSES, NUMBERS), None, f"the loss is {CLASSES}, {NUMBERS}"),
    ],
)
def test_only_classes_of_one_kind_have_a_teacher_by_default(
    settings: dict[str, Any], losses: tuple[str, ...], teacher: str | None, why: str
) -> None:
    task: Any = SimpleNamespace(detector=None, losses=losses)
    config, (choice,) = with_teacher(PruneConfig.model_validate(settings), task)
    assert (config.teacher, choice.value) == (teacher, teacher or "none")
    assert why in choice.why
    by_hand = PruneConfig.model_validate({**settings, "teacher": None})
    assert with_teacher(by_hand, task) == (by_hand, ())


def test_a_teacher_of_numbers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(tmp_path, kind="prune", data={"source": "digits"})
    monkeypatch.setattr(context, "task", lambda _: SimpleNamespace(detector=None, loss=NUMBERS))
    config = PruneConfig(method="channels", ratio=0.5, teacher="self")
    model = yes_or_no(4)
    refused = pytest.raises(StageError, match="softened outputs are for classification")
    with refused, fine_tuning(model, find_groups(model), config, context):
        pass
