"""The training loop: what it reports, keeps, refuses and repeats."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import RecipeError, StageError
from shrink.base.progress import Progress
from shrink.contract.codec import to_plain
from shrink.data.pipeline import evaluation_batches
from shrink.engine.batch_norm import frozen_statistics
from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.engine.devices import distribute_batches, open_devices
from shrink.engine.fit import train
from shrink.engine.planner import plan_batches
from shrink.engine.record import TrainingRecord
from shrink.engine.trainer import build_trainer
from shrink.engine.whole_split import Outputs, WholeSplit
from tests.engine._scenarios import dataset
from tests.engine._toys import ArrayExamples, setup, splits, trained

TRAINING_KEYS = {
    "training_peak_lower_bound",
    "replicas",
    "workers",
    "global_batch_size",
    "micro_batch_size",
    "accumulation_steps",
    "precision",
    "memory_limit_bytes",
    "oom_retries",
    "oom_events",
    "exact",
    "inexact_because",
    "memory_timeline",
    "epochs",
    "updates",
    "examples_per_s",
    "history",
}


def toy_model(*, dropout: float = 0.0, activation: str = "relu") -> Any:
    """Flatten, dense, batch normalisation, dense: 5 logits of (6, 6, 2)."""
    layers = keras.layers
    inputs = layers.Input((6, 6, 2))
    hidden = layers.Dense(8, activation=activation)(layers.Flatten()(inputs))
    hidden = layers.BatchNormalization(name="norm")(hidden)
    hidden = layers.Dropout(dropout, name="drop")(hidden)
    return keras.Model(inputs, layers.Dense(5)(hidden))


def run(model: Any, config: TrainingConfig, *, epochs: int = 2, **more: Any) -> TrainingRecord:
    arguments: dict[str, Any] = {"monitor": "accuracy", "dataset": dataset(), **more}
    return train(setup(model, config, metrics=("accuracy",)), epochs=epochs, **arguments)


def test_train_reports_the_training_object_and_progress() -> None:
    gc.collect()  # what earlier tests left in cycles still counts as held
    seen: list[Progress] = []
    config = TrainingConfig(global_batch_size=24, micro_batch_size=10)
    record = run(toy_model(), config, on_progress=seen.append, stage="train")
    report = to_plain(record.described())
    assert set(report) == TRAINING_KEYS
    assert (report["updates"], report["micro_batch_size"], report["accumulation_steps"]) == (
        6,
        10,
        3,
    )
    assert set(report["history"]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert [len(values) for values in report["history"].values()] == [2, 2, 2, 2]
    assert report["memory_timeline"]["update"] == [1, 2, 3, 4, 5, 6]
    # So small a model is below what the allocator counts: the peak is what goes through malloc.
    assert record.peak.small is not None
    assert (
        record.peaks["training_peak_bytes"].value
        == (record.peak.allocator or 0) + record.peak.small
    )
    assert not record.peaks["training_peak_bytes"].reason
    assert report["training_peak_lower_bound"] is False
    ends = [progress for progress in seen if progress.epoch_end]
    assert [(end.epoch, end.step, end.steps) for end in ends] == [(1, 3, 3), (2, 3, 3)]
    assert "val_accuracy" in ends[0].metrics
    assert not record.exact
    assert record.inexact_because[0].startswith("norm: ")


def test_the_logged_loss_is_the_data_loss_and_the_regularisation_of_the_weights() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 4)).astype(np.float32), np.arange(20) % 5
    inputs = keras.layers.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(5, kernel_regularizer="l2")(inputs))
    kernel, bias = model.get_weights()
    config = TrainingConfig(global_batch_size=20, micro_batch_size=7)
    record = trained(model, splits(x, y), config, epochs=1)
    logits = (x @ kernel + bias).astype(np.float64)
    of_data = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(20), y]
    expected = of_data.mean() + 0.01 * np.square(kernel).sum()
    assert record.history["loss"] == pytest.approx([expected], rel=1e-5)


def test_train_gives_bitwise_equal_weights_when_repeated() -> None:
    weights = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        model = toy_model()
        run(model, TrainingConfig(global_batch_size=24, micro_batch_size=10))
        weights.append(model.get_weights())
    assert all(np.array_equal(one, two) for one, two in zip(*weights, strict=True))


def test_train_keeps_the_statistics_when_batch_norm_is_frozen() -> None:
    model = toy_model()
    norm = model.get_layer("norm")
    gamma, mean = norm.gamma.numpy(), norm.moving_mean.numpy()
    config = TrainingConfig(global_batch_size=24, micro_batch_size=10, batch_norm="frozen")
    record = run(model, config, epochs=1)
    assert record.exact
    np.testing.assert_array_equal(norm.moving_mean.numpy(), mean)
    assert np.abs(norm.gamma.numpy() - gamma).max() > 0


def test_frozen_statistics_ends_with_its_block() -> None:
    model = toy_model()
    norm, x = model.get_layer("norm"), tf.random.normal((4, 8), seed=0)
    with frozen_statistics(model):
        norm(x, training=True)
        np.testing.assert_array_equal(norm.moving_mean.numpy(), np.zeros(8))
    norm(x, training=True)
    np.testing.assert_allclose(norm.moving_mean, 0.01 * tf.reduce_mean(x, 0), atol=1e-6)


# ReLU makes 0 of NaN: the loss stays finite while the weights are lost.
@pytest.mark.parametrize(
    ("activation", "message"),
    [("tanh", "loss is nan in step 1 of 3 of epoch 1"), ("relu", "not finite after epoch 1")],
)
def test_train_names_stage_and_epoch_when_numbers_are_lost(activation: str, message: str) -> None:
    data = dataset()
    nothing = np.full((61, 6, 6, 2), np.nan, np.float32)
    bad = replace(data, train=ArrayExamples(nothing, data.train.labels))
    config = TrainingConfig(global_batch_size=24)
    with pytest.raises(StageError, match=message) as caught:
        run(toy_model(activation=activation), config, dataset=bad, stage="distill")
    assert caught.value.subject == "distill"
    assert "learning_rate" in str(caught.value.hint)


def test_train_restores_the_best_epoch() -> None:
    keras.utils.set_random_seed(0)
    model = toy_model()
    optimizer = OptimizerConfig(name="sgd", learning_rate=3.0)
    config = TrainingConfig(global_batch_size=24, optimizer=optimizer, restore_best=True)
    record = run(model, config, epochs=4, monitor="loss")
    losses = record.history["val_loss"]
    x, y = dataset().validation.arrays(np.arange(10))
    each = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
    assert float(tf.reduce_mean(each)) == pytest.approx(min(losses), rel=1e-5)
    assert min(losses) < losses[-1]


def test_train_is_exact_when_nothing_is_split() -> None:
    record = run(toy_model(dropout=0.5), TrainingConfig(global_batch_size=100), epochs=1)
    assert (record.exact, record.accumulation_steps, record.micro_batch_size) == (True, 1, 61)


def test_train_names_dropout_when_batches_are_split() -> None:
    config = TrainingConfig(global_batch_size=24, micro_batch_size=10)
    record = run(toy_model(dropout=0.5), config, epochs=0)
    assert [reason.split(":")[0] for reason in record.inexact_because] == ["drop", "norm"]


def test_train_refuses_a_monitor_that_is_not_measured() -> None:
    with pytest.raises(RecipeError, match="top5_accuracy"):
        run(toy_model(), TrainingConfig(), monitor="top5_accuracy")


def test_plan_batches_knows_when_a_replica_may_be_empty() -> None:
    config = TrainingConfig(global_batch_size=24)
    assert plan_batches(config, 2, 61, 0).never_empty
    assert not plan_batches(config, 3, 50, 0).never_empty
    assert not plan_batches(config, 2, 61, 25).never_empty


def test_a_trained_model_validates_to_the_same_numbers_in_micro_batches() -> None:
    model, data = toy_model(), dataset()
    optimizer = OptimizerConfig(learning_rate=0.01)
    record = run(model, TrainingConfig(global_batch_size=24, optimizer=optimizer), dataset=data)
    found = []
    for micro_batch_size in (24, 4):  # of 10 examples, the last micro-batch of 4 has 2
        config = TrainingConfig(global_batch_size=24, micro_batch_size=micro_batch_size)
        of = setup(model, config, metrics=("accuracy",))
        trainer = build_trainer(of, plan_batches(config, 1, 61, 10), total_updates=1)
        batches = distribute_batches(evaluation_batches(data.validation, 24), of.devices)
        found.append(trainer.evaluate(batches, steps=1, return_dict=True, verbose=0))
    whole, parts = found
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert parts["accuracy"] == pytest.approx(whole["accuracy"], abs=1e-6)
    assert record.history["val_loss"][-1] == pytest.approx(whole["loss"], rel=1e-6)
    assert record.history["val_loss"][0] != record.history["val_loss"][1]


class Counting(keras.layers.Layer):
    """Notes how many examples each forward pass gets."""

    counts: ClassVar[list[int]] = []

    def call(self, inputs: Any) -> Any:
        def note(x: Any) -> Any:
            self.counts.append(len(x))
            return x

        outputs = tf.numpy_function(note, [inputs], inputs.dtype, stateful=True)
        outputs.set_shape(inputs.shape)
        return outputs + 0 * inputs


def test_train_measures_the_whole_split_in_micro_batches() -> None:
    Counting.counts.clear()
    inputs = keras.layers.Input((6, 6, 2))
    hidden = keras.layers.Dense(5)(keras.layers.Flatten()(inputs))
    model = keras.Model(inputs, Counting()(hidden))
    config = TrainingConfig(global_batch_size=24, micro_batch_size=4)
    data = dataset()

    def score(batches: Iterator[Outputs]) -> dict[str, float | None]:
        return {"roc_auc": float(sum(len(outputs[0]) for outputs, _, _ in batches))}

    whole = WholeSplit(data.validation, score, outputs=1, names=("roc_auc",))
    record = trained(model, data, config, epochs=1, monitor="roc_auc", epoch_metrics=whole)
    assert record.history["val_roc_auc"] == (10,)
    assert max(Counting.counts) == 4


def test_train_scales_the_loss_when_in_mixed_float16() -> None:
    config = TrainingConfig(
        global_batch_size=24, micro_batch_size=10, precision="mixed_float16", batch_norm="frozen"
    )
    devices = open_devices(config)
    try:
        half = toy_model()
        start = half.get_weights()
        keras.utils.set_random_seed(0)
        train_half = run(half, config)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    full = toy_model()
    full.set_weights(start)
    run(full, config.model_copy(update={"precision": "float32"}))
    assert devices.replicas == 1
    assert train_half.updates == 6
    differences = [
        float(np.abs(a - b).max())
        for a, b in zip(half.get_weights(), full.get_weights(), strict=True)
    ]
    assert 0 < max(differences) < 2e-3


def test_train_names_the_layer_that_has_no_gradient() -> None:
    layers = keras.layers
    inputs = layers.Input((6, 6, 2))
    hidden = layers.RandomContrast(0.5, name="contrast")(layers.Conv2D(3, 3)(inputs))
    model = keras.Model(inputs, layers.Dense(5)(layers.Flatten()(hidden)))
    config = TrainingConfig(global_batch_size=24, micro_batch_size=10)
    with pytest.raises(StageError, match=r"contrast.*no gradient of AdjustContrastv2") as caught:
        trained(model, dataset(), config, epochs=1)
    assert "data.augment" in str(caught.value.hint)


class OnlyInGraph(keras.layers.Layer):
    """A layer of one's own that cannot run eagerly."""

    def call(self, inputs: Any) -> Any:
        if tf.executing_eagerly():
            raise ValueError("not eagerly")
        return tf.identity(inputs)


def test_train_keeps_its_result_when_the_model_fails_afterwards() -> None:
    inputs = keras.layers.Input((6, 6, 2))
    hidden = keras.layers.Flatten()(OnlyInGraph()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(5)(hidden), name="own")
    record = run(model, TrainingConfig(global_batch_size=24, micro_batch_size=10), epochs=1)
    assert record.updates == 3
    assert not record.exact
    (reason,) = record.inexact_because
    assert reason.startswith(
        "own: unknown whether an example depends on other examples of its batch"
    )
    assert "not eagerly" in reason
