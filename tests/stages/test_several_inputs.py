"""Models of several inputs and outputs, from named arrays to the figures of their artifact."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError, RecipeError, StageError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.matching import fed_like
from shrink.data.opening import open_dataset
from shrink.quantization.calibration import CalibrationExamples
from shrink.stages.context import StageContext
from shrink.task.artifact import evaluate_artifact
from shrink.task.config import TaskConfig
from shrink.task.interface import keras_interface
from shrink.task.resolve import resolve_task
from shrink.tflite.convert import convert
from tests.jobs import context_of

layers = keras.layers


def _model() -> keras.Model:
    """Names sort against the model's order, as the converter sorts them."""
    keras.utils.set_random_seed(0)
    wide, narrow = layers.Input((6,), name="wide"), layers.Input((3,), name="narrow")
    joined = layers.Concatenate()([wide, narrow])
    return keras.Model(
        [wide, narrow], [layers.Dense(4, name="zebra")(joined), layers.Dense(2, name="ape")(joined)]
    )


def _dataset(folder: Path, **settings: Any) -> Dataset:
    rng = np.random.default_rng(0)
    np.savez(
        folder / "data.npz",
        wide=rng.normal(size=(60, 6)).astype(np.float32),
        narrow=rng.normal(size=(60, 3)).astype(np.float32),
        kind=np.arange(60) % 4,
        side=np.arange(60) % 2,
        pair=rng.normal(size=(60, 2)).astype(np.float32),
    )
    names = {"inputs": ["wide", "narrow"], "targets": ["kind", "side"], **settings}
    value = {"source": "npz", "path": str(folder / "data.npz"), **names}
    return open_dataset(DataConfig.model_validate(value), seed=0)


def test_evaluate_artifact_feeds_inputs_by_name_and_averages_outputs(tmp_path: Path) -> None:
    model, dataset = _model(), _dataset(tmp_path)
    task = resolve_task(TaskConfig(), dataset, keras_interface(model))
    assert (task.loss, task.metrics) == ("sparse_categorical_crossentropy", ("accuracy",))
    (tmp_path / "model.tflite").write_bytes(convert(model, "float32").content)
    found = evaluate_artifact(tmp_path / "model.tflite", dataset.test, task)
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    outputs = [np.asarray(output, np.float64) for output in model(x)]
    right = [(o.argmax(1) == labels).mean() for o, labels in zip(outputs, y, strict=True)]
    assert found.metrics["accuracy"] == pytest.approx(np.mean(right))
    losses = [
        (np.log(np.exp(o).sum(1)) - o[np.arange(len(o)), labels]).mean()
        for o, labels in zip(outputs, y, strict=True)
    ]
    assert found.metrics["loss"] == pytest.approx(sum(losses), rel=1e-5)


def test_calibration_examples_give_one_array_for_each_input(tmp_path: Path) -> None:
    calibration = CalibrationExamples(_dataset(tmp_path).train, 20, 0, ("wide", "narrow"))
    shapes = {"wide": (1, 6), "narrow": (1, 3)}
    assert [{n: a.shape for n, a in example.items()} for example in calibration] == [shapes] * 20
    (batch,) = calibration.batches()
    assert {name: part.shape for name, part in batch.items()} == {
        "wide": (20, 6),
        "narrow": (20, 3),
    }
    convert(_model(), "static_int8", calibration, "int8", "int8")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": ["wide"]}, r"takes 2 inputs \(wide, narrow\), the examples have 1"),
        ({"inputs": ["narrow", "wide"]}, r"takes inputs of shape \(6,\), the examples have \(3,\)"),
        ({"targets": ["kind"]}, r"gives 2 outputs \(zebra, ape\), the examples have 1 t"),
    ],
)
def test_resolve_task_raises_data_error_when_names_do_not_match(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        resolve_task(TaskConfig(), _dataset(tmp_path, **settings), keras_interface(_model()))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("npz", "transpose or reshape the array"),
        ("csv", "the model takes 4 columns, the table has 2: .* data.inputs"),
        ("digits", "data.image_size"),
    ],
)
def test_the_hint_on_a_wrong_shape_is_that_of_the_source(
    tmp_path: Path, source: str, hint: str
) -> None:
    np.savez(tmp_path / "npz", x=np.zeros((9, 5, 4)), y=np.arange(9) % 2)
    (tmp_path / "csv").write_text("a,b,label\n" + "0.5,1,0\n0.5,1,1\n" * 9)
    path = {"npz": "npz.npz", "csv": "csv"}.get(source)
    place = {} if path is None else {"path": str(tmp_path / path)}
    dataset = open_dataset(DataConfig.model_validate({"source": source, **place}), 0)
    inputs = layers.Input((4, 5) if source == "npz" else (4,))
    model = keras.Model(inputs, layers.Dense(2)(inputs))
    with pytest.raises(DataError, match="takes inputs of shape") as caught:
        resolve_task(TaskConfig(), dataset, keras_interface(model))
    assert re.search(hint, str(caught.value.hint))


