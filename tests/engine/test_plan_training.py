"""Batches of validation that take no more memory than training."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.types import Spec
from shrink.contract.job import MicroBatchPlan
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import open_devices
from shrink.engine.microbatch import TrainingSetup
from shrink.engine.objective import SupervisedObjective
from shrink.engine.plan_training import plan_validation
from shrink.engine.probe import TrainingStep, ZeroExamples

MICRO_BATCH = 16


@pytest.fixture(scope="module")
def step() -> TrainingStep:
    """A step of eight convolutions, whose activations outweigh all else."""
    gc.collect()  # what earlier tests left in cycles still counts as held
    config = TrainingConfig(global_batch_size=32)
    devices = open_devices(config)
    layers = keras.layers
    inputs = x = layers.Input((32, 32, 8))
    for _ in range(8):
        x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))
    objective = SupervisedObjective("sparse_categorical_crossentropy", from_logits=True)
    return TrainingStep(TrainingSetup(model, objective, config, devices), _examples(32))


def _examples(count: int) -> ZeroExamples:
    spec = Spec((32, 32, 8), np.dtype(np.float32))
    return ZeroExamples(spec, Spec((), np.dtype(np.int64)), count)


def test_plan_validation_takes_more_examples_at_once_than_training(step: TrainingStep) -> None:
    # Training holds the outputs and gradients of every layer, validation those of two.
    peak = step.looped_peak(MICRO_BATCH)
    size = plan_validation(step, _examples(64), MicroBatchPlan(MICRO_BATCH, None, peak))
    assert MICRO_BATCH < size <= 64


def test_plan_validation_is_one_example_when_training_leaves_no_room(step: TrainingStep) -> None:
    assert plan_validation(step, _examples(64), MicroBatchPlan(MICRO_BATCH, None, 1)) == 1


def test_plan_validation_takes_no_more_than_there_is(step: TrainingStep) -> None:
    assert plan_validation(step, _examples(5), MicroBatchPlan(MICRO_BATCH, None, None)) == 5
