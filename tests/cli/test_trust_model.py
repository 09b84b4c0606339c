"""`--trust-model` and `--custom-objects`, from the command line to the report."""

from __future__ import annotations

from pathlib import Path

import pytest
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import build_plan
from tests.cli.shell import read_report, shrink, stage
from tests.cli.test_saved_model import exported
from tests.cli.toy import BUILDER, write_toy

DISTILL = """\
name: toy
model: toy.py:build
data: {source: npz, path: toy.npz}
stages:
  - train: {epochs: 1}
  - distill: {teacher: %s, student: toy.py:build, epochs: 2}
"""


def test_evaluate_takes_a_lambda_when_it_is_trusted(tmp_path: Path) -> None:
    write_toy(tmp_path)
    inputs = keras.layers.Input((4,))
    hidden = keras.layers.Lambda(lambda x: x * 2.0)(inputs)
    keras.Model(inputs, keras.layers.Dense(3)(hidden)).save(tmp_path / "lambda.keras")
    words = ("evaluate", "lambda.keras", "--data", "toy.npz", "--output", "out")
    done = shrink(*words, cwd=tmp_path, store=tmp_path / "store", expect=3)
    assert "a Lambda carries code" in done.stderr
    assert "--trust-model" in done.stderr
    shrink(*words, "--trust-model", cwd=tmp_path, store=tmp_path / "store")
    report = read_report(tmp_path / "out")
    assert report["trust_model"] is True
    assert stage(report, "baseline")["metrics"]["accuracy"] is not None
    assert "--trust-model" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_build_plan_finds_custom_objects_beside_the_recipe(tmp_path: Path) -> None:
    recipe = write_toy(tmp_path)
    recipe.write_text(recipe.read_text() + "custom_objects: toy.py\n", encoding="utf-8")
    assert build_plan(load_recipe(recipe)).custom_objects == tmp_path / "toy.py"
    with pytest.raises(ModelError, match="no such file or folder"):
        build_plan(load_recipe(recipe, ["custom_objects=other.py"]))


def test_build_plan_refuses_trust_in_a_recipe(tmp_path: Path) -> None:
    recipe = write_toy(tmp_path)
    recipe.write_text(recipe.read_text() + "trust_model: true\n", encoding="utf-8")
    done = shrink("validate", recipe, cwd=tmp_path, store=tmp_path / "store", expect=2)
    assert "trust_model" in done.stderr


def test_build_plan_takes_a_graph_as_teacher_and_no_artifact(tmp_path: Path) -> None:
    exported(tmp_path)
    recipe = write_toy(tmp_path, DISTILL % "graph")
    plan = build_plan(load_recipe(recipe))
    teacher = plan.step("distill").inputs["teacher"].reference
    assert teacher is not None
    assert teacher.graph_only
    trained = DISTILL.replace("student: toy.py:build", "student: {width: 0.5, inherit: true}")
    with pytest.raises(ModelError, match=r"no student can be cut .* only a graph"):
        build_plan(load_recipe(write_toy(tmp_path, trained % "graph")))
    (tmp_path / "some.tflite").write_bytes(b"TFL3")
    with pytest.raises(ModelError, match="cannot be a teacher"):
        build_plan(load_recipe(write_toy(tmp_path, DISTILL % "some.tflite")))


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["graph", "net.py:build"])
def test_distill_follows_a_graph(teacher: str, tmp_path: Path) -> None:
    exported(tmp_path)
    subclassed = BUILDER + (
        "\n\nclass Net(keras.Model):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = _build()\n\n"
        "    def call(self, x):\n"
        "        return self.inner(x)\n\n\n"
        "_build = build\n\n\n"
        "def build():\n"
        "    model = Net()\n"
        "    model(keras.backend.constant([[0.0, 0.0, 0.0, 0.0]]))\n"
        "    return model\n"
    )
    (tmp_path / "net.py").write_text(subclassed, encoding="utf-8")
    recipe = write_toy(tmp_path, DISTILL % teacher)
    shrink("run", recipe, "--output", "out", cwd=tmp_path, store=tmp_path / "store")
    report = read_report(tmp_path / "out")
    assert "the teacher ran once" in " ".join(stage(report, "distill")["notes"])


@pytest.mark.slow
def test_run_prunes_and_quantizes_around_custom_objects(tmp_path: Path) -> None:
    objects = (
        "import tf_keras as keras\n\n\n"
        "class Doubled(keras.layers.Layer):\n"
        "    def call(self, x):\n"
        "        return x * 2.0\n\n\n"
        "def build():\n"
        "    inputs = keras.layers.Input((4,))\n"
        '    hidden = keras.layers.Dense(16, activation="relu")(inputs)\n'
        '    hidden = keras.layers.Dense(16, activation="relu")(hidden)\n'
        "    return keras.Model(inputs, keras.layers.Dense(3)(Doubled()(hidden)))\n"
    )
    (tmp_path / "objects.py").write_text(objects, encoding="utf-8")
    text = (
        "name: toy\nmodel: objects.py:build\ncustom_objects: objects.py\n"
        "data: {source: npz, path: toy.npz}\nstages:\n  - train: {epochs: 1}\n"
        "  - prune: {method: channels, ratio: 0.5, epochs: 1}\n"
        "  - quantize: {scheme: static_wi8_ai8}\n"
    )
    recipe = write_toy(tmp_path, text)
    shrink("run", recipe, "--output", "out", cwd=tmp_path, store=tmp_path / "store")
    report = read_report(tmp_path / "out")
    assert stage(report, "prune")["delta"]["parameters"]["ratio"] < 1
    words = ("prune", "out/artifacts/01-prune.keras", "--custom-objects", "objects.py")
    shrink(
        *(*words, "--data", "toy.npz", "--method", "channels", "--ratio", "0.25", "--epochs", "0"),
        cwd=tmp_path,
        store=tmp_path / "store",
    )
