"""Evaluation of a detector's artifact: a model that gives as output what it is fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.bootstrap import Resampled
from shrink.base.errors import DataError, RecipeError, StageError
from shrink.data.arrays import ArrayExamples
from shrink.data.boxes import box_rows, padded
from shrink.data.dataset import Dataset
from shrink.data.slices import divided
from shrink.task.artifact import evaluate_artifact
from shrink.task.config import TaskConfig
from shrink.task.evaluation import Evaluation
from shrink.task.interface import keras_interface
from shrink.task.resolve import resolve_task
from shrink.tflite.convert import convert
from tests.oracle.detection import of_boxes_head

RANDOM = np.random.default_rng(2)
PICTURES, CANDIDATES, CLASSES = 40, 24, ("cat", "dog")
DECODE = {"name": "boxes"}
OWL = {"name": "map", "class": "owl"}


def scenes() -> tuple[np.ndarray, np.ndarray]:
    """Return candidates as pictures (n, a, 6, 1), and the boxes that they are near to."""
    pictures = np.zeros((PICTURES, CANDIDATES, 6, 1), np.float32)
    boxes = []
    for picture in pictures:
        corner = RANDOM.uniform(0, 90, (RANDOM.integers(0, 4), 2))
        edges = np.hstack([corner, corner + RANDOM.uniform(8, 60, corner.shape)])
        labels = RANDOM.integers(0, 2, len(edges))
        boxes.append(box_rows(edges, labels))
        for row in picture[..., 0]:
            near = edges[RANDOM.integers(len(edges))] if len(edges) else np.array([1, 1, 9, 9])
            row[:4] = near + RANDOM.normal(0, 3, 4)
            row[4:] = np.round(RANDOM.random(2), 2)
    return pictures, padded(boxes)


PICTURE, BOXES = scenes()


def dataset(has_boxes: bool = True) -> Dataset:
    examples = ArrayExamples(PICTURE, BOXES, np.arange(PICTURES))
    return Dataset(examples, examples, examples, CLASSES, None, has_boxes=has_boxes)


def identity(apart: bool = False) -> keras.Model:
    inputs = keras.Input((CANDIDATES, 6, 1), name="x")
    rows = keras.layers.Reshape((CANDIDATES, 6), name="rows")(inputs)
    if not apart:
        return keras.Model(inputs, rows)
    # Named, as a file has its outputs in the order of their names, and Keras numbers its own.
    boxes = keras.layers.Activation("linear", name="boxes")(rows[..., :4])
    scores = keras.layers.Activation("linear", name="scores")(rows[..., 4:])
    return keras.Model(inputs, [boxes, scores])


def evaluated(
    model: keras.Model, folder: Path, *, with_intervals: bool = True, **settings: object
) -> Evaluation:
    config = TaskConfig.model_validate({"decode": DECODE, **settings})
    task = resolve_task(config, dataset(), keras_interface(model))
    path = folder / "model.tflite"
    path.write_bytes(convert(model, "float32").content)
    return evaluate_artifact(path, dataset().test, task, with_intervals=with_intervals)


@pytest.mark.parametrize("apart", [False, True])
def test_metrics_are_those_that_the_oracle_finds(apart: bool, tmp_path: Path) -> None:
    names = ["map", "map_50", "map_75", "map_small", "map_medium"]
    found = evaluated(identity(apart), tmp_path, metrics=names)
    expected = of_boxes_head(tmp_path / "model.tflite", {"x": PICTURE}, BOXES, tmp_path)
    for name in names:
        assert found.metrics[name] == pytest.approx(expected[name], abs=1e-9)
        assert 0 < expected[name] < 1
    assert set(found.evidence) == set(names)


def test_candidates_are_measured_without_resamples(tmp_path: Path) -> None:
    found = evaluated(identity(), tmp_path, with_intervals=False, metrics=["map", "map_large"])
    expected = of_boxes_head(tmp_path / "model.tflite", {"x": PICTURE}, BOXES, tmp_path)
    assert found.metrics["map"] == pytest.approx(expected["map"], abs=1e-9)
    assert found.metrics["map_large"] is None
    assert "map_large" in found.undefined
    assert found.resampled == {}


def test_loss_is_null_with_its_reason_where_nobody_knows_the_places(tmp_path: Path) -> None:
    found = evaluated(identity(), tmp_path)
    assert found.metrics["loss"] is None
    assert "strides" in found.undefined["loss"]
    task = resolve_task(
        TaskConfig.model_validate({"decode": DECODE}), dataset(), keras_interface(identity())
    )
    with pytest.raises(StageError, match=r"without a loss: task.decode has no strides"):
        task.objective()


@pytest.mark.parametrize(
    ("settings", "has_boxes", "error", "words"),
    [
        ({}, True, RecipeError, "the targets are boxes"),
        ({"decode": DECODE}, False, DataError, "needs boxes"),
        ({"decode": DECODE, "metrics": ["accuracy"]}, True, RecipeError, "not a metric of det"),
        ({"decode": DECODE, "metrics": [OWL]}, True, RecipeError, "no class 'owl' among the 2"),
        ({"decode": DECODE, "monitor": "map_owl"}, True, RecipeError, "no class 'owl'"),
        (
            {"decode": DECODE, "loss": "mean_squared_error"},
            True,
            RecipeError,
            "no effect with task.decode",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(
    settings: dict[str, object], has_boxes: bool, error: type[Exception], words: str
) -> None:
    config = TaskConfig.model_validate(settings)
    with pytest.raises(error, match=words):
        resolve_task(config, dataset(has_boxes), keras_interface(identity()))


def test_class_of_a_metric_may_be_a_name_or_a_number() -> None:
    config = TaskConfig.model_validate({"decode": DECODE, "metrics": ["map_cat", "map_50_1"]})
    task = resolve_task(config, dataset(), keras_interface(identity()))
    assert task.metrics == ("map_cat", "map_50_1")


def test_task_follows_the_loss_and_measures_map_by_default() -> None:
    task = resolve_task(
        TaskConfig.model_validate({"decode": DECODE}), dataset(), keras_interface(identity())
    )
    assert (task.metrics, task.monitor, task.losses) == (("map",), "loss", ("detection",))
    assert not task.has_accuracy
    assert tf.nest.flatten(task.classes) == list(CLASSES)


FUNCTIONS = """
import numpy as np

