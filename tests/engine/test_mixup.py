"""Losses on mixtures of examples, for every form of labels, against numpy; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.opening import open_dataset
from shrink.data.pipeline import epoch_order, training_batches
from shrink.engine.class_weights import class_weights_of, with_class_weights
from shrink.task.config import TaskConfig
from shrink.task.interface import keras_interface
from shrink.task.resolve import resolve_task
from tests.jobs import context_of

COUNT, WEIGHTS = 40, {"0": 3.0, "1": 0.5}
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(COUNT, 6)).astype(np.float32)
STEPS = RANDOM.normal(size=(COUNT, 5, 2)).astype(np.float32)
BITS, CLASSES = np.arange(COUNT) % 2, np.arange(COUNT) % 3
SEVERAL = RANDOM.integers(0, 2, (COUNT, 3)).astype(np.float32)
SEQUENCES = RANDOM.integers(0, 3, (COUNT, 5))
REAL = RANDOM.normal(size=(COUNT, 1)).astype(np.float32)


def dense(units: int, activation: str | None = None) -> Any:
    return lambda hidden: keras.layers.Dense(units, activation)(hidden)


def model_of(x: np.ndarray, *heads: Any) -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.layers.Input(x.shape[1:])
    outputs = [head(inputs) for head in heads]
    return keras.Model(inputs, outputs if len(outputs) > 1 else outputs[0])


def write(path: Path, x: np.ndarray, *targets: np.ndarray) -> dict[str, Any]:
    """Store examples, and return the `data` section that mixes them."""
    names = [f"y{place}" for place in range(len(targets))]
    arrays: dict[str, Any] = {"x": x, **dict(zip(names, targets, strict=True))}
    np.savez(path / "data.npz", **arrays)
    file = {"source": "npz", "path": str(path / "data.npz"), "targets": names}
    return {**file, "augment": {"mixup": 0.4}, "test_split": 0.2, "validation_split": 0.2}


def mixed_batch(dataset: Dataset, settings: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the first training batch of 8, and (its places, shares of the first of a pair)."""
    batches = training_batches(
        dataset.train, global_batch_size=8, seed=0, first_step=0, last_step=1
    )
    if settings.get("class_weights"):
        batches = with_class_weights(batches, class_weights_of(WEIGHTS, dataset))
    places = epoch_order(len(dataset.train), 0, 0)[:8]
    shares = dataset.train.draw(0, 0, places)[:, 11]
    return next(iter(batches)), places, shares


def mixture(values: Any, shares: Any) -> Any:
    shares = shares.reshape(-1, *[1] * (values.ndim - 1))
    return shares * values + (1 - shares) * values[::-1]


def entropy(p: Any, q: Any) -> Any:
    return -(p * np.log(q)).sum(-1)


def binary(p: Any, q: Any) -> Any:
    return entropy(np.stack([p, 1 - p], -1), np.stack([q, 1 - q], -1)).mean(-1)


def squares(p: Any, q: Any) -> Any:
    return np.square(p - q).mean(tuple(range(1, p.ndim)))


CASES: dict[str, tuple[Any, ...]] = {
    # inputs, labels, head, task, targets as the loss sees them, loss
    "labels": (X, CLASSES, dense(3, "softmax"), {}, np.eye(3)[CLASSES], entropy),
    "column": (X, CLASSES[:, None], dense(3, "softmax"), {}, np.eye(3)[CLASSES], entropy),
    "more_outputs": (X, CLASSES, dense(4, "softmax"), {}, np.eye(4)[CLASSES], entropy),
    "one_hot": (X, np.eye(3)[CLASSES], dense(3, "softmax"), {}, np.eye(3)[CLASSES], entropy),
    "binary": (X, BITS, dense(1, "sigmoid"), {}, BITS[:, None], binary),
    "binary_softmax": (X, BITS, dense(2, "softmax"), {}, np.eye(2)[BITS], entropy),
    "several": (X, SEVERAL, dense(3, "sigmoid"), {}, SEVERAL, binary),
    "numbers": (X, CLASSES, dense(1), {"loss": "mean_squared_error"}, CLASSES[:, None], squares),
    "real": (X, REAL, dense(1), {}, REAL, squares),
    "sequence": (
        STEPS,
        SEQUENCES[..., None] / 2,
        lambda x: keras.layers.Dense(1)(keras.layers.Masking()(x)),
        {"loss": "mean_squared_error"},
        SEQUENCES[..., None] / 2,
        squares,
    ),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_loss_is_that_of_the_mixture(tmp_path: Path, case: str, weighted: bool) -> None:
    x, y, head, task, targets, loss = CASES[case]
    settings = {"class_weights": weighted}
    dataset = open_dataset(DataConfig.model_validate(write(tmp_path, x, y)), seed=0)
    if weighted and dataset.num_classes is None:
        with pytest.raises(DataError, match="class weights need"):
            class_weights_of(WEIGHTS, dataset)
        return
    model = model_of(x, head)
    found = resolve_task(TaskConfig.model_validate(task), dataset, keras_interface(model))
    (inputs, labels, *weights), places, shares = mixed_batch(dataset, settings)
    outputs = model(inputs)
    losses = found.objective().loss(labels, outputs, None)
    # A split keeps the rows of its examples to itself; they are found by their inputs.
    plain = dataset.train.arrays(places)[0]
    rows = [int(np.flatnonzero((x == one).reshape(COUNT, -1).all(-1))[0]) for one in plain]
    np.testing.assert_allclose(inputs, mixture(plain, shares), rtol=1e-5, atol=1e-6)
    expected = loss(mixture(targets[rows].astype(np.float64), shares), np.asarray(outputs))
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)
    if weighted:
        table = np.ones(max(3, dataset.num_classes or 0))
        table[0], table[1] = WEIGHTS["0"], WEIGHTS["1"]
        np.testing.assert_allclose(
            weights[0], mixture(table[np.ravel(y)[rows].astype(int)], shares), rtol=1e-5
        )
    for name in found.metrics:
        assert found.objective().metric(name, labels, outputs).shape == (8,)


def two_heads(x: Any) -> Any:
    return model_of(x, dense(3, "softmax"), dense(2, "softmax"))


REFUSED: dict[str, tuple[Any, ...]] = {
    "several_outputs": (X, (CLASSES, BITS), two_heads, "class numbers"),
    "sequence_labels": (STEPS, (SEQUENCES,), lambda x: model_of(x, dense(3)), "class numbers"),
    "tokens": (
        SEQUENCES.astype(np.float32),
        (BITS,),
        lambda x: model_of(
            x,
            lambda i: dense(1)(
                keras.layers.Flatten()(keras.layers.Embedding(3, 2, name="tokens")(i))
            ),
        ),
        "tokens looks whole numbers up",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_train_refuses_to_mix_class_numbers_before_it_starts(tmp_path: Path, case: str) -> None:
    x, targets, build, message = REFUSED[case]
    context = context_of(tmp_path, data=write(tmp_path, x, *targets))
    model = build(x)
    before = model.get_weights()
    with pytest.raises(DataError, match=message) as caught:
        context.train(model, context.task(model).objective(), epochs=1)
    assert caught.value.subject == "data.augment.mixup"
    tf.nest.map_structure(np.testing.assert_array_equal, before, model.get_weights())
