"""Examples in memory, and trainings on them: by the engine's loop, and by its steps alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from shrink.base.types import Spec
from shrink.data.dataset import Dataset
from shrink.data.examples import Examples
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import Devices, distribute_batches, open_devices
from shrink.engine.fit import train
from shrink.engine.microbatch import MicroBatchTrainer, TrainingSetup
from shrink.engine.objective import SupervisedObjective
from shrink.engine.planner import BatchPlan
from shrink.engine.record import TrainingRecord


class ArrayExamples(Examples):
    """Examples in memory."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y
        self.labels = y
        self.input_spec = Spec(x.shape[1:], x.dtype)
        self.target_spec = Spec(y.shape[1:], y.dtype)

    def __len__(self) -> int:
        return len(self._x)

    def load(self, indices: Any) -> tuple[Any, Any]:
        return tf.gather(self._x, indices), tf.gather(self._y, indices)

    def arrays(self, indices: Any) -> tuple[Any, Any]:
        return self._x[indices], self._y[indices]


def splits(x: Any, y: Any, train: int | None = None, names: tuple[str, ...] = ()) -> Dataset:
    """Return examples of five classes: the first `train`, or all, to train on; else the rest."""
    count = len(x) if train is None else train
    rest = ArrayExamples(x[count:], y[count:])
    return Dataset(ArrayExamples(x[:count], y[:count]), rest, rest, names, num_classes=5)


def of_labels() -> SupervisedObjective:
    """Return the objective of a model that gives logits for class numbers."""
    return SupervisedObjective("sparse_categorical_crossentropy", from_logits=True)


def setup(
    model: Any,
    config: TrainingConfig,
    devices: Devices | None = None,
    objective: Any = None,
    **more: Any,
) -> TrainingSetup:
    """Return what is trained; by default of labels, on the devices of the configuration."""
    return TrainingSetup(
        model, objective or of_labels(), config, devices or open_devices(config), **more
    )


def trained(
    model: Any,
    data: Dataset,
    config: TrainingConfig,
    *,
    epochs: int = 2,
    monitor: str = "loss",
    devices: Devices | None = None,
    **more: Any,
) -> TrainingRecord:
    """Train a model in place by the engine's loop; `more` is for `setup`."""
    return train(setup(model, config, devices, **more), data, epochs=epochs, monitor=monitor)


def stepped(
    model: Any,
    optimizer: Any,
    batches: Any,
    devices: Devices,
    *,
    rows: int,
    micro_batch_size: int,
    steps: int,
    epochs: int = 1,
    never_empty: bool = False,
    keras_shares: bool = False,
    callbacks: Sequence[Any] = (),
    config: TrainingConfig | None = None,
    **more: Any,
) -> dict[str, list[float]]:
    """Train a model in place by the engine's steps on batches of one epoch; return the history.

    Args:
        model: built in the scope of the devices.
        optimizer: makes the optimizer, in their scope.
        batches: of all epochs; of one where Keras shares them.
        rows: the most examples of a replica in a step.
        keras_shares: let Keras split batches, which leaves replicas without examples.
        more: for `setup`.
    """
    with devices.scope():
        trainer = MicroBatchTrainer(
            setup(model, config or TrainingConfig(), devices, **more),
            BatchPlan(1, rows, micro_batch_size, never_empty=never_empty),
        )
        trainer.compile(optimizer=optimizer())
        trainer.optimizer.build(model.trainable_variables)
    shares = batches if keras_shares else distribute_batches(batches, devices)
    history = trainer.fit(
        shares, epochs=epochs, steps_per_epoch=steps, callbacks=[*callbacks], verbose=0
    )
    return dict(history.history)