def test_resolve_task_measures_each_of_several_labels(tmp_path: Path) -> None:
    y = np.random.default_rng(0).integers(0, 2, (40, 3))
    np.savez(tmp_path / "labels.npz", x=np.zeros((40, 5), np.float32), y=y)
    config = DataConfig(source="npz", path=str(tmp_path / "labels.npz"))
    inputs = layers.Input((5,))
    model = keras.Model(inputs, layers.Dense(3, activation="sigmoid")(inputs))
    task_config = TaskConfig(loss="binary_crossentropy")
    task = resolve_task(task_config, open_dataset(config, 0), keras_interface(model))
    assert task.metrics == ("binary_accuracy",)


def test_resolve_task_follows_the_targets_of_each_output_when_the_recipe_says_nothing(
    tmp_path: Path,
) -> None:
    dataset = _dataset(tmp_path, targets=["kind", "pair"])
    task = resolve_task(TaskConfig(), dataset, keras_interface(_model()))
    assert task.losses == ("sparse_categorical_crossentropy", "mean_squared_error")
    assert task.metrics == ("accuracy", "mean_squared_error")
    with pytest.raises(StageError, match="outputs of one kind"):
        _ = task.loss


def test_resolve_task_raises_recipe_error_when_there_is_no_such_output(tmp_path: Path) -> None:
    config = TaskConfig.model_validate({"loss_weights": {"zebar": 2}})
    with pytest.raises(RecipeError, match="no output 'zebar'; it has zebra, ape") as caught:
        resolve_task(config, _dataset(tmp_path), keras_interface(_model()))
    assert "zebra" in str(caught.value.hint)


def _sources(folder: Path, **models: Path) -> StageContext:
    """The context of a stage whose inputs are these files, on the arrays of `_dataset`."""
    _dataset(folder)
    data: dict[str, Any] = {"source": "npz", "path": str(folder / "data.npz")}
    data |= {"inputs": ("narrow", "wide"), "targets": ("side", "kind")}
    return context_of(folder, kind="distill", inputs=models, data=data)


def _rows(dataset: Dataset) -> dict[int, np.ndarray]:
    """What the examples hold, by the width of the input or the number of classes."""
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    return {part.shape[1]: part for part in x} | {-int(t.max() + 1): t for t in y}


@pytest.mark.parametrize("form", ["model.keras", "model.tflite", "saved"])
def test_dataset_is_in_the_order_of_the_model_whatever_its_form(tmp_path: Path, form: str) -> None:
    model = _model()
    path = tmp_path / form
    if form == "model.keras":
        model.save(path)
    elif form == "model.tflite":
        path.write_bytes(convert(model, "float32").content)
    else:
        specs = {n: tf.TensorSpec([None, w], name=n) for n, w in (("wide", 6), ("narrow", 3))}
        module = tf.Module()
        module.model = model

        def serve(**given: Any) -> dict[str, Any]:
            return dict(zip(("kind", "side"), model([given["wide"], given["narrow"]]), strict=True))

        served = tf.function(serve).get_concrete_function(**specs)
        tf.saved_model.save(module, str(path), signatures=served)
    context = _sources(tmp_path, model=path)
    dataset = context.dataset
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    sorted_names = form == "saved"  # as it is converted
    assert [part.shape[1] for part in x] == ([3, 6] if sorted_names else [6, 3])
    if sorted_names:
        assert dataset.target_names == ("kind", "side")
        assert [int(t.max()) for t in y] == [3, 1]
        conversion = convert(path, "float32").content
        (tmp_path / "converted.tflite").write_bytes(conversion)
        again = _sources(tmp_path, model=tmp_path / "converted.tflite").dataset
        for one, other in zip(_rows(dataset).values(), _rows(again).values(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_fed_like_gives_a_teacher_its_inputs_in_its_own_order(tmp_path: Path) -> None:
    student = _model()
    wide, narrow = layers.Input((6,), name="wide"), layers.Input((3,), name="narrow")
    joined = student([wide, narrow])
    teacher = keras.Model([narrow, wide], joined[::-1])
    teacher.output_names = ["ape", "zebra"]
    student.save(tmp_path / "student.keras")
    dataset = _sources(tmp_path, model=tmp_path / "student.keras").dataset
    x, _ = dataset.test.arrays(np.arange(5))
    for given, wanted in zip(fed_like(teacher, dataset)(list(x)), student(list(x)), strict=True):
        np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("model_first", [True, False])
def test_dataset_loads_no_second_model_for_its_names(tmp_path: Path, model_first: bool) -> None:
    """It would lie in memory beside the one that is trained, and in its measured peak."""
    _model().save(tmp_path / "model.keras")
    context = _sources(tmp_path, model=tmp_path / "model.keras")
    loaded: list[keras.Model] = []

    def load(source: Any, as_graph: bool) -> keras.Model:
        loaded.append(_model())
        return loaded[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shrink.model.load.load_source", load)
        model = context.load() if model_first else None
        assert context.dataset.input_names == ("wide", "narrow")
        model = model or context.load()
        assert context.load() is not model
    assert len(loaded) == 2
    assert loaded[0] is model
