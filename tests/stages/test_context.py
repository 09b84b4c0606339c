"""What a stage is given does not depend on the stage's own settings where it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras
from PIL import Image
from scipy.special import log_softmax

from shrink.base.packages import versions
from shrink.contract.model_source import Trust
from shrink.model.user_modules import imported
from shrink.stages.context import StageContext
from shrink.stages.distill import teaching
from shrink.stages.distill.config import DistillConfig
from shrink.stages.distill.teacher_cache import cache_key
from shrink.stages.prune import choice as sensitivity
from shrink.stages.prune.config import PruneConfig
from tests.jobs import context_of, source


def context(tmp_path: Path, **training: Any) -> StageContext:
    return context_of(tmp_path, training=training)


def test_dataset_is_split_alike_whatever_the_stages_own_seed(tmp_path: Path) -> None:
    one, other = context(tmp_path).dataset, context(tmp_path, seed=7).dataset
    everything = np.arange(len(one.test))
    np.testing.assert_array_equal(one.test.arrays(everything)[0], other.test.arrays(everything)[0])


def test_a_main_metric_that_batches_do_not_give_is_measured_after_each_epoch(
    tmp_path: Path,
) -> None:
    layers = [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
    keras.Sequential(layers).save(tmp_path / "model.keras")
    training = context_of(
        tmp_path, inputs={"model": tmp_path / "model.keras"}, task={"metrics": ["log_loss"]}
    )
    model = training.load()
    record = training.train(model, training.task(model).objective(), 2)
    examples = training.dataset.validation
    x, labels = examples.arrays(np.arange(len(examples)))
    logs = log_softmax(np.float64(model(x)), axis=1)
    expected = -logs[np.arange(len(labels)), labels].mean()
    assert len(record.history["val_log_loss"]) == 2
    assert record.history["val_log_loss"][-1] == pytest.approx(expected)


def remembered(tmp_path: Path, task_model: Path | None = None, **data: Any) -> list[dict[str, Any]]:
    """Return what two stages keep between runs is known by: a teacher's outputs, sensitivities."""
    model = source(tmp_path / "model.keras", trust=Trust(tmp_path / "layers.py"))
    inputs = {"model": model, "teacher": model}
    data = {"source": "digits", **data}
    known = context_of(tmp_path, kind="distill", inputs=inputs, data=data, task_model=task_model)
    x, ones = keras.Input((3,), name="x"), keras.initializers.Ones()
    dense = keras.layers.Dense(2, kernel_initializer=ones, name="dense")
    model = keras.Model(x, dense(x), name="model")
    prune = PruneConfig(method="channels", ratio=0.5)
    return [
        teaching._identity([model], DistillConfig(), ["mean_squared_error"], known),
        sensitivity._identity(model, prune, known),
    ]


def code(tmp_path: Path, factor: float) -> None:
    (tmp_path / "layers.py").write_text(
        "from pathlib import Path\n"
        "FACTOR = (Path(__file__).parent / 'factor.txt').read_text()\nclass Scaled: ...\n"
    )
    (tmp_path / "factor.txt").write_text(str(factor))
    imported(tmp_path / "layers.py")


def test_what_is_remembered_of_a_model_depends_on_the_code_of_its_layers(tmp_path: Path) -> None:
    code(tmp_path, 1.0)
    before = remembered(tmp_path)
    assert [cache_key(one) for one in remembered(tmp_path)] == [cache_key(one) for one in before]
    code(tmp_path, 0.05)
    for one, other in zip(before, remembered(tmp_path), strict=True):
        assert cache_key(one) != cache_key(other)


def test_what_is_remembered_of_a_model_holds_every_version(tmp_path: Path) -> None:
    code(tmp_path, 1.0)
    assert [one["versions"] for one in remembered(tmp_path)] == [versions(), versions()]


def test_what_is_remembered_of_a_model_does_not_depend_on_where_examples_are_kept(
    tmp_path: Path,
) -> None:
    code(tmp_path, 1.0)
    assert remembered(tmp_path, cache="memory") == remembered(tmp_path)
    assert remembered(tmp_path, test_split=0.3) != remembered(tmp_path)


def test_what_is_remembered_of_a_models_groups_depends_on_the_loss_it_was_compiled_with(
    tmp_path: Path,
) -> None:
    """Weights and layers are alike, and what a channel costs is not."""
    code(tmp_path, 1.0)
    found = []
    for loss in ("mean_squared_error", "mean_absolute_error"):
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", loss)
        model.save(path := tmp_path / f"{loss}.keras")
        found.append(cache_key(remembered(tmp_path, path)[1]))
    assert found[0] != found[1]


def test_what_is_remembered_holds_the_shape_that_images_are_brought_to(tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / "pictures" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(folder / f"{number}.png")
    code(tmp_path, 1.0)
    found = []
    for side in (4, 8):
        keras.Sequential([keras.layers.Input((side, side, 1))]).save(tmp_path / "model.keras")
        (teacher, _) = remembered(tmp_path, source="images", path=str(tmp_path / "pictures"))
        found.append(cache_key(teacher))
    assert found[0] != found[1]
