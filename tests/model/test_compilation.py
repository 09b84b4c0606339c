"""What a model file says of the loss and the metrics that the model was compiled with."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tf_keras as keras

from shrink.model.compilation import Compiled, CompiledLoss, read_compiled
from tests.report.plain import metadata
from tests.report.toys import report_naming


def compiled_model(**settings: Any) -> keras.Model:
    inputs = keras.Input((4,))
    outputs = [
        keras.layers.Dense(1, activation="sigmoid", name="yes")(inputs),
        keras.layers.Dense(3, name="kind")(inputs),
    ]
    model = keras.Model(inputs, outputs)
    if settings:
        model.compile("adam", **settings)
    return model


SETTINGS = {
    "loss": {
        "yes": "binary_crossentropy",
        "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    },
    "metrics": {"yes": ["accuracy"], "kind": [keras.metrics.SparseCategoricalAccuracy()]},
    "loss_weights": {"yes": 0.5, "kind": 2.0},
}


@pytest.mark.parametrize("name", ["model.keras", "model.h5", "saved"])
@pytest.mark.filterwarnings("ignore")
def test_read_compiled_finds_losses_and_metrics(name: str, tmp_path: Path) -> None:
    compiled_model(**SETTINGS).save(tmp_path / name)
    found = read_compiled(tmp_path / name)
    assert found is not None
    assert found.losses(["kind", "yes"]) == [
        CompiledLoss("SparseCategoricalCrossentropy", "sparse_categorical_crossentropy", True),
        CompiledLoss("binary_crossentropy", "binary_crossentropy", False),
    ]
    assert found.weights(["kind", "yes"]) == [2.0, 0.5]
    known, others = found.metric_names()
    assert set(known) <= {"accuracy", "binary_accuracy"}
    assert "accuracy" in known
    assert others == []


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore")
def test_read_compiled_gives_none_where_the_model_was_not_compiled(
    name: str, tmp_path: Path
) -> None:
    compiled_model().save(tmp_path / name)
    assert read_compiled(tmp_path / name) is None
    (tmp_path / f"broken-{name}").write_bytes(b"nothing")
    assert read_compiled(tmp_path / f"broken-{name}") is None
    assert read_compiled(tmp_path / "missing.tflite") is None


@pytest.mark.parametrize(
    "stored",
    [7, [[]], {"class_name": 3}, {"class_name": "function", "config": {"fn": []}}, {"a": None}],
)
def test_losses_are_none_for_what_keras_never_writes(stored: Any, tmp_path: Path) -> None:
    compiled_model(**SETTINGS).save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as before:
        members = {name: before.read(name) for name in before.namelist()}
    config = json.loads(members["config.json"])
    config["compile_config"] = {"loss": stored, "metrics": stored, "loss_weights": stored}
    members["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(tmp_path / "changed.keras", "w") as after:
        for name, content in members.items():
            after.writestr(name, content)
    found = read_compiled(tmp_path / "changed.keras")
    assert found is not None
    losses = found.losses(["yes", "kind"])
    assert all(loss is None or loss.name is None for loss in losses)
    assert found.metric_names()[0] == []
    assert len(found.weights(["yes", "kind"])) == 2


@pytest.mark.parametrize(
    ("stored", "name", "from_logits"),
    [
        ("mse", "mean_squared_error", False),
        ("MAE", "mean_absolute_error", False),
        ({"class_name": "function", "config": "binary_crossentropy"}, "binary_crossentropy", False),
        (
            {"module": "keras.losses", "class_name": "BinaryCrossentropy",
             "config": {"from_logits": True}, "registered_name": None},
            "binary_crossentropy",
            True,
        ),
        ("huber", "huber", False),
        ("crf", None, False),
    ],
)  # fmt: skip
def test_losses_knows_each_way_of_writing(stored: Any, name: str | None, from_logits: bool) -> None:
    (found,) = Compiled(stored).losses(["output"])
    assert found is not None
    assert (found.name, found.from_logits) == (name, from_logits)


@pytest.mark.parametrize(
    ("metric", "key"),
    [
        (keras.metrics.Precision(name="p"), "precision"),
        (keras.metrics.Recall(class_id=2), "recall_2"),
        (keras.metrics.Precision(thresholds=0.9), None),
        (keras.metrics.Recall(top_k=2), None),
        (keras.metrics.AUC(), "roc_auc"),
        (keras.metrics.AUC(curve="PR", num_thresholds=50), "average_precision"),
        (keras.metrics.RootMeanSquaredError(), "rmse"),
        (keras.metrics.R2Score(), "r2"),
        (keras.metrics.MeanAbsolutePercentageError(), "mape"),
        (keras.metrics.TopKCategoricalAccuracy(k=5), "top5_accuracy"),
        (keras.metrics.SparseTopKCategoricalAccuracy(k=3), "top_k_3"),
        (keras.metrics.F1Score(), "f1"),
        (keras.metrics.F1Score(average="weighted"), "f1_weighted"),
        (keras.metrics.FBetaScore(beta=2.0), None),
        (keras.metrics.MeanIoU(num_classes=3), "mean_iou"),
        (keras.metrics.BinaryAccuracy(threshold=0.0), "binary_accuracy"),
        (keras.metrics.CosineSimilarity(), None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_metric_names_go_by_class_and_settings(
    metric: Any, key: str | None, tmp_path: Path
) -> None:
    compiled_model(loss=["mse", "mse"], metrics=[[metric], []]).save(tmp_path / "model.keras")
    stored = read_compiled(tmp_path / "model.keras")
    assert stored is not None
    assert stored.metric_names()[0] == ([] if key is None else [key])
    assert len(stored.metric_names()[1]) == (key is None)


def test_a_metric_that_ignores_what_the_loss_ignores_is_the_same() -> None:
    metric = {"class_name": "MeanIoU", "config": {"num_classes": 3, "ignore_class": 255}}
    loss = {"class_name": "SparseCategoricalCrossentropy", "config": {"ignore_class": 255}}
    assert Compiled(loss, [metric]).metric_names() == (["mean_iou"], [])
    assert Compiled("mse", [metric]).metric_names() == ([], ["MeanIoU (ignore_class 255)"])


@pytest.mark.parametrize(
    ("name", "setting", "stored"),
    [
        ("CategoricalCrossentropy", {"label_smoothing": 0.1}, "label_smoothing 0.1"),
        ("Precision", {"thresholds": 0.3}, "thresholds 0.3"),
    ],
)
def test_metric_names_say_which_setting_makes_it_another_metric(
    name: str, setting: dict[str, float], stored: str
) -> None:
    metric = {"class_name": name, "config": setting}
    assert Compiled("mse", [metric]).metric_names() == ([], [f"{name} ({stored})"])


def test_a_delta_that_keras_3_did_not_store_is_unknown() -> None:
    keras3 = pytest.importorskip("keras")
    config = keras3.losses.Huber(delta=2.0).get_config()
    (stored,) = Compiled({"class_name": "Huber", "config": config}).losses(["out"])
    assert stored is not None
    assert stored.other == ("a delta that Keras 3 does not store",)


@pytest.mark.parametrize("k", [-1, 0, 2.5, True, "all", [3], None])
def test_metric_names_refuse_settings_that_keras_never_writes(k: Any) -> None:
    top = {"class_name": "TopKCategoricalAccuracy", "config": {"k": k}}
    recall = {"class_name": "Recall", "config": {"class_id": [k]}}
    f1 = {"class_name": "F1Score", "config": {"average": str(k)}}
    assert Compiled("mse", [top, recall, f1]).metric_names()[0] == []


def test_read_compiled_of_an_artifact_follows_its_run(tmp_path: Path) -> None:
    outputs = [
        {"name": "a", "loss": "mean_absolute_error", "from_logits": None},
        {"name": "b", "loss": "binary_crossentropy", "from_logits": True},
    ]
    task = {"outputs": outputs, "metrics": ["accuracy"], "loss_weights": [1.0, 0.5]}
    names = ("00-baseline.keras", "01-train.keras", "02-other.keras")
    digests = [hashlib.sha256(name.encode()).hexdigest() for name in names]
    stages: list[dict[str, Any]] = [
        {"artifact": "artifacts/00-baseline.keras", "sha256": digests[0], "details": None},
        {"artifact": "artifacts/01-train.keras", "sha256": digests[1], "details": {"task": task}},
    ]
    (tmp_path / "artifacts").mkdir()
    for name in names:
        (tmp_path / "artifacts" / name).write_text(name)
    record = json.dumps(metadata(report_naming(*stages), ""))
    (tmp_path / "artifacts" / "metadata.json").write_text(record, encoding="utf-8")
    found = read_compiled(tmp_path / "artifacts" / "01-train.keras")
    assert found is not None
    assert found.by == "run"
    # A .tflite file has other names for the same outputs, so their order decides.
    assert found.losses(["x", "y"]) == [
        CompiledLoss("mean_absolute_error", "mean_absolute_error", None),
        CompiledLoss("binary_crossentropy", "binary_crossentropy", True),
    ]
    assert found.metric_names() == (["accuracy"], [])
    assert found.weights(["x", "y"]) == [1.0, 0.5]
    assert read_compiled(tmp_path / "artifacts" / "00-baseline.keras") is None
    assert read_compiled(tmp_path / "artifacts" / "02-other.keras") is None
    (tmp_path / "artifacts" / "01-train.keras").write_bytes(b"replaced")
    assert read_compiled(tmp_path / "artifacts" / "01-train.keras") is None


@pytest.mark.parametrize(
    ("loss", "key"),
    [
        (keras.losses.Huber(2.0), "huber(delta=2)"),
        (
            keras.losses.CategoricalFocalCrossentropy(gamma=3.0, label_smoothing=0.1),
            "categorical_focal_crossentropy(gamma=3, label_smoothing=0.1)",
        ),
        (
            keras.losses.SparseCategoricalCrossentropy(ignore_class=2),
            "sparse_categorical_crossentropy(ignore_class=2)",
        ),
        (keras.losses.CosineSimilarity(), "cosine_similarity"),
        ("kld", "kl_divergence"),
        ("msle", "mean_squared_logarithmic_error"),
        ("squared_hinge", "squared_hinge"),
        ("logcosh", "log_cosh"),
    ],
)
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore")
def test_read_compiled_finds_a_losss_arguments(
    name: str, loss: Any, key: str, tmp_path: Path
) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", loss)
    model.save(tmp_path / name)
    found = read_compiled(tmp_path / name)
    assert found is not None
    (stored,) = found.losses(["dense"])
    assert stored is not None
    assert (stored.name, stored.other) == (key, ())


@pytest.mark.filterwarnings("ignore")
def test_read_compiled_finds_a_losss_arguments_in_a_file_of_keras_3(tmp_path: Path) -> None:
    keras3 = pytest.importorskip("keras")
    model = keras3.Sequential([keras3.Input((4,)), keras3.layers.Dense(3)])
    model.compile("sgd", keras3.losses.CategoricalFocalCrossentropy(gamma=1.5, from_logits=True))
    model.save(tmp_path / "three.keras")
    found = read_compiled(tmp_path / "three.keras")
    assert found is not None
    (stored,) = found.losses(["dense"])
    assert stored is not None
    assert stored.name == "categorical_focal_crossentropy(gamma=1.5)"
    assert stored.from_logits is True


def test_a_dice_of_keras_and_a_function_of_a_run_are_not_taken_over() -> None:
    (stored,) = Compiled("dice").losses(["out"])
    assert stored is not None
    assert stored.name is None  # Keras' is of the whole batch
    (own,) = Compiled({"class_name": "dice", "config": {"of": "labels"}}, by="run").losses(["out"])
    assert own is not None
    assert own.name == "dice(of=labels)"
    (code,) = Compiled({"class_name": "/a/own.py:loss", "config": {}}, by="run").losses(["out"])
    assert code is not None
    assert code.name is None


@pytest.mark.parametrize(
    ("name", "settings", "plain", "other"),
    [
        ("Huber", {"delta": 0.0}, "huber", ("delta 0.0",)),
        ("CategoricalCrossentropy", {"label_smoothing": 1.5, "axis": -1},
         "categorical_crossentropy", ("label_smoothing 1.5",)),
        ("BinaryFocalCrossentropy", {"alpha": 0.25, "gamma": -1, "label_smoothing": None},
         "binary_focal_crossentropy", ("gamma -1",)),
        ("BinaryFocalCrossentropy", {"alpha": 0.5, "gamma": -1},
         "binary_focal_crossentropy", ("alpha 0.5", "gamma -1")),
    ],
)  # fmt: skip
def test_arguments_that_shrink_does_not_take_are_named(
    name: str, settings: dict[str, Any], plain: str, other: tuple[str, ...]
) -> None:
    (found,) = Compiled({"class_name": name, "config": settings}).losses(["output"])
    assert found is not None
    assert found.name == plain
    assert set(found.other) == set(other)
