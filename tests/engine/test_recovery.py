"""What counts as running out of memory, and what remains of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from tensorflow.python import pywrap_tfe
from tensorflow.python.framework import ops

from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.engine.objective import SupervisedObjective
from shrink.engine.planner import BatchPlan
from shrink.engine.recovery import (
    Retries,
    Watcher,
    evidence_of,
    is_out_of_memory,
    needs_fresh_process,
)
from shrink.engine.trainer import build_trainer
from tests.engine._run import run_in_fresh_process
from tests.engine._toys import setup
from tests.forks import call


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"), True),
        (tf.errors.InternalError(None, None, "Dst tensor is not initialized."), True),
        (tf.errors.InternalError(None, None, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"), True),
        (tf.errors.InternalError(None, None, "no algorithm worked"), False),
        (tf.errors.InvalidArgumentError(None, None, "shapes differ"), False),
    ],
)
def test_is_out_of_memory_knows_the_allocators_words(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


@pytest.mark.parametrize("first", ["Collective ops is aborted by: ", "CUDA_ERROR_ASSERT after "])
def test_is_out_of_memory_denies_what_only_another_process_can_continue(first: str) -> None:
    message = first + "OOM when allocating tensor with shape[256,64,112,112]"
    error = tf.errors.ResourceExhaustedError(None, None, message)
    assert not is_out_of_memory(error)
    assert needs_fresh_process(error)


def test_train_recovers_when_one_of_two_replicas_runs_out_of_memory() -> None:
    result = call("tests.engine._scenarios", "one_replica_fails")
    assert result["failed"] == [1]
    assert result["micro_batch_sizes"] == [12]
    assert (result["updates"], result["final"]) == (6, 6)


def test_evidence_of_is_the_line_about_memory() -> None:
    error = tf.errors.ResourceExhaustedError(
        None,
        None,
        'Graph error:\n File "memory.py"\n OOM when allocating tensor with shape[9]\nmore',
    )
    assert evidence_of(error) == "OOM when allocating tensor with shape[9]"
    assert evidence_of(MemoryError()) == "MemoryError"


@pytest.mark.slow
def test_train_halves_the_micro_batch_when_the_allocator_refuses() -> None:
    result = run_in_fresh_process(
        "tests.engine._scenarios",
        "refused_by_the_allocator",
        environment={
            "TF_CPU_ALLOCATOR_USE_BFC": "true",
            "TF_CPU_BFC_MEM_LIMIT_IN_MB": "85",
            "TF_ENABLE_ONEDNN_OPTS": "0",
        },
    )
    assert result["micro_batch_size"] == 128
    assert result["updates"] == 2
    assert "OOM" in result["evidence"][0]
    assert result["accumulation_steps"] * result["micro_batch_size"] == 256


class _Counting:
    """Counts the calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls = 0
        self._function = function

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        self.calls += 1
        return self._function(*arguments, **settings)


class _Follows(Watcher):
    """Keeps the steps that begin."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[int, int]] = []

    def begin_step(self, step: int, micro_batch_size: int) -> None:
        self.steps.append((step, micro_batch_size))


def test_a_step_is_one_operation_for_python_and_waits_for_no_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers = keras.layers
    inputs = hidden = layers.Input((4,))
    for _ in range(6):
        hidden = layers.BatchNormalization()(layers.Dense(4)(hidden))
    model = keras.Model(inputs, layers.Dropout(0.5)(hidden))
    model.layers[1].trainable = False
    config, watcher = TrainingConfig(global_batch_size=8), _Follows()
    trainer = build_trainer(
        setup(model, config, metrics=("accuracy",)),
        BatchPlan(4, 8, 2, never_empty=True),
        total_updates=4,
        retries=Retries(lambda update: iter(()), watcher),
    )
    data = tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.zeros(8, tf.int64))).repeat()
    step, batches = trainer.make_train_function(), iter(data)
    step(batches)
    names = ("TFE_Py_FastPathExecute", "TFE_Py_Execute", "TFE_Py_ExecuteCancelable")
    counted = [_Counting(getattr(pywrap_tfe, name)) for name in names]
    for name, counting in zip(names, counted, strict=True):
        monkeypatch.setattr(pywrap_tfe, name, counting)
    values = _Counting(ops._EagerTensorBase.numpy)
    monkeypatch.setattr(ops._EagerTensorBase, "numpy", lambda tensor: values(tensor))
    step(batches)
    # The update, which also returns what may have to be put back after the next one.
    assert sum(counting.calls for counting in counted) == 1
    assert values.calls == 0
    assert watcher.steps == [(0, 2), (1, 2)]


@pytest.mark.parametrize("is_validated", [False, True])
def test_metrics_start_anew_where_the_first_step_of_an_epoch_runs_out_of_memory(
    is_validated: bool,
) -> None:
    watcher, failed = _Follows(), list[int]()

    def fail(x: np.ndarray) -> np.ndarray:
        if watcher.steps[-1:] == [(2, 2)] and x.max() == 40:  # the second micro-batch
            failed.append(len(x))
            raise MemoryError("OOM when allocating tensor with shape[2,1] (injected)")
        return x

    def through(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(fail, [x], x.dtype), x.shape)

    inputs = keras.Input((1,))
    kernel = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Model(inputs, kernel(keras.layers.Lambda(through)(inputs)))
    sgd = OptimizerConfig(name="sgd", learning_rate=1e-30)
    config = TrainingConfig(global_batch_size=4, optimizer=sgd)
    # Squares of 1, 2, 3 and 4 in the first epoch; ten times as much in the second.
    x = np.array([[1], [2], [3], [4]], np.float32)
    batches = tf.data.Dataset.from_tensor_slices(([x, x, 10 * x, 10 * x], [0 * x] * 4)).batch(1)
    batches = batches.map(lambda x, y: (x[0], y[0]))
    trainer = build_trainer(
        setup(model, config, objective=SupervisedObjective("mean_squared_error", False)),
        BatchPlan(4, 4, 2, never_empty=False),
        total_updates=4,
        retries=Retries(lambda update: iter(batches.skip(update)), watcher),
    )
    history = trainer.fit(
        batches,
        epochs=2,
        steps_per_epoch=2,
        validation_data=batches.take(1) if is_validated else None,
        verbose=0,
    ).history
    assert failed == [2]
    assert trainer.micro_batch_size == 1
    squares = np.mean(x.astype(np.float64) ** 2)
    assert history["loss"] == pytest.approx([squares, 100 * squares])
    if is_validated:
        assert history["val_loss"] == pytest.approx([squares, squares])
