"""Metrics of an artifact against Keras' `evaluate`, with and without masks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tf_keras as keras
from sklearn.dummy import DummyClassifier
from sklearn.metrics import f1_score

from shrink.base.errors import DataError
from shrink.base.scores.output import Sums, pool, sum_up
from shrink.contract.report import Guess
from shrink.data.arrays import ArrayExamples
from shrink.data.dataset import Dataset
from shrink.data.examples import Examples
from shrink.task.artifact import (
    best_constant,
    clipped_inputs,
    describe_guess,
    evaluate_artifact,
    masks_of,
    ties_note,
    unmasked_notes,
)
from shrink.task.task import OutputTask, Task
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from tests.tflite.toys import to_float32

L = keras.layers
N, STEPS, WORDS, TAGS = 40, 7, 11, 4


class Held:
    """Examples that are held in memory; an evaluation needs no more of them than this."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        taken = tuple(part[indices] for part in self._y) if isinstance(self._y, tuple) else None
        return self._x[indices], self._y[indices] if taken is None else taken


def words(seed: int = 0) -> np.ndarray:
    """Return sentences of 0 to `STEPS` words, padded with zeros."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, WORDS, (N, STEPS))
    lengths = rng.integers(0, STEPS + 1, N)
    return np.where(np.arange(STEPS) < lengths[:, None], x, 0).astype(np.float32)


def tagger() -> keras.Model:
    keras.utils.set_random_seed(0)
    x = inputs = L.Input((STEPS,))
    x = L.Embedding(WORDS, 5, mask_zero=True)(x)
    x = L.Dense(6, activation="tanh")(x)
    return keras.Model(inputs, L.Dense(TAGS, activation="softmax", name="tags")(x))


def task(losses: tuple[str, ...], metrics: tuple[str, ...], logits: bool = False) -> Task:
    count = len(losses)
    return Task(losses, metrics, metrics[0], (logits,) * count, ("input_1",), (1.0,) * count)


def evaluated(model: keras.Model, x: np.ndarray, y: Any, task: Task, path: Path) -> Any:
    file = path / "model.tflite"
    file.write_bytes(to_float32(model))
    return evaluate_artifact(file, cast(Examples, Held(x, y)), task, masks_of(model))


def test_evaluate_artifact_equals_keras_evaluate_when_the_output_is_masked(tmp_path: Path) -> None:
    model, x = tagger(), words()
    y = np.random.default_rng(1).integers(0, TAGS, (N, STEPS))
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    loss, accuracy = model.evaluate(x, y, batch_size=N, verbose=0)
    wanted = task(("sparse_categorical_crossentropy",), ("accuracy",))
    found = evaluated(model, x, y, wanted, tmp_path)
    assert found.metrics["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    assert found.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    # And by hand: padding does not count.
    right = model.predict(x, verbose=0).argmax(-1) == y
    assert found.metrics["accuracy"] == pytest.approx(right[x > 0].mean(), abs=1e-9)
    assert abs(right.mean() - right[x > 0].mean()) > 1e-3
    for name, scores in found.scores.items():
        assert scores.mean() == pytest.approx(found.metrics[name], rel=1e-9)


def test_evaluate_artifact_equals_keras_evaluate_when_one_of_two_outputs_is_masked(
    tmp_path: Path,
) -> None:
    keras.utils.set_random_seed(0)
    inputs = L.Input((STEPS, 3))
    masked = L.Masking()(inputs)
    tags = L.Dense(2, name="tags")(masked)
    whole = L.Dense(3, name="whole")(L.Flatten()(inputs))
    model = keras.Model(inputs, [tags, whole])
    rng = np.random.default_rng(2)
    x = rng.normal(size=(N, STEPS, 3)).astype(np.float32) * (words()[..., None] > 0)
    y = [rng.normal(size=(N, STEPS, 2)), rng.normal(size=(N, 3))]
    model.compile(loss="mse", metrics=["mae"])
    # Keras' names: loss, tags_loss, whole_loss, tags_mae, whole_mae.
    loss, _, _, first, second = model.evaluate(x, y, batch_size=N, verbose=0)
    wanted = task(("mean_squared_error",) * 2, ("mean_absolute_error",))
    found = evaluated(model, x, tuple(y), wanted, tmp_path)
    assert found.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert found.metrics["mean_absolute_error"] == pytest.approx((first + second) / 2, rel=1e-5)


def test_evaluate_artifact_refuses_examples_that_are_all_masked(tmp_path: Path) -> None:
    wanted = task(("sparse_categorical_crossentropy",), ("accuracy",))
    nothing = np.zeros((3, STEPS), np.float32)
    with pytest.raises(DataError, match="no element"):
        evaluated(tagger(), nothing, np.zeros((3, STEPS), int), wanted, tmp_path)


def test_masks_of_is_none_without_a_mask() -> None:
    inputs = L.Input((4,))
    assert masks_of(keras.Model(inputs, L.Dense(2)(inputs))) is None
    assert masks_of(None) is None


def test_unmasked_notes_tell_of_steps_that_may_be_padding() -> None:
    (sequence,) = read(to_float32(tagger()))[:1]
    inputs = L.Input((4,))
    (vector,) = read(to_float32(keras.Model(inputs, L.Dense(2)(inputs))))
    (note,) = unmasked_notes(None, sequence)
    assert "padding" in note
    assert unmasked_notes(tagger(), sequence) == []
    assert unmasked_notes(None, vector) == []


def test_evaluate_artifact_gives_whole_scores_when_three_outputs_agree(
    tmp_path: Path,
) -> None:
    # Three heads that are always right: their mean is 1 to the last bit, which intervals rely on.
    inputs = L.Input((2,), name="input_1")
    heads = [L.Dense(2, kernel_initializer="identity", name=f"head_{i}")(inputs) for i in range(3)]
    x = np.eye(2, dtype=np.float32).repeat(5, axis=0)
    y = x.argmax(1)
    wanted = task(("sparse_categorical_crossentropy",) * 3, ("accuracy",), logits=True)
    found = evaluated(keras.Model(inputs, heads), x, (y, y, y), wanted, tmp_path)
    assert set(found.scores["accuracy"].tolist()) == {1.0}


def test_each_of_several_outputs_has_its_own_metrics(tmp_path: Path) -> None:
    inputs = L.Input((6,), name="input_1")
    kind = L.Dense(3, kernel_initializer=placed(0), name="kind")(inputs)
    tags = L.Dense(3, kernel_initializer=placed(3), name="tags")(inputs)
    random = np.random.default_rng(0)
    y, labels = random.integers(0, 3, 40), random.integers(0, 2, (40, 3))
    x = np.concatenate([np.eye(3)[y] * 4, labels * 2 - 1], axis=1).astype(np.float32)
    y[:10] = (y[:10] + 1) % 3  # ten of forty are wrong
    labels[:4] = 1 - labels[:4]  # four of forty, in all three labels
    losses = ("sparse_categorical_crossentropy", "binary_crossentropy")
    wanted = task(losses, ("accuracy", "binary_accuracy", "f1_macro"), logits=True)
    outputs = [OutputTask("kind", losses[0], "data", "", True, None, None, (3,))]
    outputs += [OutputTask("tags", losses[1], "data", "", True, None, None, (3,))]
    wanted = replace(wanted, outputs=tuple(outputs))
    found = evaluated(keras.Model(inputs, [kind, tags]), x, (y, labels), wanted, tmp_path)
    assert found.metrics["accuracy"] == pytest.approx(0.75)
    assert found.metrics["binary_accuracy"] == pytest.approx(0.9)
    (first, second) = found.by_output[0], found.by_output[1]
    assert first["accuracy"] == pytest.approx(0.75)
    assert second["binary_accuracy"] == pytest.approx(0.9)
    assert set(first) == {"loss", "accuracy", "f1_macro"}
    assert set(second) == {"loss", "binary_accuracy", "f1_macro"}
    decided = x[:, :3].argmax(1)
    assert first["f1_macro"] == pytest.approx(f1_score(y, decided, average="macro"))
    assert second["f1_macro"] == pytest.approx(f1_score(labels, x[:, 3:] > 0, average="macro"))
    assert first["loss"] + second["loss"] == pytest.approx(found.metrics["loss"])


def placed(row: int) -> Any:
    """Return what makes a kernel (6, 3) that copies three of the inputs."""
    kernel = np.zeros((6, 3), np.float32)
    kernel[row : row + 3] = np.eye(3)
    return keras.initializers.Constant(kernel)


def test_pool_gives_scores_with_the_standard_error_of_a_ratio() -> None:
    rng = np.random.default_rng(3)
    valid = rng.integers(0, 6, 200).astype(float)
    values = rng.binomial(valid.astype(int), 0.8).astype(float)
    found = pool([sum_up_of(values, valid)])
    # The delete-one jackknife, written out.
    n = len(valid)
    left_out = (values.sum() - values) / (valid.sum() - valid)
    jackknife = np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2))
    assert found.value == pytest.approx(values.sum() / valid.sum())
    assert found.scores.mean() == pytest.approx(found.value)
    assert found.scores.std(ddof=1) / np.sqrt(n) == pytest.approx(jackknife, rel=0.02)


def sum_up_of(values: np.ndarray, valid: np.ndarray) -> Sums:
    """Return the sums of examples that have `valid` elements of 5, together `values`."""
    mask = np.arange(5) < valid[:, None]
    each = np.where(mask, (values / np.maximum(valid, 1))[:, None], np.nan)
    return sum_up(each, mask)


def test_ties_are_counted_and_decided_for_the_first_class(tmp_path: Path) -> None:
    inputs = L.Input((3,), name="input_1")
    model = keras.Model(inputs, L.Dense(3, kernel_initializer="identity", name="head")(inputs))
    x = np.array([[1, 1, 0], [1, 1, 0], [0, 2, 1], [2, 0, 0]], np.float32)
    y = np.array([0, 1, 1, 0])
    wanted = task(("sparse_categorical_crossentropy",), ("accuracy",), logits=True)
    found = evaluated(model, x, (y,), wanted, tmp_path)
    assert found.scores["accuracy"].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert found.ties == (2, 4)
    (note,) = ties_note(found)
    assert note.startswith("accuracy: for 2 of 4 examples several classes tie")
    assert ties_note(replace(found, ties=(0, 4))) == []


def examples(targets: Any, inputs: Any = None) -> ArrayExamples:
    """As many examples as targets; more than are read at a time."""
    y = np.asarray(targets)
    x = np.zeros((len(y), 2), np.float32) if inputs is None else np.asarray(inputs)
    return ArrayExamples(x, y, np.arange(len(y)))


def test_best_constant_of_labels_is_the_share_of_the_commonest() -> None:
    y = np.random.default_rng(0).choice(4, 1000, p=[0.1, 0.2, 0.3, 0.4])
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((1000, 1)), y)
    expected = dummy.score(np.zeros((1000, 1)), y)
    assert best_constant(examples(y), "accuracy") == pytest.approx(expected)
    assert best_constant(examples(np.eye(4, dtype=np.float32)[y]), "accuracy") == expected
    assert best_constant(examples(np.eye(4, dtype=np.int64)[y]), "accuracy") == expected


def test_best_constant_of_pixels_counts_all_of_them() -> None:
    y = np.random.default_rng(1).integers(0, 3, (700, 4, 5))
    expected = np.bincount(y.ravel()).max() / y.size
    assert best_constant(examples(y), "accuracy") == pytest.approx(expected)


def test_best_constant_of_several_labels_takes_each_by_itself() -> None:
    y = (np.random.default_rng(2).random((900, 3)) < [0.1, 0.5, 0.8]).astype(np.float32)
    shares = y.mean(axis=0)
    expected = np.mean(np.maximum(shares, 1 - shares))
    assert best_constant(examples(y), "binary_accuracy") == pytest.approx(expected)


@pytest.mark.parametrize("offset", [0, 1e6])
def test_best_constant_of_real_targets_is_their_variance(offset: float) -> None:
    y = np.random.default_rng(3).normal(offset, [1, 5], (1300, 2))
    found = best_constant(examples(y), "mean_squared_error")
    assert found == pytest.approx(np.mean(np.var(y, axis=0)), rel=1e-9)


def test_best_constant_is_unknown_where_it_would_be_a_guess() -> None:
    assert best_constant(examples(np.arange(5) % 2), "top5_accuracy") is None
    assert best_constant(examples(np.arange(5.0)), "mean_absolute_error") is None
    assert best_constant(examples(np.zeros(0, np.int64)), "accuracy") is None


def test_describe_guess_says_what_may_be_wrong() -> None:
    x = np.linspace(0, 255, 40).reshape(20, 2)
    train = examples(np.array([0, 1] * 10), x)
    test = examples(np.array([0, 2] * 10), x)
    data = Dataset(train, train, test, ("cat", "dog", "eel"), 3)
    scaling = [keras.layers.Rescaling(1 / 255), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((2,)), keras.Sequential(scaling)])
    found = describe_guess(data, "accuracy", model)
    assert found == Guess(
        metric="accuracy",
        value=0.5,
        classes=("cat", "dog", "eel"),
        num_classes=3,
        low=0.0,
        high=255.0,
        rescales=True,
        only_in_test=("eel",),
        only_in_train=("dog",),
    )
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    assert describe_guess(data, "accuracy", plain).rescales is False
    assert describe_guess(data, "accuracy", None).rescales is None


def test_describe_guess_is_null_where_some_positions_do_not_count() -> None:
    ids = keras.Input((4,), dtype="int32")
    hidden = keras.layers.Embedding(9, 2, mask_zero=True)(ids)
    model = keras.Model(ids, keras.layers.Dense(3)(hidden))
    data = examples(np.zeros((6, 4), np.int64), np.zeros((6, 4), np.int32))
    dataset = Dataset(data, data, data, (), None)
    assert describe_guess(dataset, "accuracy", model).value is None


@pytest.mark.parametrize("interface", ["float32", "uint8"])
def test_values_that_a_quantized_input_cannot_hold_are_counted(interface: Any) -> None:
    x = keras.Input((4,), name="input_1")
    unit = np.linspace(0, 1, 400, dtype=np.float32).reshape(100, 4)
    model = keras.Model(x, L.Dense(2)(x))
    content = convert(
        model, "static_int8", [{"input_1": row[None]} for row in unit], interface
    ).content
    graph, details = read(content)[0], load(content).input_details
    assert not list(clipped_inputs(graph, details, [unit]))
    few = unit.copy()
    few[0] = 9  # 1 % of the values
    assert not list(clipped_inputs(graph, details, [few]))
    few[1, 0] = 9
    ((message, _),) = clipped_inputs(graph, details, [few])
    assert message.startswith("1.2 % of the values")
    ((message, hint),) = clipped_inputs(graph, details, [255 * unit])
    assert message.endswith("they are 0 to 255, and the quantized input holds 0 to 1")
    assert "--normalize-scale 1/255" in hint
    assert "quantized already" not in hint
    ((_, other),) = clipped_inputs(graph, details, [4 * unit - 2])
    assert "1/255" not in other
    assert "calibration examples of their range" in other
    # Behind a reshape the same values arrive in the same tensor.
    (start,) = graph.inputs
    new = len(graph.tensors)
    moved = [
        replace(one, inputs=tuple(new if at == start else at for at in one.inputs))
        for one in graph.operators
    ]
    reshape = replace(graph.operators[0], name="RESHAPE", inputs=(start,), outputs=(new,))
    tensors = (*graph.tensors, graph.tensors[start])
    graph = replace(graph, tensors=tensors, operators=(reshape, *moved))
    assert list(clipped_inputs(graph, details, [255 * unit])) == [(message, hint)]
    # A file may hold a cycle.
    back = replace(reshape, inputs=(new,), outputs=(start,))
    graph = replace(graph, operators=(reshape, back))
    assert len(list(clipped_inputs(graph, details, [255 * unit]))) == (interface == "uint8")
