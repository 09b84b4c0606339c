"""Detectors under a teacher: the stage distill, and prune with the unpruned model as teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.losses import DETECTION
from shrink.graph.groups import find_groups
from shrink.stages.context import StageContext
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.run import distillation_loss_of
from shrink.stages.distill.run import run as distill
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.fine_tuning import fine_tuning
from shrink.stages.prune.run import run as prune
from tests.jobs import context_of
from tests.scenes import BOXES

L = keras.layers
TASK = {
    "decode": {"name": "yolo", "strides": [16, 32], "anchors": [[[14, 20]], [[28, 36]]]},
    "metrics": [],
}
SGD = {"name": "sgd", "learning_rate": 0.01}


def two_levels(width: int) -> keras.Model:
    """Return a detector with a concatenation, and heads of 15 columns at strides 16 and 32."""
    inputs = keras.Input((96, 96, 1), name="image")
    x = L.Rescaling(1 / 255)(inputs)
    x = L.Conv2D(width, 3, strides=4, padding="same", activation="relu", name="a")(x)
    fine = L.Conv2D(width, 3, strides=4, padding="same", activation="relu", name="b")(x)
    coarse = L.Conv2D(width, 3, strides=2, padding="same", activation="relu", name="c")(fine)
    joined = L.Concatenate(name="join")([fine, L.UpSampling2D(2)(coarse)])
    outputs = [L.Conv2D(15, 1, name="fine")(joined), L.Conv2D(15, 1, name="coarse")(coarse)]
    return keras.Model(inputs, outputs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("detectors")
    keras.utils.set_random_seed(3)
    two_levels(12).save(root / "teacher.keras")
    two_levels(4).save(root / "student.keras")
    return root


def context(folder: Path, work: Path, kind: str, micro_batch_size: int = 25) -> StageContext:
    roles = (
        {"model": "student", "teacher": "teacher"} if kind == "distill" else {"model": "teacher"}
    )
    keras.utils.set_random_seed(0)
    return context_of(
        work,
        kind=kind,
        inputs={role: folder / f"{name}.keras" for role, name in roles.items()},
        data=BOXES,
        training={
            "global_batch_size": 25,
            "micro_batch_size": micro_batch_size,
            "optimizer": SGD,
            "restore_best": False,
        },
        task=TASK,
    )


def taught(folder: Path, work: Path, micro_batch_size: int = 25, **settings: Any) -> Any:
    config = DistillConfig.model_validate({"epochs": 2, **settings})
    return distill(config, context(folder, work, "distill", micro_batch_size))


@pytest.mark.slow
def test_student_is_the_same_from_cached_outputs_and_from_any_micro_batches(
    folder: Path, tmp_path: Path
) -> None:
    live = taught(folder, tmp_path, 10, teacher_cache="off")
    cached = taught(folder, tmp_path, teacher_cache="on")
    assert (cached.details.teacher_cache.asked, live.training.exact) == (True, True)
    for one, other in zip(live.model.get_weights(), cached.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    raw = taught(folder, tmp_path, loss="output_mse", alpha=0.0)
    losses = [one.training.history["loss"][0] for one in (cached, raw)]
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_pruned_detector_learns_from_the_unpruned_one_through_its_concatenation(
    folder: Path, tmp_path: Path
) -> None:
    config = {
        **{"method": "channels", "macs": 0.6, "importance": "l2", "allocation": "uniform"},
        **{"epochs": 1, "teacher": "self", "alpha": 0.0},
    }
    pruned: Any = prune(PruneConfig.model_validate(config), context(folder, tmp_path, "prune"))
    assert [tuple(one.shape[1:]) for one in pruned.model.outputs] == [(6, 6, 15), (3, 3, 15)]
    assert pruned.model.count_params() < two_levels(12).count_params()
    assert np.isfinite(pruned.training.history["loss"]).all()
    (choice,) = (one for one in pruned.details.choices if one.key == "temperature")
    assert choice.value == "1"
    assert choice.sentence in pruned.notes


@pytest.mark.parametrize(
    ("losses", "temperature"),
    [([DETECTION, DETECTION], 1.0), (["sparse_categorical_crossentropy"], 4.0)],
)
def test_students_of_detectors_follow_them_unsoftened(
    losses: list[str], temperature: float
) -> None:
    assert distillation_loss_of(DistillConfig(), losses, "distill").temperature == temperature
    named = DistillConfig.model_validate({"temperature": 3.0})
    assert distillation_loss_of(named, losses, "distill").temperature == 3.0


@pytest.mark.parametrize(("settings", "temperature"), [({}, 1.0), ({"temperature": 4}, 4.0)])
def test_pruned_detector_follows_the_unpruned_one_unsoftened(
    settings: dict[str, Any], temperature: float, folder: Path, tmp_path: Path
) -> None:
    config = PruneConfig.model_validate(
        {"method": "channels", "ratio": 0.5, "teacher": "self", "alpha": 0.0, **settings}
    )
    around = context(folder, tmp_path, "prune")
    student = keras.models.load_model(folder / "student.keras", compile=False)
    teacher = keras.models.load_model(folder / "teacher.keras", compile=False)
    for head in ("fine", "coarse"):  # logits of some size: near 0 all temperatures are alike
        teacher.get_layer(head).kernel.assign(40 * teacher.get_layer(head).kernel)
    x, y = around.dataset.train.arrays(np.arange(3))
    x = tf.cast(x, tf.float32)
    with fine_tuning(student, find_groups(teacher), config, around) as (learning, objective):
        loss = objective.loss(tf.constant(y), learning(x), objective.targets(x))
    decoder: Any = around.task(student).detector
    wanted, other = (decoder.teacher_losses(student(x), teacher(x), t) for t in (temperature, 2.5))
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    assert not np.allclose(loss, other, rtol=1e-3)
