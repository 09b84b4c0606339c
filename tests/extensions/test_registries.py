"""A scheme, an importance, losses and a metric, each from entries in registries.

The entries are in a module outside of shrink, which registers them when it is imported: what it
touches is what CONTRIBUTING.md says.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from pydantic import ValidationError

from shrink.base.losses import LOSSES as TASK_LOSSES
from shrink.base.metrics import METRICS
from shrink.distillation.losses import SOFT_LOSSES
from shrink.engine.objective import SupervisedObjective
from shrink.pruning.importance import IMPORTANCES
from shrink.stages.distill.config import LOSSES, DistillConfig
from shrink.stages.distill.objective import DistillationObjective, TeacherOutputs
from shrink.stages.distill.run import distillation_loss_of
from shrink.stages.prune import run as prune
from shrink.stages.prune.config import IMPORTANCES as IMPORTANCE_NAMES
from shrink.stages.prune.config import PruneConfig
from shrink.stages.quantize import run as quantize
from shrink.stages.quantize.config import SCHEME_TRAITS, QuantizeConfig
from shrink.stages.quantize.schemes import SCHEMES
from shrink.task.config import TaskConfig
from shrink.task.losses import loss_sums
from shrink.task.means import sums
from shrink.tflite.interpreter import load
from tests.jobs import context_of

ADDED = '''
import numpy as np
import tensorflow as tf

from shrink.base.arguments import Argument
from shrink.base.losses import loss
from shrink.base.metrics import METRICS
from shrink.base.scores.info import REAL, UNIT, MetricInfo
from shrink.distillation.losses import SOFT_LOSSES
from shrink.pruning.importance import IMPORTANCES
from shrink.stages.distill.config import LOSSES
from shrink.stages.prune.config import IMPORTANCES as IMPORTANCE_NAMES
from shrink.stages.quantize.config import SCHEME_TRAITS, SchemeTraits
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.convert import Conversion


def position(group, evidence):
    """Score channels by their place: the later ones go first."""
    return -np.arange(len(group), dtype=np.float64)


def cosine(case):
    """Return 1 - the cosine of the logits."""
    return 1 + tf.keras.losses.cosine_similarity(case.teacher, case.student)


def as_it_is(source, calibration, config):
    return Conversion(source.float32.content, ("converted, and nothing else",))


def within(output):
    """Score 1 for numbers that are at most so far from their targets."""
    return (abs(output.outputs - output.values) <= output.number("tolerance")).astype(float)


@loss("values", Argument("factor", 1.0))
def fourth(xp, y, x, factor):
    """Return the fourth power of errors."""
    return factor * (x - y) ** 4


METRICS["within"] = MetricInfo(
    True, REAL, "fraction", UNIT, (Argument("tolerance", 1.0),), elements=within
)
IMPORTANCES["position"] = position
IMPORTANCE_NAMES.append("position")
SOFT_LOSSES["cosine"] = cosine
LOSSES.append("cosine")
SCHEMES["as_it_is"] = as_it_is
SCHEME_TRAITS["as_it_is"] = SchemeTraits(calibrates=False, is_integer=False)
'''
L = keras.layers
RANDOM = np.random.default_rng(0)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import the module, and forget what it has registered afterwards."""
    (tmp_path / "added_outside.py").write_text(ADDED)
    monkeypatch.syspath_prepend(tmp_path)
    registries: list[Any] = [IMPORTANCES, SOFT_LOSSES, SCHEMES, SCHEME_TRAITS]
    registries += [METRICS, TASK_LOSSES]
    registries += [IMPORTANCE_NAMES, LOSSES]
    before = [registry.copy() for registry in registries]
    importlib.import_module("added_outside")
    yield
    del sys.modules["added_outside"]
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        (registry.update if isinstance(registry, dict) else registry.extend)(entries)


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    inputs = L.Input((8, 8, 1), name="picture")
    hidden = L.Dense(12, activation="relu", name="hidden")(L.Flatten()(inputs))
    model = keras.Model(inputs, L.Dense(10, activation="softmax", name="classes")(hidden))
    path = tmp_path / "model.keras"
    model.save(path)
    return path