def missed_error_rate(outputs, targets, groups):
    assert outputs.dtype == np.float64
    found = (outputs[..., 5] >= 0).any(1)
    there = (targets[..., 4] >= 0).any(1)
    return 1 - found[there].mean() if there.any() else np.nan
"""


def test_slices_have_every_metric_of_their_pictures_alone(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FUNCTIONS)
    metrics = ["map_50", "map", f"{tmp_path / 'own.py'}:missed_error_rate"]
    config = TaskConfig.model_validate({"decode": DECODE, "metrics": metrics})
    task = resolve_task(config, dataset(), keras_interface(identity()))
    path = tmp_path / "model.tflite"
    path.write_bytes(convert(identity(), "float32").content)
    place = np.where(np.arange(PICTURES) % 4 == 0, "barn", "yard")
    slicing = divided("place", place)
    found = evaluate_artifact(path, dataset().test, task, slicings=[slicing])
    by_class, by_place = found.sliced.slicings
    assert (by_class.by, by_class.metric, by_place.by) == ("class", "map_50", "place")
    for label, one in enumerate(by_class.slices):
        alone = BOXES.copy()
        alone[alone[..., 4] != label] = [0, 0, 0, 0, -1, 0, 0]
        assert one.examples == (alone[..., 4] >= 0).any(1).sum()
        own = evaluated(identity(), tmp_path, metrics=[f"map_50_{one.name}"])
        assert one.metrics["map_50"] == own.metrics[f"map_50_{one.name}"]
        evidence = found.evidence[f"slice class = {one.name}"]
        assert isinstance(evidence, Resampled)
        assert evidence.value == one.metrics["map_50"]
    for one in by_place.slices:
        chosen = place == one.name
        expected = of_boxes_head(path, {"x": PICTURE[chosen]}, BOXES[chosen], tmp_path)
        assert one.examples == chosen.sum()
        assert one.metrics["map"] == pytest.approx(expected["map"], abs=1e-9)
        assert one.metrics["map_50"] == pytest.approx(expected["map_50"], abs=1e-9)
        assert one.metrics["missed_error_rate"] is not None
    assert ("slice place = barn" in found.evidence, "slice place = yard" in found.evidence) == (
        False,
        True,
    )  # 10 pictures are too few
    assert found.metrics["missed_error_rate"] is not None
