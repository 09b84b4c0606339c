"""Loss, metrics and what outputs are: against Keras' own evaluation, and against numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError, ModelError, RecipeError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.opening import open_dataset
from shrink.model.compilation import Compiled
from shrink.task.artifact import evaluate_artifact
from shrink.task.config import TaskConfig
from shrink.task.interface import Interface, artifact_interface, keras_interface
from shrink.task.resolve import check_values, resolve_task
from shrink.task.task import Task
from shrink.tflite.convert import convert
from shrink.tflite.names import signature_names

L = keras.layers
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 6)).astype(np.float32)
BITS = (X[:, 0] > 0).astype(np.int64)
CLASSES = np.abs(X[:, 1:5]).argmax(1)
SEVERAL = (X[:, :3] > 0).astype(np.float32)


def dataset_of(folder: Path, y: np.ndarray, x: np.ndarray = X) -> Dataset:
    np.savez(folder / "data.npz", x=x, y=y)
    return open_dataset(DataConfig(source="npz", path=str(folder / "data.npz")), seed=0)


def model_of(*makers: Callable[[Any], Any]) -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,))
    hidden = L.Dense(5, activation="relu")(inputs)
    outputs = [make(hidden) for make in makers]
    model = keras.Model(inputs, outputs if len(outputs) > 1 else outputs[0])
    model.set_weights([2 * weights for weights in model.get_weights()])
    return model


def sigmoid(x: Any) -> Any:
    return L.Dense(1, activation="sigmoid")(x)


def softmax(x: Any) -> Any:
    return L.Dense(4, activation="softmax")(x)


BINARY: dict[str, Callable[[Any], Any]] = {
    "operation": lambda x: tf.sigmoid(L.Dense(1)(x)),
    "reshape": lambda x: L.Reshape((1,))(sigmoid(x)),
    "logits": lambda x: L.Dense(1)(x),
}
SEVERAL_CLASSES: dict[str, Callable[[Any], Any]] = {
    "function": lambda x: L.Dense(4, activation=tf.nn.softmax)(x),
    "operation": lambda x: tf.nn.softmax(L.Dense(4)(x)),
    "reshape": lambda x: L.Reshape((4,))(softmax(x)),
    "average": lambda x: L.Average()([softmax(x), softmax(x)]),
    "logits": lambda x: L.Dense(4)(x),
}


def by_keras(model: keras.Model, dataset: Dataset, loss: Any, metric: Any) -> dict[str, float]:
    model.compile("sgd", loss, [metric])
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    found = model.evaluate(x, y, verbose=0, batch_size=len(x))
    return dict(zip(("loss", "accuracy"), found, strict=True))


def trained_on(task: Task, model: keras.Model, dataset: Dataset) -> float:
    """Return the mean loss as a traced training step computes it."""
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    step = tf.function(lambda x, y: task.objective().loss(y, model(x), None))
    return float(tf.reduce_mean(step(x, y)))


def expect_keras(
    model: keras.Model, dataset: Dataset, expected: dict[str, float], path: Path
) -> None:
    task = resolve_task(TaskConfig(), dataset, keras_interface(model))
    path.write_bytes(convert(model, "float32").content)
    bare = resolve_task(TaskConfig(), dataset, artifact_interface(path))
    assert (bare.losses, bare.from_logits) == (task.losses, task.from_logits)
    found = evaluate_artifact(path, dataset.test, task).metrics
    assert found == pytest.approx(expected, rel=1e-4)
    assert trained_on(task, model, dataset) == pytest.approx(expected["loss"], rel=1e-4)


@pytest.mark.parametrize("ending", BINARY)
def test_resolve_task_gives_what_keras_evaluates_of_a_binary_model(
    ending: str, tmp_path: Path
) -> None:
    model, dataset = model_of(BINARY[ending]), dataset_of(tmp_path, BITS)
    logits = ending == "logits"
    loss = keras.losses.BinaryCrossentropy(from_logits=logits)
    metric = keras.metrics.BinaryAccuracy(threshold=0.0 if logits else 0.5)
    expect_keras(model, dataset, by_keras(model, dataset, loss, metric), tmp_path / "m.tflite")


@pytest.mark.parametrize("ending", SEVERAL_CLASSES)
def test_resolve_task_gives_what_keras_evaluates_of_several_classes(
    ending: str, tmp_path: Path
) -> None:
    model, dataset = model_of(SEVERAL_CLASSES[ending]), dataset_of(tmp_path, CLASSES)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=ending == "logits")
    expected = by_keras(model, dataset, loss, "accuracy")
    expect_keras(model, dataset, expected, tmp_path / "m.tflite")


@pytest.mark.parametrize(
    ("y", "make", "expected"),
    [
        (CLASSES, softmax, True),
        (np.eye(4, dtype=np.float32)[CLASSES], softmax, True),
        (BITS, sigmoid, True),
        (SEVERAL, lambda x: L.Dense(3, activation="sigmoid")(x), False),
        (X[:, :1], lambda x: L.Dense(1)(x), False),
    ],
)
def test_has_accuracy_where_the_largest_output_is_the_answer(
    y: np.ndarray, make: Callable[[Any], Any], expected: bool, tmp_path: Path
) -> None:
    interface = keras_interface(model_of(make))
    assert resolve_task(TaskConfig(), dataset_of(tmp_path, y), interface).has_accuracy is expected


@pytest.mark.parametrize(
    ("make", "loss"), [(softmax, "binary_crossentropy"), (sigmoid, "categorical_crossentropy")]
)
def test_objective_takes_probabilities_as_they_are_whatever_made_them(
    make: Callable[[Any], Any], loss: str
) -> None:
    """Keras takes a softmax's logits for a sigmoid's, and the other way round."""
    wide = make if make is softmax else lambda x: L.Dense(4, activation="sigmoid")(x)
    model, y = model_of(wide), np.eye(4, dtype=np.float32)[CLASSES]
    # Near 0 and 1 Keras adds an epsilon to probabilities.
    model.set_weights([weights / 4 for weights in model.get_weights()])
    p = model(X).numpy().astype(np.float64)
    if loss == "binary_crossentropy":
        expected = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(1)
    else:
        expected = -(y * np.log(p / p.sum(1, keepdims=True))).sum(1)
    objective = Task((loss,), (), "loss", (False,), (), (1.0,)).objective()
    found = tf.function(lambda x, y: objective.loss(y, model(x), None))(X, y)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_int8_probabilities_of_many_classes_are_measured_as_the_float_model_is(
    tmp_path: Path,
) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([L.Input((6,)), L.Dense(300, activation="softmax")])
    dataset = dataset_of(tmp_path, np.arange(80) % 300)
    (name,) = signature_names(model.input_names)
    examples = [{name: row[None]} for row in X[:20]]
    path = tmp_path / "int8.tflite"
    path.write_bytes(convert(model, "static_int8", examples, "int8", "int8").content)
    tasks = [
        resolve_task(TaskConfig(), dataset, interface)
        for interface in (keras_interface(model), artifact_interface(path))
    ]
    losses = [evaluate_artifact(path, dataset.test, task).metrics["loss"] for task in tasks]
    assert losses[0] == losses[1] != pytest.approx(np.log(300), abs=1e-3)


def test_resolve_task_follows_what_the_recipe_says_of_logits(tmp_path: Path) -> None:
    model, dataset = model_of(softmax), dataset_of(tmp_path, CLASSES)
    task = resolve_task(TaskConfig(from_logits=True), dataset, keras_interface(model))
    p = model(X).numpy().astype(np.float64)
    _, y = dataset.test.arrays(np.arange(len(dataset.test)))
    x, _ = dataset.test.arrays(np.arange(len(dataset.test)))
    p = model(x).numpy().astype(np.float64)
    expected = np.log(np.exp(p).sum(1)) - p[np.arange(len(y)), y]
    assert trained_on(task, model, dataset) == pytest.approx(expected.mean(), rel=1e-5)
    assert [warning.code for warning in task.warnings] == ["from-logits"]
    assert task.outputs[0].by == "recipe"
    named = TaskConfig.model_validate({"from_logits": {model.output_names[0]: False}})
    assert not resolve_task(named, dataset, keras_interface(model)).warnings


def test_resolve_task_takes_what_a_recipe_says_by_name_of_an_artifacts_only_output(
    tmp_path: Path,
) -> None:
    """The converter calls it output_0; the recipe of the run that made it has the Keras name."""
    model, dataset = model_of(lambda x: L.Dense(4, name="head")(x)), dataset_of(tmp_path, CLASSES)
    path = tmp_path / "m.tflite"
    path.write_bytes(convert(model, "float32").content)
    config = TaskConfig.model_validate(
        {"from_logits": {"head": True}, "loss_weights": {"head": 3.0}}
    )
    for interface in (keras_interface(model), artifact_interface(path)):
        task = resolve_task(config, dataset, interface)
        assert (task.from_logits, task.outputs[0].by) == ((True,), "recipe")
        assert task.loss_weights == (3.0,)


def test_resolve_task_takes_what_a_recipe_says_by_name_of_an_artifacts_outputs(
    tmp_path: Path,
) -> None:
    """A signature has letters, digits and _ alone; the recipe has the names of the Keras model."""
    model = model_of(lambda x: L.Dense(4, name="b-head")(x), lambda x: L.Dense(1, name="a.size")(x))
    path = tmp_path / "m.tflite"
    path.write_bytes(convert(model, "float32").content)
    np.savez(tmp_path / "d.npz", x=X, labels=CLASSES, size=X[:, :1])
    config = DataConfig(source="npz", path=str(tmp_path / "d.npz"), targets=("labels", "size"))
    dataset = open_dataset(config, seed=0)
    stated = TaskConfig.model_validate(
        {
            "loss": {"a.size": "mean_absolute_error", "b-head": "sparse_categorical_crossentropy"},
            "loss_weights": {"a.size": 3.0},
        }
    )
    for interface in (keras_interface(model), artifact_interface(path)):
        task = resolve_task(stated, dataset, interface)
        assert task.losses == ("sparse_categorical_crossentropy", "mean_absolute_error")
        assert task.loss_weights == (1.0, 3.0)
    wrong = TaskConfig.model_validate({"loss_weights": {"a_size.": 3.0}})
    with pytest.raises(RecipeError, match=r"has no output 'a_size\.'; it has b_head, a_size"):
        resolve_task(wrong, dataset, artifact_interface(path))


def test_resolve_task_looks_at_values_where_the_graph_does_not_tell(tmp_path: Path) -> None:
    def by_hand(x: Any) -> Any:
        z = L.Dense(4)(x)
        return tf.exp(z - tf.reduce_logsumexp(z, -1, keepdims=True))

    model = model_of(by_hand)
    task = resolve_task(TaskConfig(), dataset_of(tmp_path, CLASSES), keras_interface(model))
    assert (task.from_logits, task.outputs[0].by) == ((False,), "values")
    numbers = model_of(lambda x: L.Dense(4, activation="tanh")(x))
    task = resolve_task(TaskConfig(), dataset_of(tmp_path, CLASSES), keras_interface(numbers))
    assert (task.from_logits, task.outputs[0].by) == ((True,), "values")


def test_resolve_task_asks_the_recipe_where_nobody_can_know(tmp_path: Path) -> None:
    model = model_of(lambda x: L.Dense(4, activation="gelu")(x))
    model.set_weights([np.abs(weights) / 100 for weights in model.get_weights()])
    dataset, interface = dataset_of(tmp_path, CLASSES, np.abs(X)), keras_interface(model)
    with pytest.raises(RecipeError, match="probabilities or logits") as caught:
        resolve_task(TaskConfig(), dataset, interface)
    assert "from_logits" in str(caught.value.hint)
    assert caught.value.exit_code == 2
    assert resolve_task(TaskConfig(from_logits=True), dataset, interface).from_logits == (True,)
    stored = Compiled("sparse_categorical_crossentropy")
    task = resolve_task(TaskConfig(), dataset, interface, stored)
    assert (task.from_logits, task.outputs[0].by) == ((False,), "compiled")


def test_check_values_refuses_probabilities_beyond_1(tmp_path: Path) -> None:
    model, dataset = model_of(softmax), dataset_of(tmp_path, CLASSES)
    task = resolve_task(TaskConfig(), dataset, keras_interface(model))
    check_values(task, dataset, lambda x: [model(x).numpy()], (0.0,))
    with pytest.raises(ModelError, match="lies between"):
        check_values(task, dataset, lambda x: [3 * model(x).numpy()], (0.0,))


@pytest.mark.parametrize(
    ("y", "make", "loss", "metric"),
    [
        (BITS, sigmoid, "binary_crossentropy", "accuracy"),
        (BITS.astype(np.float32)[:, None], sigmoid, "binary_crossentropy", "accuracy"),
        (BITS, lambda x: L.Reshape(())(sigmoid(x)), "binary_crossentropy", "binary_accuracy"),
        (CLASSES.astype(np.float32), softmax, "sparse_categorical_crossentropy", "accuracy"),
        (CLASSES.astype(np.float32)[:, None], softmax, "sparse_categorical_crossentropy",
         "accuracy"),
        (np.eye(4, dtype=np.float32)[CLASSES], softmax, "categorical_crossentropy", "accuracy"),
        (np.eye(4, dtype=np.int64)[CLASSES], L.Dense(4), "categorical_crossentropy", "accuracy"),
        (SEVERAL, L.Dense(3, activation="sigmoid"), "binary_crossentropy", "binary_accuracy"),
        (SEVERAL, L.Dense(3), "mean_squared_error", "mean_squared_error"),
        (X[:, 0], L.Dense(1), "mean_squared_error", "mean_squared_error"),
        (X[:, :2], L.Dense(2, activation="sigmoid"), "mean_squared_error", "mean_squared_error"),
    ],
)  # fmt: skip
def test_resolve_task_infers_the_loss_from_targets_and_outputs(
    y: np.ndarray, make: Callable[[Any], Any], loss: str, metric: str, tmp_path: Path
) -> None:
    task = resolve_task(TaskConfig(), dataset_of(tmp_path, y), keras_interface(model_of(make)))
    assert (task.losses, task.metrics) == ((loss,), (metric,))
    assert loss in task.note


@pytest.mark.parametrize(
    ("y", "loss", "codes"),
    [
        (SEVERAL, None, ["labels-as-numbers"]),
        (SEVERAL, "mean_squared_error", []),
        (X[:, :3], None, []),
    ],
)
def test_labels_that_are_taken_as_numbers_are_a_warning(
    y: np.ndarray, loss: str | None, codes: list[str], tmp_path: Path
) -> None:
    dataset, model = dataset_of(tmp_path, y), keras_interface(model_of(L.Dense(3)))
    task = resolve_task(TaskConfig(loss=loss), dataset, model)
    assert [warning.code for warning in task.warnings] == codes


@pytest.mark.parametrize(
    ("y", "make", "message", "hint"),
    [
        (
            CLASSES,
            sigmoid,
            "labels 0 to 3, but the model has a single output",
            "mean_squared_error",
        ),
        (
            CLASSES,
            L.Lambda(lambda x: tf.argmax(x, -1)),
            "labels 0 to 3, but the model has a single output, such as the number of a class",
            "an output for each class",
        ),
        (
            X[:, :1] + 0.5,
            softmax,
            r"whole numbers, 0 to 3 for a model with 4 outputs; found ",
            "correct the labels",
        ),
        (X[:, :3], softmax, r"shape \(4,\) with targets of shape \(3,\)", "task.loss"),
    ],
)
def test_resolve_task_says_what_would_do_where_targets_do_not_fit(
    y: np.ndarray, make: Callable[[Any], Any], message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        resolve_task(TaskConfig(), dataset_of(tmp_path, y), keras_interface(model_of(make)))
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("loss", "y", "words"),
    [
        ("binary_crossentropy", [0, 1, 3], "needs targets from 0 to 1, and they are 0.0 to 3.0"),
        ("poisson", [-1, 1, 3], "needs targets of at least 0, and they are -1.0 to 3.0"),
    ],
)
def test_a_loss_says_within_which_bounds_targets_must_be(
    loss: str, y: list[int], words: str, tmp_path: Path
) -> None:
    model = keras_interface(model_of(L.Dense(3, activation="sigmoid")))
    dataset = dataset_of(tmp_path, np.tile(np.array(y, np.float32), (len(X), 1)))
    with pytest.raises(DataError, match=f"{loss} {words}"):
        resolve_task(TaskConfig(loss=loss), dataset, model)


def test_metrics_of_a_record_keep_their_names_and_get_no_company(tmp_path: Path) -> None:
    interface = keras_interface(model_of(L.Dense(5, activation="softmax")))
    dataset = dataset_of(tmp_path, CLASSES)
    names = ["balanced_accuracy", "f1_macro", "roc_auc", "log_loss"]
    stored = Compiled("sparse_categorical_crossentropy", [*names, "/a/own.py:mine"], by="run")
    task = resolve_task(TaskConfig(), dataset, interface, stored)
    assert (task.metrics, task.metrics_by) == (tuple(names), "run")
    (warning,) = [one for one in task.warnings if one.code == "compiled-metrics"]
    assert "measured with /a/own.py:mine" in warning.message


def test_resolve_task_takes_what_the_model_was_compiled_with(tmp_path: Path) -> None:
    interface = keras_interface(model_of(L.Dense(3, activation="sigmoid")))
    dataset = dataset_of(tmp_path, SEVERAL)
    stored = Compiled("mean_absolute_error", ["mse"])
    task = resolve_task(TaskConfig(), dataset, interface, stored)
    assert task.losses == ("mean_absolute_error",)
    assert task.metrics == ("mean_squared_error", "mean_absolute_error")
    assert (task.outputs[0].loss_by, task.metrics_by) == ("compiled", "compiled")
    own = resolve_task(TaskConfig(loss="binary_crossentropy"), dataset, interface, stored)
    assert (own.losses, own.metrics) == (("binary_crossentropy",), ("binary_accuracy",))
    several = resolve_task(TaskConfig(), dataset, interface, Compiled("bce", ["accuracy"]))
    assert several.metrics == ("binary_accuracy",)


def two_heads(folder: Path) -> tuple[Interface, Dataset]:
    """A head of classes and one of several labels, and data for both."""
    np.savez(folder / "two.npz", x=X, kind=CLASSES, tags=SEVERAL)
    config = DataConfig(source="npz", path=str(folder / "two.npz"), targets=("kind", "tags"))
    tags = L.Dense(SEVERAL.shape[1], activation="sigmoid")
    return keras_interface(model_of(softmax, tags)), open_dataset(config, seed=0)


def test_accuracy_is_of_heads_of_classes_and_binary_accuracy_of_labels(tmp_path: Path) -> None:
    interface, dataset = two_heads(tmp_path)
    own = resolve_task(TaskConfig(), dataset, interface)
    assert (own.metrics, own.monitor) == (("accuracy", "binary_accuracy"), "accuracy")
    assert [own.measured(name) for name in own.metrics] == [[0], [1]]
    stored = Compiled(["sparse_categorical_crossentropy", "bce"], ["accuracy"])
    compiled = resolve_task(TaskConfig(), dataset, interface, stored)
    assert compiled.metrics == ("accuracy", "binary_accuracy")
    x, y = dataset.test.arrays(np.arange(len(dataset.test)))
    outputs = [tf.constant(np.eye(4, dtype=np.float32)[y[0]]), tf.constant(y[1], tf.float32)]
    hits = own.objective().metric("accuracy", tuple(map(tf.constant, y)), outputs)
    np.testing.assert_array_equal(hits, np.ones(len(x)))


def test_accuracy_of_several_labels_is_refused_with_the_metric_that_is_meant(
    tmp_path: Path,
) -> None:
    interface = keras_interface(model_of(L.Dense(3, activation="sigmoid")))
    with pytest.raises(RecipeError, match="several labels") as caught:
        resolve_task(TaskConfig(metrics=("accuracy",)), dataset_of(tmp_path, SEVERAL), interface)
    assert "binary_accuracy" in str(caught.value.hint)


def test_resolve_task_takes_compiled_metrics_that_go_with_the_outputs(tmp_path: Path) -> None:
    stored = Compiled("bce", ["Precision", {"class_name": "Recall", "config": {"class_id": 0}}])
    binary = keras_interface(model_of(sigmoid))
    task = resolve_task(TaskConfig(), dataset_of(tmp_path, BITS), binary, stored)
    assert (task.metrics, task.warnings) == (("precision", "recall", "accuracy"), ())
    stored = Compiled("sparse_categorical_crossentropy", ["AUC", "R2Score", "Precision"])
    several = keras_interface(model_of(softmax))
    task = resolve_task(TaskConfig(), dataset_of(tmp_path, CLASSES), several, stored)
    assert task.metrics == ("roc_auc", "precision", "accuracy")
    assert ["r2" in one.message or "mean over classes" in one.message for one in task.warnings]


def test_resolve_task_writes_the_compiled_loss_for_the_labels_that_there_are(
    tmp_path: Path,
) -> None:
    interface, dataset = keras_interface(model_of(softmax)), dataset_of(tmp_path, CLASSES)
    task = resolve_task(TaskConfig(), dataset, interface, Compiled("categorical_crossentropy"))
    assert task.losses == ("sparse_categorical_crossentropy",)
    assert not task.warnings


@pytest.mark.parametrize(
    ("stored", "code", "words"),
    [
        (Compiled("my_loss"), "compiled-loss", "my_loss, which shrink does not have"),
        (Compiled("mse"), "compiled-loss", "which the targets do not fit"),
        (
            Compiled({"class_name": "CategoricalCrossentropy", "config": {"label_smoothing": 0.1}}),
            "compiled-loss",
            "label_smoothing 0.1",
        ),
        (
            Compiled(
                {"class_name": "SparseCategoricalCrossentropy", "config": {"ignore_class": 0.5}}
            ),
            "compiled-loss",
            "ignore_class 0.5",
        ),
        (
            Compiled({"class_name": "CategoricalCrossentropy", "config": {"from_logits": True}}),
            "compiled-from-logits",
            "from_logits=True",
        ),
        (Compiled("cce_typo", ["auc"]), "compiled-loss", "cce_typo"),
    ],
)
def test_resolve_task_warns_of_what_it_cannot_take_over(
    stored: Compiled, code: str, words: str, tmp_path: Path
) -> None:
    interface, dataset = keras_interface(model_of(softmax)), dataset_of(tmp_path, CLASSES)
    task = resolve_task(TaskConfig(), dataset, interface, stored)
    assert task.losses == ("sparse_categorical_crossentropy",)
    (warning,) = task.warnings
    assert warning.code == code
    assert words in warning.message


@pytest.mark.parametrize(
    ("by", "metrics"),
    [("compiled", ("precision_micro", "recall_micro")), ("run", ("precision", "recall"))],
)
def test_precision_of_several_labels_is_that_of_keras(
    by: Any, metrics: tuple[str, ...], tmp_path: Path
) -> None:
    tags = L.Dense(SEVERAL.shape[1], activation="sigmoid")
    interface, dataset = keras_interface(model_of(tags)), dataset_of(tmp_path, SEVERAL)
    stored = Compiled("binary_crossentropy", ["precision", "recall"], by=by)
    assert resolve_task(TaskConfig(), dataset, interface, stored).metrics[:2] == metrics


@pytest.mark.parametrize(
    ("row", "value", "words"),
    [(77, 4, r"y\[77\]: a label of the train split is 4"), (3, -1, r"y\[3\]: a label .* is -1")],
)
def test_a_class_number_of_a_map_beyond_the_outputs_is_named(
    tmp_path: Path, row: int, value: int, words: str
) -> None:
    maps = RNG.integers(0, 4, (80, 3, 2))
    maps[row, 1, 1] = value
    dataset = dataset_of(tmp_path, maps, RNG.normal(size=(80, 3, 2, 1)).astype(np.float32))
    inputs = keras.Input((3, 2, 1))
    model = keras.Model(inputs, L.Conv2D(4, 1)(inputs))
    with pytest.raises(DataError, match=words) as caught:
        resolve_task(TaskConfig(), dataset, keras_interface(model))
    assert caught.value.exit_code == 3
