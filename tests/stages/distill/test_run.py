"""The stage as a whole on toy models: cached and live teachers, features, other tasks."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, StageError
from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.stages.context import StageContext
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.objective import (
    DistillationLoss,
    DistillationObjective,
    ensemble,
    hard_loss,
    open_outputs,
    teacher_outputs_of,
)
from shrink.stages.distill.run import distillation_loss_of
from shrink.task.task import Task
from tests.stages.distill.toy import CLASSES, distilled, mlp, write_toys

L = keras.layers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("distill")
    write_toys(root)
    return root


def difference(one: Any, other: Any) -> float:
    pairs = zip(one.model.get_weights(), other.model.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def test_run_gives_the_same_student_from_a_cached_softmax_and_from_live_logits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = {"micro_batch_size": 4}
    live = distilled(folder, tmp_path, {"teacher_cache": "off"}, training=training)
    watched = WatchedLoad()
    monkeypatch.setattr(StageContext, "load", watched)
    monkeypatch.setattr(StageContext, "train", watched.train)
    cached = distilled(folder, tmp_path, {}, teachers=("softmax",), training=training)
    assert difference(live, cached) <= 1e-6
    assert cached.details.teacher_cache.asked is True


HEADS: dict[str, Callable[[Any, str], Any]] = {
    "operation": lambda x, name: tf.nn.softmax(L.Dense(CLASSES, name=name)(x)),
    "function": lambda x, name: L.Dense(CLASSES, activation=tf.nn.softmax, name=name)(x),
    "reshape": lambda x, name: L.Reshape((CLASSES,))(
        L.Dense(CLASSES, activation="softmax", name=name)(x)
    ),
    "average": lambda x, name: L.Average()(
        [p := L.Dense(CLASSES, activation="softmax", name=name)(x), p]
    ),
}
"""The same probabilities, come by in other ways than a last layer's activation."""


def with_head(name: str, like: keras.Model) -> keras.Model:
    inputs = keras.Input((6,))
    units = like.layers[1].units
    hidden = L.Dense(units, activation="relu", name="hidden")(inputs)
    model = keras.Model(inputs, HEADS[name](hidden, "end"))
    model.set_weights(like.get_weights())
    return model