def test_an_importance_decides_which_channels_go(
    added: None, model_path: Path, tmp_path: Path
) -> None:
    config = PruneConfig(method="channels", ratio=0.25, importance="position", epochs=0)
    context = context_of(tmp_path, kind="prune", inputs={"model": model_path})
    pruned = prune.run(config, context).model
    whole = keras.models.load_model(model_path, compile=False)
    kernel, bias = whole.get_layer("hidden").get_weights()
    after = whole.get_layer("classes").get_weights()
    assert pruned is not None
    for found, wanted in zip(
        pruned.get_weights(), (kernel[:, :9], bias[:9], after[0][:9], after[1]), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_a_distillation_loss_is_what_a_student_is_trained_on(added: None) -> None:
    config = DistillConfig(loss="cosine", alpha=0.25)
    loss = "sparse_categorical_crossentropy"
    student, teacher = RANDOM.normal(size=(2, 6, 4))
    hard = SupervisedObjective(loss, from_logits=True)
    objective = DistillationObjective(None, hard, distillation_loss_of(config, (loss,), "distill"))
    labels = tf.constant(RANDOM.integers(0, 4, 6))
    found = objective.loss(labels, tf.constant(student), TeacherOutputs((tf.constant(teacher),)))
    lengths = np.linalg.norm(student, axis=1) * np.linalg.norm(teacher, axis=1)
    soft = 1 - (student * teacher).sum(axis=1) / lengths
    exact = np.log(np.exp(student).sum(axis=1)) - student[np.arange(6), labels]
    np.testing.assert_allclose(found, 0.25 * exact + 0.75 * soft, rtol=1e-6)


def test_a_loss_and_a_metric_are_trained_on_and_measured(added: None) -> None:
    config = TaskConfig.model_validate(
        {"loss": {"name": "fourth", "factor": 2}, "metrics": [{"name": "within", "tolerance": 0.5}]}
    )
    assert (config.loss, config.metrics) == ("fourth(factor=2)", ("within_0.5",))
    outputs, targets = RANDOM.normal(size=(2, 9, 3))
    errors = np.abs(outputs - targets)
    objective = SupervisedObjective("fourth(factor=2)", from_logits=False)
    trained = objective.loss(tf.constant(targets), tf.constant(outputs), None)
    np.testing.assert_allclose(trained, 2 * (errors**4).mean(axis=1), rtol=1e-6)
    measured = loss_sums(outputs, targets, "fourth(factor=2)", from_logits=False)
    np.testing.assert_allclose(measured.values / measured.valid, trained, rtol=1e-6)
    scored = sums(outputs, targets, "within_0.5", from_logits=False)
    np.testing.assert_allclose(scored.values / scored.valid, (errors <= 0.5).mean(axis=1))


def test_a_scheme_makes_the_artifact(added: None, model_path: Path, tmp_path: Path) -> None:
    config = QuantizeConfig(scheme="as_it_is")
    assert (config.needs_examples, config.artifact_input_type) == (None, "float32")
    context = context_of(
        tmp_path, kind="quantize", inputs={"model": model_path}, data={"source": "none"}
    )
    result = quantize.run(config, context)
    assert "converted, and nothing else" in result.notes
    x = RANDOM.uniform(size=(5, 8, 8, 1)).astype(np.float32)
    model = keras.models.load_model(model_path, compile=False)
    assert result.tflite is not None
    np.testing.assert_allclose(load(result.tflite).predict(x)[0], model(x), atol=1e-6)


@pytest.mark.parametrize(
    ("section", "name"), [(PruneConfig, "importance"), (DistillConfig, "loss")]
)
def test_names_that_nobody_registered_are_refused_with_those_that_are(
    added: None, section: type[PruneConfig] | type[DistillConfig], name: str
) -> None:
    with pytest.raises(ValidationError, match=r"'(position|cosine)'"):
        section.model_validate({"method": "channels", name: "nobody"})