@pytest.mark.parametrize(
    ("teacher", "student"),
    [
        ("average", "reshape"),
        pytest.param("reshape", "operation", marks=pytest.mark.slow),
        pytest.param("function", "average", marks=pytest.mark.slow),
    ],
)
def test_run_gives_the_same_student_whatever_the_softmax_is_written_as(
    teacher: str, student: str, folder: Path, tmp_path: Path
) -> None:
    like = {name: keras.models.load_model(folder / f"{name}.keras", compile=False)
            for name in ("logits", "student")}  # fmt: skip
    with_head(teacher, like["logits"]).save(folder / f"of_{teacher}.keras")
    with_head(student, like["student"]).save(folder / f"small_{student}.keras")
    config = {"teacher_cache": "off", "alpha": 0.0, "temperature": 2.0}
    expected = distilled(folder, tmp_path, config)
    found = distilled(
        folder, tmp_path, config, teachers=(f"of_{teacher}",), student=f"small_{student}"
    )
    assert difference(expected, found) <= 1e-5
    logarithms = [note for note in found.notes if "logarithm" in note]
    assert len(logarithms) == sum(name in ("average", "reshape") for name in (teacher, student))
    losses = [r.training.history["loss"] for r in (expected, found)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_soft_loss_of_probabilities_is_that_of_their_logits(folder: Path) -> None:
    models = [
        keras.models.load_model(folder / f"{n}.keras", compile=False) for n in ("logits", "student")
    ]
    x = np.random.default_rng(3).normal(size=(9, 6)).astype(np.float32)
    t, s = (model(x).numpy().astype(np.float64) / 2.0 for model in models)
    p, q = (np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (t, s))
    expected = 2.0**2 * (p * (np.log(p) - np.log(q))).sum(1)
    task = Task(("sparse_categorical_crossentropy",), (), "loss", (False,), (), (1.0,))
    opened = [
        open_outputs(with_head(head, model), task.losses, task.from_logits)
        for head, model in zip(("reshape", "average"), models, strict=True)
    ]
    with opened[0] as teacher, opened[1] as student:
        objective = DistillationObjective(
            teacher_outputs_of(teacher),
            hard_loss(task),
            DistillationLoss(temperature=2.0, alpha=0.0),
        )
        step = tf.function(lambda x, y: objective.loss(y, student(x), objective.targets(x)))
        found = step(x, np.zeros(9, np.int64))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


class WatchedLoad:
    """`StageContext.load` that knows the teachers, and a `train` that wants them gone."""

    def __init__(self) -> None:
        self.teachers: list[weakref.ref[Any]] = []
        self._load, self._train = StageContext.load, StageContext.train

    def __get__(self, context: StageContext, owner: type) -> Any:
        def load(role: str = "model") -> Any:
            model = self._load(context, role)
            if role == "teacher":
                self.teachers.append(weakref.ref(model.layers[1].kernel))
            return model

        return load

    @property
    def train(self) -> Any:
        def train(context: StageContext, *args: Any, **kwargs: Any) -> Any:
            gc.collect()
            assert [ref() for ref in self.teachers] == [None]
            return self._train(context, *args, **kwargs)

        return train


def test_run_throws_projections_of_features_away(folder: Path, tmp_path: Path) -> None:
    config = {"loss": "decoupled", "feature_layers": {"hidden": "hidden"}, "control": True}
    result = distilled(folder, tmp_path, config)
    assert result.model.count_params() == 6 * 4 + 4 + 4 * 4 + 4
    assert all(np.isfinite(loss) for loss in result.training.history["loss"])
    control = result.details.control
    assert control.alone != control.taught
    gain = control.gain["accuracy"]
    assert gain.value == pytest.approx(control.taught["accuracy"] - control.alone["accuracy"])
    assert gain.low <= gain.value <= gain.high
    assert any(note.startswith("control: after 8 updates") for note in result.notes)


def test_run_trains_the_control_for_as_many_updates_when_the_student_stops_early(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[Any] = []
    train = StageContext.train

    def watched(*args: Any, **kwargs: Any) -> Any:
        records.append(train(*args, **kwargs))
        return records[-1]

    monkeypatch.setattr(StageContext, "train", watched)
    optimizer = {"name": "sgd", "learning_rate": 1e-9}  # no epoch is better than the first
    training = {"patience": 2, "optimizer": optimizer}
    distilled(folder, tmp_path, {"epochs": 9, "control": True}, training=training)
    taught, alone = records
    assert taught.epochs < 9
    assert (alone.epochs, alone.updates) == (taught.epochs, taught.updates)


def test_run_follows_outputs_when_targets_are_real(folder: Path, tmp_path: Path) -> None:
    result = distilled(
        folder,
        tmp_path,
        {"alpha": 0.0, "epochs": 8},
        teachers=("values",),
        student="small_values",
        data="values",
    )
    history = result.training.history["loss"]
    assert history[-1] < 0.8 * history[0]


def test_the_control_is_measured_by_what_needs_no_slices(folder: Path, tmp_path: Path) -> None:
    with np.load(folder / "values.npz") as arrays:
        condition = np.where(np.arange(len(arrays["x"])) % 3, "good", "bad")
        np.savez(tmp_path / "sliced.npz", x=arrays["x"], y=arrays["y"], condition=condition)
    named = {"path": str(tmp_path / "sliced.npz"), "slices": [{"column": "condition"}]}
    result = distilled(
        folder,
        tmp_path,
        {"epochs": 1, "control": True},
        teachers=("values",),
        student="small_values",
        named=named,
        task={"metrics": ["anomaly_roc_auc_good", "mean_squared_error"]},
    )
    test = open_dataset(DataConfig.model_validate({"source": "npz", **named}), seed=0).test
    x, y = test.arrays(np.arange(len(test)))
    teacher = keras.models.load_model(folder / "values.keras")
    error = np.square(teacher.predict(x, verbose=0) - y).mean()
    found = result.details.control.teacher
    assert found == {"loss": pytest.approx(error), "mean_squared_error": pytest.approx(error)}


def of_images(
    folder: Path, work: Path, config: dict[str, Any], named: dict[str, Any] | None = None
) -> Any:
    return distilled(
        folder, work, config, teachers=("sees",), student="small_sees", data="pictures", named=named
    )


@pytest.mark.slow
def test_run_follows_where_the_teacher_looks(folder: Path, tmp_path: Path) -> None:
    config = {"feature_layers": {"hidden": "hidden"}, "feature_loss": "attention"}
    cached = of_images(folder, tmp_path, {**config, "teacher_cache": "on"})
    live = of_images(folder, tmp_path, {**config, "teacher_cache": "off"})
    assert difference(cached, live) <= 1e-6
    assert difference(cached, of_images(folder, tmp_path, {})) > 1e-4


@pytest.mark.slow
def test_run_follows_the_mean_of_several_teachers(folder: Path, tmp_path: Path) -> None:
    one = distilled(folder, tmp_path, {})
    same = distilled(folder, tmp_path, {}, teachers=("logits", "softmax", "logits"))
    assert difference(one, same) <= 1e-6
    others = distilled(folder, tmp_path, {}, teachers=("logits", "student"))
    assert difference(one, others) > 1e-4


@pytest.mark.slow
def test_run_says_that_relations_within_micro_batches_are_not_exact(
    folder: Path, tmp_path: Path
) -> None:
    config = {"feature_layers": {"hidden": "hidden"}, "feature_loss": "relational"}
    result = distilled(folder, tmp_path, config, training={"micro_batch_size": 4})
    assert result.training.exact is False
    assert "relational" in result.training.inexact_because[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {"loss": "logit_mse"},
        {"feature_layers": {"hidden": "hidden"}, "feature_loss": "relational"},
        {"cache_dtype": "float16", "teacher_cache": "on"},
        {"temperature": 2.0, "alpha": 0.5},
    ],
    ids=str,
)
def test_run_changes_the_student_differently_under(
    folder: Path, tmp_path: Path, config: dict[str, Any]
) -> None:
    plain, other = distilled(folder, tmp_path, {}), distilled(folder, tmp_path, config)
    assert 0 < difference(plain, other) < 1
    assert all(np.isfinite(loss) for loss in other.training.history["loss"])


def test_run_refuses_a_student_with_other_outputs(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"\(4,\), the student \(2,\)"):
        distilled(folder, tmp_path, {"teacher_cache": "off"}, student="small_values")


def test_guidance_of_refuses_losses_of_classes_when_targets_are_real() -> None:
    config = DistillConfig.model_validate({"loss": "kl"})
    with pytest.raises(StageError, match="kl is for classes"):
        distillation_loss_of(config, ["mean_squared_error"], "distill")


def test_guidance_of_gives_each_output_a_loss_of_its_kind() -> None:
    losses = ["mean_squared_error", "binary_crossentropy", "sparse_categorical_crossentropy"]
    automatic = distillation_loss_of(DistillConfig(), losses, "distill")
    assert automatic.loss == ("output_mse", "bernoulli_kl", "kl")
    named = distillation_loss_of(DistillConfig(loss="logit_mse"), losses, "distill")
    assert named.loss == ("output_mse", "logit_mse", "logit_mse")


def test_run_guides_outputs_of_different_kinds(folder: Path, tmp_path: Path) -> None:
    loss = {"kind": "sparse_categorical_crossentropy", "angle": "mean_squared_error"}
    task: dict[str, Any] = {"loss": loss}
    named = {"targets": ["kind", "angle"], "inputs": ["x"]}

    def distill(student: str, cache: str, **settings: Any) -> Any:
        config = {"teacher_cache": cache, **settings}
        return distilled(
            folder, tmp_path, config, teachers=("two",), student=student, data="two", named=named,
            task=task,
        )  # fmt: skip

    assert difference(distill("small_two", "on"), distill("small_two", "off")) <= 1e-6
    # A student that is its teacher has nothing to learn from it.
    taught = distill("two", "on", alpha=0.0)
    assert taught.training.history["loss"] == pytest.approx([0, 0], abs=1e-6)


def test_ensemble_gives_the_mean_of_logits() -> None:
    models = [mlp(3, None), mlp(5, None)]
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    mean = ensemble([teacher_outputs_of(model) for model in models])(x).outputs[0]
    np.testing.assert_allclose(mean, sum(m(x).numpy() for m in models) / 2, rtol=1e-5)


@pytest.mark.slow
def test_run_gives_the_same_student_on_any_replicas_and_micro_batches(
    folder: Path, tmp_path: Path
) -> None:
    weights = []
    for replicas, micro in ((1, 16), (2, 4), (2, 2), (4, 2), (4, 1)):
        path = tmp_path / f"{replicas}-{micro}.npz"
        module = ["-m", "tests.stages.distill.toy", str(folder), str(replicas), str(micro)]
        subprocess.run([sys.executable, *module, str(path)], check=True, capture_output=True)
        with np.load(path) as found:
            weights.append([found[name] for name in found.files])
    for other in weights[1:]:
        for one, two in zip(weights[0], other, strict=True):
            np.testing.assert_allclose(two, one, atol=1e-5)
